"""What receipts prove and what they do not: an answer that is denied, a forged receipt, a kit that frames others."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from databazaar import BazaarError
from databazaar.cli.app import app
from databazaar.codes import QUARANTINED, Code
from databazaar.engines import Ask, Replies
from databazaar.federation.engine import FederatedEngine
from databazaar.federation.pki import Authority, new_authority, new_key, pem
from databazaar.federation.receipts import Receipt, ReceiptKeeper, SignedReceipt, contradictions, receipts_in
from databazaar.federation.signatures import Signer
from databazaar.federation.transport import UNANSWERED, LocalTransport
from markets import federated
from receipted_runs import ID, audit, play, receipts_of
from signed_parties import NAMES, SignedParties


class DenyingEngine(FederatedEngine):
    """An arbiter that takes bank1's answer of round 4 and records that there was none."""

    def query(self, ask: Ask) -> Replies:
        replies = super().query(ask)
        return replace(replies, failures={0: Code("no-answer")}) if ask.round == 4 else replies


class RefusingEngine(FederatedEngine):
    """One that records that bank1 has refused."""

    def query(self, ask: Ask) -> Replies:
        replies = super().query(ask)
        return replace(replies, failures={0: Code.of("refused", why="task-not-allowed")}) if ask.round == 4 else replies


@pytest.mark.parametrize(
    ("hostile", "says"),
    [
        (DenyingEngine, "of bank1 was answered, and the ledger has it as void: no answer by the deadline"),
        (RefusingEngine, "of bank1 says 'ok', and the ledger has it as void: refused: task not allowed"),
    ],
)
def test_an_answer_that_is_acknowledged_and_denied_is_found(
    parties: SignedParties, tmp_path: Path, hostile: type[FederatedEngine], says: str
) -> None:
    engine = parties.engine()
    engine.__class__ = hostile
    play(parties, tmp_path / "run", engine)
    assert says in audit(tmp_path / "run", code=1), "by the provider's signature alone"
    if hostile is DenyingEngine:
        said = audit(tmp_path / "run", parties.kits["bank1"], code=1)
        assert "it acknowledges an answer, and denies that there was one" in said


def test_an_answer_that_nobody_acknowledges_is_told_as_a_word(parties: SignedParties, tmp_path: Path) -> None:
    """No signature can prove that an answer arrived which the market never acknowledged; but it is seen at once."""
    engine = parties.engine()

    class Deaf(FederatedEngine):
        def query(self, ask: Ask) -> Replies:
            replies = super().query(ask)
            lost = {0: Code("no-answer")}
            return replace(replies, failures=lost, signed={}) if ask.round == 4 else replies

    engine.__class__ = Deaf
    play(parties, tmp_path / "run", engine)
    said = audit(tmp_path / "run", parties.kits["bank1"], code=0)
    assert "bank1 says that it answered in round 4, and the ledger names no reply of it there" in said
    earned = CliRunner().invoke(app, ["provider", "earnings", str(parties.kits["bank1"])]).output
    assert "receipts acknowledge 11 of 12 rounds answered; they know of no answer in round 4" in earned


def test_replies_that_another_key_has_signed_are_found(parties: SignedParties, tmp_path: Path) -> None:
    """The arbiter makes up an answer in bank1's name, and names it in its ledger."""
    play(parties, tmp_path / "run")
    path = tmp_path / "run" / "replies.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line["statement"]["provider"] == "bank1":
            line["signature"] = parties.signers["bank2"].sign(b"anything")
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    said = audit(tmp_path / "run", code=1)
    assert "is not signed by the provider's key as the market certified it (and 11 more)" in said
    (tmp_path / "run" / "certificates.json").unlink()
    assert "give the market's own certificate with --authority" in audit(tmp_path / "run", code=3)


def forged(parties: SignedParties, **changes: Any) -> list[SignedReceipt]:
    """Receipts as bank3 would like them to be."""
    signed = next(iter(receipts_in(parties.kits["bank3"] / "receipts.jsonl")))
    assert signed is not None
    wished = replace(signed.receipt, **changes)
    authority_key, authority = new_authority("fraud.ca")
    key = new_key()
    own = pem(Authority(authority_key, authority).issue("fraud.server", key.public_key(), ["localhost"]))
    client = (parties.kits["bank3"] / "startup" / "client.crt").read_text()
    return [
        replace(signed, receipt=wished),
        SignedReceipt(wished, Signer(key).sign(wished.text), own),
        SignedReceipt(wished, parties.signers["bank3"].sign(wished.text), client),
        SignedReceipt(replace(wished, market="bank3"), parties.signers["bank3"].sign(wished.text), client),
        SignedReceipt(wished, Signer(key).sign(wished.text), signed.certificate),
    ]


def test_a_forged_receipt_is_no_evidence(parties: SignedParties, tmp_path: Path) -> None:
    play(parties, tmp_path / "run")
    lies = forged(parties, head="0" * 64)
    path = tmp_path / "forged.jsonl"
    path.write_bytes(b"\n".join([*(lie.line for lie in lies), b"[]", b"{", b'{"receipt": "{}"}', b"\xff", b""]))
    assert "9 lines are not signed by the market's server, and no evidence" in audit(tmp_path / "run", path, code=3)
    said = audit(tmp_path / "run", path, parties.kits["bank1"], code=0)
    assert "2 receipts of the market agree" in said and "no evidence" in said
    keeper = ReceiptKeeper(parties.kits["bank3"], "bank3", "fraud")
    before = keeper.path.read_bytes()
    for lie in lies:
        assert not keeper.take(lie.receipt.text.decode(), lie.signature, lie.certificate)
    other = next(iter(receipts_in(parties.kits["bank1"] / "receipts.jsonl")))
    assert other is not None and not keeper.take(other.receipt.text.decode(), other.signature, other.certificate)
    assert keeper.path.read_bytes() == before


