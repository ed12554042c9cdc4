"""An arbiter that puts its ledger back, writes it anew, or denies an answer: the receipts that it signed show it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from databazaar import Arbiter, BazaarError, Progress, Report, Uniform
from databazaar.cli.app import app
from databazaar.engines import Ask, Replies
from databazaar.engines.quarantine import SET_ASIDE
from databazaar.federation import acknowledging
from databazaar.federation.acknowledging import ReceiptSender
from databazaar.federation.disputes import UNANSWERED
from databazaar.federation.engine import FederatedEngine
from databazaar.federation.exchange import Failures
from databazaar.federation.exchange import Replies as Raw
from databazaar.federation.messages import decode_request, is_receipt
from databazaar.federation.pki import issue, new_authority, new_key, pem
from databazaar.federation.receipts import Receipt, ReceiptKeeper, Settled, SignedReceipt, contradictions, receipts_in
from databazaar.federation.signing import Signer
from databazaar.federation.transport import LocalTransport
from databazaar.federation.worker import ProviderWorker
from databazaar.ledger.chain import Entry
from databazaar.runs.evidence import RunEvidence
from databazaar.runs.folder import RunFolder
from markets import a_consumer, afar, examples, federated
from signed_parties import NAMES, Handler, SignedParties

EVERYBODY = Uniform(replacement=False)
ID = "ab" * 16


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SignedParties:
    return SignedParties(tmp_path_factory.mktemp("receipts"))


@pytest.fixture
def parties(made: SignedParties) -> Iterator[SignedParties]:
    yield made
    made.forget()


def play(parties: SignedParties, folder: Path, engine: FederatedEngine | None = None, **more: Any) -> Report:
    """Twelve rounds in which everybody is asked; receipts are due after ten of them, and at the close."""
    kept = RunFolder(folder) if folder.exists() else RunFolder.create(folder, {"id": ID})
    arbiter = Arbiter(a_consumer(), afar(NAMES), EVERYBODY, engine=engine or parties.engine(), seed=3)
    return arbiter.run(kept, **more)


def receipts_of(parties: SignedParties, name: str) -> list[Receipt]:
    found = list(receipts_in(parties.kits[name] / "receipts.jsonl"))
    return [signed.receipt for signed in found if signed is not None and signed.verifies(parties.keys.authority)]


def audit(folder: Path, *kits: Path, code: int, options: Sequence[str] = ()) -> str:
    given = [option for kit in kits for option in ("--receipts", str(kit))]
    result = CliRunner().invoke(app, ["audit", str(folder), *given, *options])
    assert result.exit_code == code, result.output
    return result.output


def kits(parties: SignedParties) -> list[Path]:
    return list(parties.kits.values())


def test_receipts_tell_all_that_was_settled_once(parties: SignedParties, tmp_path: Path) -> None:
    report = play(parties, tmp_path / "run")
    entries = {entry.seq: entry for entry in RunFolder(tmp_path / "run").entries()}
    for name in NAMES:
        got = receipts_of(parties, name)
        assert [receipt.rounds for receipt in got] == [10, 12]
        assert all(entries[receipt.seq].hash == receipt.head for receipt in got)
        assert got[-1].head == report.ledger_head
        told = [access for receipt in got for access in receipt.accesses]
        settled = [Settled.of(entry) for entry in entries.values() if entry.kind == "post" and entry.provider == name]
        assert told == settled and len(told) == 12 and all(access.reply for access in told)
    assert "6 receipts of the market agree with it" in audit(tmp_path / "run", *kits(parties), code=0)
    told = json.loads(audit(tmp_path / "run", kits(parties)[0] / "receipts.jsonl", code=0, options=["--json"]))
    assert told["ok"] and told["receipts"] == 2 and told["remarks"] == []
    copies = tmp_path / "copies.jsonl"
    copies.write_bytes(5 * (parties.kits["bank1"] / "receipts.jsonl").read_bytes())
    assert "; 2 receipts of the market agree" in audit(tmp_path / "run", copies, code=0), "each counts once"
    record = parties.kits["bank1"] / "answers.jsonl"
    lines = record.read_text().splitlines(keepends=True)
    record.write_text("".join(line for line in lines if json.loads(line)["round"] > 0))
    said = audit(tmp_path / "run", parties.kits["bank1"], code=0)
    assert "bank1 has no record of the reply that the ledger names in round 0" in said


def put_back(folder: Path, older: Path) -> None:
    """The hostile arbiter's ledger of before, with a summary and a model to match."""
    shutil.rmtree(folder)
    shutil.copytree(older, folder)


