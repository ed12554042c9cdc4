"""The parts of what is signed, one by one: lines on disk, messages, and what a reply allows a ledger to say."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import databazaar.federation
from databazaar import Arbiter, BazaarError
from databazaar.cli.app import app
from databazaar.codes import Code
from databazaar.errors import UncheckableError
from databazaar.federation.disputes import authority_for, check_replies, read_held
from databazaar.federation.messages import (
    ReceiptMessage,
    decode_receipt,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
    is_receipt,
)
from databazaar.federation.pki import Authority, new_authority, new_key, pem
from databazaar.federation.receipts import Receipt, Settled, SignedReceipt
from databazaar.federation.signatures import Signer
from databazaar.federation.transport import Fault, MessageError
from databazaar.files import append_lines, lines_of
from databazaar.ledger import Entry, audit_entries
from databazaar.ledger.replies import ReplyStatement, SignedReply
from databazaar.runs.folder import RunFolder
from databazaar.runs.notes import RunEvidence
from forging import reseal
from sample_messages import PARAMS, a_reply, a_request
from small_markets import vector_market

SAID = ReplyStatement("0" * 32, 3, "bank1", "a" * 64, "ok", "", "b" * 64)


def test_lines_are_added_and_a_torn_one_stays_alone(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    append_lines(path, [b"one", b"two"])
    with path.open("ab") as file:
        file.write(b"thr")
    append_lines(path, [b"four"], 0o600)
    assert list(lines_of(path, 10)) == [b"one", b"two", b"thr", b"four"]
    append_lines(path, [b"x" * 11, b"y" * 10])
    with path.open("ab") as file:
        file.write(b"z" * 50)
    assert list(lines_of(path, 10))[-1] == b"y" * 10, "what is too long is left out, and the rest is read"


def test_no_link_and_no_pipe_is_written_or_read(tmp_path: Path) -> None:
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    target.write_text("mine\n")
    link.symlink_to(target)
    os.mkfifo(pipe)
    with pytest.raises(BazaarError, match="link cannot be written"):
        append_lines(link, [b"theirs"])
    for path in (link, pipe):
        with pytest.raises(BazaarError, match="is no plain file but a link, a pipe or the like"):
            list(lines_of(path, 10))
    assert target.read_text() == "mine\n"


def a_receipt(**changes: object) -> Receipt:
    accesses = (Settled(1, 0, 2, None, "c" * 64), Settled(2, 1, None, Code("not-connected"), ""))
    return replace(Receipt("fraud", "0" * 32, "bank1", 7, "d" * 64, 3, accesses), **changes)  # type: ignore[arg-type]


def test_a_receipt_is_read_as_it_was_written_and_nothing_else_is() -> None:
    receipt = a_receipt()
    assert Receipt.read(receipt.text) == receipt
    signed = SignedReceipt(receipt, "ab", "pem")
    assert SignedReceipt.read(signed.line) == signed
    plain = json.loads(receipt.text)
    wrong: list[object] = [{**plain, "kind": "reply"}, {**plain, "seq": True}, {**plain, "head": "x"}, [], {}, 3, None]
    wrong += [{**plain, "seq": -1}, {**plain, "rounds": -1}]  # which no ledger could contradict
    wrong += [
        {**plain, "market": 1},
        {**plain, "more": 1},
        {**plain, "accesses": [{"round": 1}]},
        {**plain, "accesses": 1},
    ]
    for change in ({"paid": 1.5}, {"reason": ""}, {"reply": "short"}, {"round": "1"}):
        wrong.append({**plain, "accesses": [{**plain["accesses"][0], **change}]})
    for value in wrong:
        assert Receipt.read(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()) is None
    assert Receipt.read(json.dumps(plain).encode()) is None, "another spelling of the same"
    assert Receipt.read(b"[" * 100_000) is None
    assert SignedReceipt.of(receipt.text.decode(), "ab", "x" * 16_385) is None, "too long for a certificate"
    assert SignedReceipt.of(receipt.text.decode(), "ab" * 1025, "pem") is None, "too long for a signature"


@given(st.binary(max_size=200))
def test_no_line_is_an_error(line: bytes) -> None:
    assert SignedReceipt.read(line) is None and SignedReply.read(line) is None and Receipt.read(line) is None


def a_receipt_message() -> ReceiptMessage:
    text = a_receipt().text.decode()
    header = {"protocol": 2, "kind": "receipt", "run": "0" * 32, "round": 3, "signature": "ab", "certificate": ""}
    return ReceiptMessage.model_validate({**header, "receipt": text})


def test_a_receipt_is_no_question_and_a_question_no_receipt() -> None:
    sent, asked = encode_request(a_receipt_message()), encode_request(a_request(), PARAMS)
    assert is_receipt(sent) and not is_receipt(asked) and not is_receipt(b"")
    assert decode_receipt(sent) == a_receipt_message()
    for read, data in ((decode_request, sent), (decode_receipt, asked)):
        with pytest.raises(MessageError, match=Fault.BAD_HEADER):
            read(data)
    with pytest.raises(MessageError, match=Fault.BAD_TENSOR):
        decode_receipt(sent + b"\0")


def test_who_says_which_question_it_answers_must_say_the_right_one() -> None:
    data = encode_reply(a_reply(question="a" * 64), PARAMS)
    assert decode_reply(data, a_request(), "bank1", PARAMS, "a" * 64).reply.question == "a" * 64
    with pytest.raises(MessageError, match=Fault.OTHER_QUESTION):
        decode_reply(data, a_request(), "bank1", PARAMS, "b" * 64)


def test_the_signature_is_under_all_that_counts() -> None:
    """A reply that is changed in any of its parts is another statement."""
    texts = set()

    def note(provider: str, text: bytes, signature: str) -> str:
        texts.add(text)
        return "the provider's certificate"

    changes: list[dict[str, object]] = [{}, {"status": "refused", "code": "task-not-allowed"}, {"question": "b" * 64}]
    for change in changes:
        reply = a_reply(**{"question": "a" * 64, "signature": "ab", **change})
        update = PARAMS if reply.status == "ok" else None
        decode_reply(encode_reply(reply, update), a_request(), "bank1", PARAMS, reply.question, note)
    decode_reply(
        encode_reply(a_reply(question="a" * 64, signature="ab"), PARAMS + 1),
        a_request(),
        "bank1",
        PARAMS,
        "a" * 64,
        note,
    )
    assert len(texts) == 4


@pytest.fixture(scope="module")
def bank1() -> tuple[Signer, str, str]:
    """A key, its certificate, and that of the authority."""
    authority_key, authority = new_authority("fraud.ca")
    key = new_key()
    return Signer(key), pem(Authority(authority_key, authority).issue("bank1", key.public_key())), pem(authority)


@pytest.mark.parametrize(
    ("said", "access", "why"),
    [
        (SAID, Settled(3, 0, 2, None, ""), None),
        (SAID, Settled(3, 0, None, Code("no-utility"), ""), None),
        (SAID, Settled(3, 0, None, Code("no-answer"), ""), "was answered, and the ledger has it as void"),
        (
            SAID,
            Settled(3, 0, None, Code.of("refused", why="task-not-allowed"), ""),
            "says 'ok', and the ledger has it as void",
        ),
        (replace(SAID, update=""), Settled(3, 0, 2, None, ""), "brings no update, and the ledger has it as paid"),
        (replace(SAID, status="refused", code="task-not-allowed", update=""), Settled(3, 0, 2, None, ""), "brings no"),
        (
            replace(SAID, status="refused", code="task-not-allowed", update=""),
            Settled(3, 0, None, Code.of("refused", why="task-not-allowed"), ""),
            None,
        ),
        (
            replace(SAID, status="error", code="computation-failed", update=""),
            Settled(3, 0, None, Code.of("provider-failed", why="computation-failed"), ""),
            None,
        ),
    ],
)
def test_what_a_reply_allows_a_ledger_to_say(
    bank1: tuple[Signer, str, str], said: ReplyStatement, access: Settled, why: str | None
) -> None:
    signer, certificate, authority = bank1
    reply = SignedReply(said, signer.sign(said.text))
    noise = SignedReply(replace(said, round=9), reply.signature)
    paid = Settled(3, 1, 2, None, "")
    for accesses in ([access], [access, paid], [paid, access]) if said == SAID else ([access],):
        found = check_replies({said.digest: accesses}, [noise, reply], {"bank1": ["no PEM", certificate]}, authority)
        assert found == [] if why is None else len(found) == 1 and why in found[0]
    (unsigned,) = check_replies({said.digest: [access]}, [reply], {}, authority)
    assert "is not signed by the provider's key" in unsigned


def post(round: int, provider: str, reply: object) -> Entry:
    return Entry(1, "post", round, 0, provider, 1, {"reply": reply})


def test_a_reply_is_named_for_its_own_question_alone(tmp_path: Path) -> None:
    evidence = RunEvidence(tmp_path, SAID.run)
    evidence.keep_replies([SignedReply(SAID, "ab")])
    assert evidence.why_replies_differ([post(3, "bank1", SAID.digest), post(3, "bank1", SAID.digest)]) is None
    again = evidence.why_replies_differ([post(3, "bank1", SAID.digest), post(4, "bank1", SAID.digest)])
    assert again is not None and "named already, to another question" in again
    for run, round, provider in (("1" * 32, 3, "bank1"), (SAID.run, 4, "bank1"), (SAID.run, 3, "bank2")):
        why = RunEvidence(tmp_path, run).why_replies_differ([post(round, provider, SAID.digest)])
        assert why is not None and f"is not one of {provider} in this run" in why
    os.truncate(tmp_path / "replies.jsonl", 2**42)  # an hour's reading, and nothing on the disk
    without_end = evidence.why_replies_differ([post(3, "bank1", SAID.digest)])
    assert without_end is not None and "lacks the reply of bank1" in without_end
    (tmp_path / "replies.jsonl").unlink()
    lacks = evidence.why_replies_differ([post(3, "bank1", SAID.digest)])
    assert lacks is not None and "lacks the reply of bank1 in round 3" in lacks


def test_a_renewed_certificate_stands_beside_the_old_one(tmp_path: Path) -> None:
    evidence = RunEvidence(tmp_path, SAID.run)
    for pems in ({"bank1": "old", "bank2": "other"}, {"bank1": "new"}, {"bank1": "old"}, {"bank1": "old"}):
        evidence.note_certificates("authority", pems)
    assert evidence.certificates() == {"bank1": ["old", "new"], "bank2": ["other"]}
    assert RunEvidence(tmp_path, SAID.run).authority() == "authority"
    evidence.note_receipts_sent({"bank1": 3})
    assert evidence.receipts_sent() == {"bank1": 3}
    for content in ("[]", "{", '{"providers": 1}', '{"providers": {"bank1": 1}}'):
        (tmp_path / "certificates.json").write_text(content)
        assert RunEvidence(tmp_path, SAID.run).certificates() == {}
    (tmp_path / "certificates.json").unlink()
    (tmp_path / "certificates.json").symlink_to(tmp_path / "receipts.json")
    assert RunEvidence(tmp_path, SAID.run).authority() == ""


@pytest.fixture(scope="module")
def at_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which nobody signs anything."""
    folder = tmp_path_factory.mktemp("home") / "run"
    Arbiter(*vector_market(budget=9), engine="loop", device="cpu").run(folder)
    return folder