def test_who_the_authority_is_must_be_agreed(parties: SignedParties, tmp_path: Path) -> None:
    play(parties, tmp_path / "run")
    _, other = new_authority("fraud.ca")
    stranger = tmp_path / "kit"
    shutil.copytree(parties.kits["bank1"], stranger)
    (stranger / "startup" / "rootCA.pem").write_text(pem(other))
    assert "different authorities: give the market's own" in audit(tmp_path / "run", stranger, code=3)
    authority = ["--authority", str(parties.market / "ca" / "ca.pem")]
    assert "2 receipts of the market agree" in audit(tmp_path / "run", stranger, code=0, options=authority)
    with pytest.raises(BazaarError, match="holds no receipts: give a provider's kit"):
        CliRunner().invoke(app, ["audit", str(tmp_path / "run"), "--receipts", "none"], catch_exceptions=False)
    with pytest.raises(BazaarError, match="cannot be read as a certificate"):
        wrong = ["audit", str(tmp_path / "run"), "--authority", str(tmp_path)]
        CliRunner().invoke(app, wrong, catch_exceptions=False)
    (stranger / "startup" / "rootCA.pem").unlink()
    (stranger / "receipts.jsonl").write_text("")
    assert f"none of its receipts is of the run {ID}" in audit(tmp_path / "run", stranger, code=3)


def test_a_kit_with_an_authority_of_its_own_frames_nobody(parties: SignedParties, tmp_path: Path) -> None:
    """A run that has no signed reply names no authority. The accuser's alone is not enough."""
    play(parties, tmp_path / "run", federated(NAMES, LocalTransport(parties.workers())))
    assert not (tmp_path / "run" / "certificates.json").exists()
    authority_key, authority = new_authority("fraud.ca")
    key, kit = new_key(), tmp_path / "kit"
    certificate = pem(Authority(authority_key, authority).issue("fraud.server", key.public_key(), ["localhost"]))
    lie = Receipt("fraud", ID, "bank3", 10**6, "0" * 64, 10**5, ())
    (kit / "startup").mkdir(parents=True)
    (kit / "startup" / "rootCA.pem").write_text(pem(authority))
    (kit / "receipts.jsonl").write_bytes(SignedReceipt(lie, Signer(key).sign(lie.text), certificate).line)
    assert "give the market's own certificate with --authority" in audit(tmp_path / "run", kit, code=3)
    given = ["--authority", str(parties.market / "ca" / "ca.pem")]
    assert "1 line is not signed by the market's server" in audit(tmp_path / "run", kit, code=3, options=given)


@pytest.mark.parametrize(
    "lie", [{"round": "x"}, {"round": None}, {"reply": []}, {"status": {}}, {"epsilon": "much"}, {"kind": [], "run": 1}]
)
def test_a_kit_whose_record_is_of_the_wrong_kind_frames_nobody(
    parties: SignedParties, tmp_path: Path, lie: dict[str, object]
) -> None:
    """An honest ledger stays honest, whatever a provider writes down about itself."""
    play(parties, tmp_path / "run")
    record = parties.kits["bank1"] / "answers.jsonl"
    line = json.loads(record.read_text().splitlines()[-1])
    with record.open("a") as file:
        file.write(json.dumps({**line, **lie}) + "\n")
    assert "2 receipts of the market agree" in audit(tmp_path / "run", parties.kits["bank1"], code=0)
    assert CliRunner().invoke(app, ["provider", "earnings", str(parties.kits["bank1"])]).exit_code == 0


def test_receipts_that_contradict_each_other_are_told(parties: SignedParties, tmp_path: Path) -> None:
    play(parties, tmp_path / "run")
    keeper = ReceiptKeeper(parties.kits["bank1"], "bank1", "fraud")
    first = receipts_of(parties, "bank1")[0]
    voided = replace(first.accesses[0], paid=None, reason=Code("not-connected"), reply="")
    second = replace(first, head="1" * 64, accesses=(voided, *first.accesses[1:]))
    assert keeper.take(second.text.decode(), parties.keys.signer.sign(second.text), parties.keys.certificate)
    told = contradictions(receipts_of(parties, "bank1"))
    assert len(told) == 2 and "name different hashes for entry" in told[0] and "another void (not connected)" in told[1]
    earned = CliRunner().invoke(app, ["provider", "earnings", str(parties.kits["bank1"])]).output
    assert "two receipts name different hashes" in earned
    assert "two receipts name different hashes" in audit(tmp_path / "run", parties.kits["bank1"], code=1)


def test_a_statement_that_pays_otherwise_than_receipts_say_is_told(parties: SignedParties, tmp_path: Path) -> None:
    play(parties, tmp_path / "run")
    printed = (
        CliRunner().invoke(app, ["show", str(tmp_path / "run"), "statement", "--provider", "bank1", "--json"]).output
    )
    statement, path = json.loads(printed), tmp_path / "bank1.json"
    for paid, says in ((1, "receipts acknowledge 12 of 12 rounds answered\n"), (0, "in round 7\n")):
        statement["items"][7]["paid"] = paid
        path.write_text(json.dumps(statement))
        options = ["provider", "earnings", str(parties.kits["bank1"]), "--statement", str(path)]
        assert says in CliRunner().invoke(app, options).output


def test_the_codes_that_deny_an_answer_are_those_of_the_engines() -> None:
    assert QUARANTINED.name in UNANSWERED