def test_a_ledger_that_is_put_back_is_found(parties: SignedParties, tmp_path: Path) -> None:
    """Without receipts nothing shows: the older ledger is as sound as it was."""
    folder, older = tmp_path / "run", tmp_path / "older"

    def stop(progress: Progress) -> None:
        if progress.round == 5:
            shutil.copytree(folder, older)

    play(parties, folder, tell=stop)
    put_back(folder, older)
    assert "ok: " in audit(folder, code=0)
    said = audit(folder, parties.kits["bank2"], code=1)
    assert "and the market's receipt names entry" in said and "an older one was put back" in said


def again(parties: SignedParties, handlers: dict[str, Handler]) -> FederatedEngine:
    """An engine of the arbiter's for a second history, of which providers are to know nothing."""
    forgetful: dict[str, Handler] = {
        name: ProviderWorker(name, examples(name), signer=parties.signers[name]) for name in NAMES
    }
    return federated(NAMES, LocalTransport({**forgetful, **handlers}), keys=parties.keys)


def test_a_ledger_that_is_written_anew_without_an_answer_is_found(parties: SignedParties, tmp_path: Path) -> None:
    """The arbiter plays the run once more under the same id, and has it that bank1 did not answer in round 3."""
    play(parties, tmp_path / "run")
    honest = ProviderWorker("bank1", examples("bank1"), signer=parties.signers["bank1"])

    def silent(payload: bytes) -> bytes:
        if not is_receipt(payload) and decode_request(payload).request.round == 3:
            raise RuntimeError
        return honest(payload)

    play(parties, tmp_path / "second", again(parties, {"bank1": silent}))
    put_back(tmp_path / "run", tmp_path / "second")
    assert "ok: " in audit(tmp_path / "run", code=0), "it is sound in itself"
    said = audit(tmp_path / "run", parties.kits["bank1"], code=1)
    assert "has another hash than the market's receipt says: this is another ledger" in said
    assert "the market's receipt for bank1 says paid 1 for the reply" in said
    assert "and the ledger says void (provider error) without a reply" in said
    said = audit(tmp_path / "run", parties.kits["bank2"], code=1)
    assert "this is another ledger" in said, "every other provider sees it too"


def test_a_ledger_that_is_written_anew_in_its_last_rounds_is_found(parties: SignedParties, tmp_path: Path) -> None:
    play(parties, tmp_path / "run")
    honest = ProviderWorker("bank1", examples("bank1"), signer=parties.signers["bank1"])

    def silent(payload: bytes) -> bytes:
        if not is_receipt(payload) and decode_request(payload).request.round == 11:
            raise RuntimeError
        return honest(payload)

    play(parties, tmp_path / "second", again(parties, {"bank1": silent}))
    put_back(tmp_path / "run", tmp_path / "second")
    assert "the same: the ledger was written anew in between" in audit(tmp_path / "run", *kits(parties), code=1)


class DenyingEngine(FederatedEngine):
    """An arbiter that takes bank1's answer of round 4 and records that there was none."""

    def query(self, ask: Ask) -> Replies:
        replies = super().query(ask)
        return replace(replies, failures={0: "no answer by the deadline"}) if ask.round == 4 else replies