def test_a_ledger_names_a_reply_by_its_hash(at_home: Path) -> None:
    """An entry with something else in its place does not hold, however well it is sealed."""
    entries = list(RunFolder(at_home).entries())
    for reply, holds in (("a" * 64, True), ("a", False), (None, False), ({}, False)):
        named = [entry._replace(body={"reply": reply}) if entry.kind == "post" else entry for entry in entries]
        found = audit_entries(reseal(named))
        assert found.ok is holds and found.replies == (9 if holds else 0)


def test_where_receipts_cannot_be_had_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "kit").mkdir()
    (tmp_path / "kit" / "receipts.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BazaarError, match="holds no receipts"):
        read_held(tmp_path / "kit", SAID.run, "")
    (tmp_path / "elsewhere").write_text("")
    with pytest.raises(BazaarError, match="is no plain file but a link"):
        read_held(tmp_path / "kit", SAID.run, "")
    (tmp_path / "large.jsonl").touch()
    os.truncate(tmp_path / "large.jsonl", 2**30)
    with pytest.raises(BazaarError, match="has more than 536,870,912 bytes"):
        read_held(tmp_path / "large.jsonl", SAID.run, "")
    (tmp_path / "hoard").mkdir()
    (tmp_path / "hoard" / "receipts.jsonl").touch()
    (tmp_path / "large.jsonl").rename(tmp_path / "hoard" / "answers.jsonl")
    with pytest.raises(BazaarError, match=r"answers\.jsonl has more than 536,870,912 bytes"):
        read_held(tmp_path / "hoard", SAID.run, "")
    with pytest.raises(UncheckableError, match="the run names no authority"):
        authority_for(None, "", [tmp_path / "kit"])


def test_without_cryptography_there_is_one_sentence(at_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(databazaar.federation, "disputes")
    monkeypatch.setitem(sys.modules, "databazaar.federation.disputes", None)
    assert CliRunner().invoke(app, ["audit", str(at_home)]).exit_code == 0, "nothing is signed here"
    looked = CliRunner().invoke(app, ["audit", str(at_home), "--receipts", "kit"])
    assert looked.exit_code == 3 and "cryptography is missing: pip install 'databazaar[federated]'" in looked.output