class RefusingEngine(FederatedEngine):
    """One that records that bank1 has refused."""

    def query(self, ask: Ask) -> Replies:
        replies = super().query(ask)
        return replace(replies, failures={0: "refused: task not allowed"}) if ask.round == 4 else replies


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
            lost = {0: "no answer by the deadline"}
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
    own = pem(issue(authority_key, authority, "fraud.server", key.public_key(), ["localhost"]))
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
    keeper = ReceiptKeeper.of_kit(parties.kits["bank3"], "bank3", "fraud")
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
    certificate = pem(issue(authority_key, authority, "fraud.server", key.public_key(), ["localhost"]))
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
    keeper = ReceiptKeeper.of_kit(parties.kits["bank1"], "bank1", "fraud")
    first = receipts_of(parties, "bank1")[0]
    voided = replace(first.accesses[0], paid=None, reason="not connected", reply="")
    second = replace(first, head="1" * 64, accesses=(voided, *first.accesses[1:]))
    assert keeper.take(second.text.decode(), parties.keys.signer.sign(second.text), parties.keys.certificate)
    told = contradictions(receipts_of(parties, "bank1"))
    assert len(told) == 2 and "name different hashes for entry" in told[0] and "another void (not connected)" in told[1]
    earned = CliRunner().invoke(app, ["provider", "earnings", str(parties.kits["bank1"])]).output
    assert "two receipts name different hashes" in earned
    assert "two receipts name different hashes" in audit(tmp_path / "run", parties.kits["bank1"], code=1)


def test_a_statement_that_pays_otherwise_than_receipts_say_is_told(parties: SignedParties, tmp_path: Path) -> None:
    play(parties, tmp_path / "run")
    printed = CliRunner().invoke(app, ["statement", str(tmp_path / "run"), "--provider", "bank1", "--json"]).output
    statement, path = json.loads(printed), tmp_path / "bank1.json"
    for paid, says in ((1, "receipts acknowledge 12 of 12 rounds answered\n"), (0, "in round 7\n")):
        statement["items"][7]["paid"] = paid
        path.write_text(json.dumps(statement))
        options = ["provider", "earnings", str(parties.kits["bank1"]), "--statement", str(path)]
        assert says in CliRunner().invoke(app, options).output


def interrupted(parties: SignedParties, folder: Path, after: int) -> None:
    class EnoughError(Exception):
        pass

    def stop(progress: Progress) -> None:
        if progress.round == after:
            raise EnoughError

    with pytest.raises(EnoughError):
        play(parties, folder, tell=stop)


@pytest.mark.parametrize("after", [4, 11])
def test_a_resumed_run_sends_what_is_owed(parties: SignedParties, tmp_path: Path, after: int) -> None:
    interrupted(parties, tmp_path / "run", after)
    play(parties, tmp_path / "run")
    for name in NAMES:
        told = [access.round for receipt in receipts_of(parties, name) for access in receipt.accesses]
        assert told == list(range(12))
    assert "of the market agree with it" in audit(tmp_path / "run", *kits(parties), code=0)


def test_a_run_that_ended_before_it_could_say_so_says_so_later(parties: SignedParties, tmp_path: Path) -> None:
    """Killed after the close, before anybody had its last receipt."""
    engine, folder = parties.engine(), tmp_path / "run"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RunFolder, "finish", lambda *_, **__: 1 / 0)
        patched.setattr(acknowledging, "LAST_PATIENCE", -1.0)
        with pytest.raises(ZeroDivisionError):
            play(parties, folder, engine)
    assert [receipt.rounds for receipt in receipts_of(parties, "bank1")] == [10]
    report = play(parties, folder)
    assert [receipt.rounds for receipt in receipts_of(parties, "bank1")] == [10, 12]
    assert receipts_of(parties, "bank1")[-1].head == report.ledger_head


def test_whoever_is_away_gets_them_with_the_next(parties: SignedParties, tmp_path: Path) -> None:
    honest, tried = parties.worker("bank1"), list[int]()

    def away(payload: bytes) -> bytes:
        if is_receipt(payload):
            tried.append(1)
            if len(tried) == 1:
                raise RuntimeError
        return honest(payload)

    play(parties, tmp_path / "run", parties.engine({"bank1": away}))
    (late,) = receipts_of(parties, "bank1")
    assert [access.round for access in late.accesses] == list(range(12))


class Unreliable(LocalTransport):
    """A transport whose server goes away whenever a receipt is to be sent."""

    def request(self, names: Sequence[str], payload: bytes, timeout: float) -> tuple[Raw, Failures]:
        if is_receipt(payload):
            raise BazaarError("the server went away")
        return super().request(names, payload, timeout)


def test_a_receipt_that_cannot_be_sent_never_fails_a_run(parties: SignedParties, tmp_path: Path) -> None:
    engine = federated(NAMES, Unreliable(parties.workers()), keys=parties.keys)
    assert play(parties, tmp_path / "run", engine).spent == 36
    assert receipts_of(parties, "bank1") == []


class Mute(LocalTransport):
    """bank1 takes no receipt, and lets the clock run while it is asked."""

    def __init__(self, handlers: dict[str, Handler]) -> None:
        super().__init__(handlers)
        self.now, self.asked = 0.0, list[str]()

    def request(self, names: Sequence[str], payload: bytes, timeout: float) -> tuple[Raw, Failures]:
        self.asked += names
        if names == ["bank1"]:
            self.now += timeout
            return {}, {}
        return super().request(names, payload, timeout)


def entries_of(rounds: Sequence[int], draws: int = 1) -> list[Entry]:
    """What a ledger says of rounds in which bank1 and bank2 are paid."""
    found: list[Entry] = []
    for number in rounds:
        for draw in range(draws):
            for name in ("bank1", "bank2"):
                found.append(Entry(0, "post", number, draw, name, 1, {"reply": "a" * 64}))
        found.append(Entry(0, "round", number, None, None, None, {}))
    return found


def numbered(entries: Sequence[Entry], since: int) -> list[Entry]:
    return [replace(entry, seq=seq, hash=f"{seq:064x}") for seq, entry in enumerate(entries, since)]


class Crowded(Mute):
    """Everybody takes receipts, once it is its turn after others that are asked."""

    def request(self, names: Sequence[str], payload: bytes, timeout: float) -> tuple[Raw, Failures]:
        self.now += 3 * acknowledging.LAST_PATIENCE
        return LocalTransport.request(self, names, payload, timeout)


def test_at_the_close_nobody_goes_without_because_others_ask_too(parties: SignedParties, tmp_path: Path) -> None:
    transport = Crowded(parties.workers())
    sender = ReceiptSender(ID, parties.keys, transport, RunEvidence(tmp_path, ID), clock=lambda: transport.now)
    sender.witness(numbered([*entries_of(range(3)), Entry(0, "close", None, None, None, None, {})], 0))
    assert [len(receipts_of(parties, name)) for name in ("bank1", "bank2")] == [1, 1]


def test_whoever_takes_none_costs_less_and_less(parties: SignedParties, tmp_path: Path) -> None:
    transport = Mute(parties.workers())
    sender = ReceiptSender(ID, parties.keys, transport, RunEvidence(tmp_path, ID), clock=lambda: transport.now)
    seq = 0
    for turn in range(16):
        entries = numbered(entries_of(range(10 * turn, 10 * turn + 10)), seq)
        sender.witness(entries)
        seq += len(entries)
    assert (transport.asked.count("bank1"), transport.asked.count("bank2")) == (5, 16)
    assert transport.now == 5 * acknowledging.PATIENCE * acknowledging.SHARE
    sender.witness(numbered([Entry(0, "close", None, None, None, None, {})], seq))
    assert transport.asked[-2:] == ["bank2", "bank1"], "in the end all are tried once more"
    told = [access.round for receipt in receipts_of(parties, "bank2") for access in receipt.accesses]
    assert told == list(range(160))


def test_who_is_owed_much_gets_several(parties: SignedParties, tmp_path: Path) -> None:
    transport = LocalTransport(parties.workers())
    evidence = RunEvidence(tmp_path, ID)
    ReceiptSender(ID, parties.keys, transport, evidence).witness(numbered(entries_of(range(10), draws=250), 0))
    got = receipts_of(parties, "bank2")
    assert [len(receipt.accesses) for receipt in got] == [2000, 500] and [receipt.rounds for receipt in got] == [8, 10]
    assert len({(access.round, access.draw) for receipt in got for access in receipt.accesses}) == 2500
    assert evidence.receipts_sent() == dict.fromkeys(("bank1", "bank2"), got[-1].seq)


def test_a_provider_without_a_place_for_receipts_says_so(parties: SignedParties, tmp_path: Path) -> None:
    worker = ProviderWorker("bank1", examples("bank1"), signer=parties.signers["bank1"])
    transport = LocalTransport({"bank1": worker, "bank2": lambda payload: b"what?"})
    sender = ReceiptSender(ID, parties.keys, transport, RunEvidence(tmp_path, ID))
    sender.witness(numbered(entries_of(range(10)), 0))
    assert RunEvidence(tmp_path, ID).receipts_sent() == {}
    keeper = ReceiptKeeper.of_kit(parties.kits["bank1"], "bank1", "fraud")
    with keeper.path.open("wb") as file:
        file.truncate(2**30)
    receipt = Receipt("fraud", ID, "bank1", 1, "0" * 64, 1, ())
    assert not keeper.take(receipt.text.decode(), parties.keys.signer.sign(receipt.text), parties.keys.certificate)


def test_the_words_that_deny_an_answer_are_those_of_the_engines() -> None:
    assert SET_ASIDE in UNANSWERED


def heads(folder: Path) -> dict[int, str]:
    with sqlite3.connect(f"file:{folder / 'ledger.sqlite'}?mode=ro", uri=True) as database:
        found = dict(database.execute("SELECT seq, hash FROM bazaar_entries").fetchall())
    database.close()
    return found


def killed_at(parties: SignedParties, folder: Path, receipt: int, kept: bool) -> None:
    """Another process plays, and is killed when bank1 gets its receipt of this number: once it is kept, or before."""
    pid = os.fork()
    if pid == 0:
        honest, seen = parties.worker("bank1"), list[bytes]()

        def deadly(payload: bytes) -> bytes:
            seen.extend([payload] if is_receipt(payload) else [])
            if is_receipt(payload) and len(seen) == receipt:
                if kept:
                    honest(payload)
                os.kill(os.getpid(), signal.SIGKILL)
            return honest(payload)

        acknowledging.EVERY = 2
        play(parties, folder, parties.engine({"bank1": deadly}))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def test_no_receipt_names_a_head_that_a_crash_takes_away(parties: SignedParties, tmp_path: Path) -> None:
    folder, rounds = tmp_path / "run", list[int]()
    for receipt, kept in [(1, True), (2, False), (2, True), (3, True)]:
        killed_at(parties, folder, receipt, kept)
        known = heads(folder)
        got = [receipt for name in NAMES for receipt in receipts_of(parties, name)]
        assert got and all(known[receipt.seq] == receipt.head for receipt in got)
        rounds.append(max(receipt.rounds for receipt in got))
    assert rounds == sorted(rounds) and rounds[-1] > rounds[0]
    play(parties, folder)
    assert "of the market agree with it" in audit(folder, *kits(parties), code=0)
    assert not contradictions([receipt for name in NAMES for receipt in receipts_of(parties, name)])


WITHOUT = "import sys; sys.modules.update(dict.fromkeys({names!r})); from databazaar.cli import main; main()"


def bazaar_without(names: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT.format(names=names), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_an_audit_needs_cryptography_and_neither_torch_nor_flare(parties: SignedParties, tmp_path: Path) -> None:
    play(parties, tmp_path / "run")
    arguments = ["audit", str(tmp_path / "run"), "--receipts", str(parties.kits["bank1"])]
    done = bazaar_without(["torch", "nvflare", "pandas"], *arguments)
    assert done.returncode == 0 and "2 receipts of the market agree" in done.stdout, done.stderr
    done = bazaar_without(["cryptography"], *arguments)
    assert done.returncode == 3 and "pip install 'databazaar[federated]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
