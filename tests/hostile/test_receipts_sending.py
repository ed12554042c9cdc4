"""How receipts reach providers: after a crash, late, over a bad wire, to whoever takes none, at no run's cost."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from databazaar import BazaarError, Progress
from databazaar.federation import receipt_sender
from databazaar.federation.messages import is_receipt
from databazaar.federation.receipt_sender import ReceiptSender
from databazaar.federation.receipts import Receipt, ReceiptKeeper, contradictions
from databazaar.federation.transport import Failures, LocalTransport
from databazaar.federation.transport import Replies as Raw
from databazaar.federation.worker import ProviderWorker
from databazaar.ledger.chain import Entry
from databazaar.runs.folder import RunFolder
from databazaar.runs.notes import RunEvidence
from markets import examples, federated
from receipted_runs import ID, audit, heads, kits, play, receipts_of
from signed_parties import NAMES, Handler, SignedParties


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
        patched.setattr(receipt_sender, "LAST_PATIENCE", -1.0)
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
    return [entry._replace(seq=seq, hash=f"{seq:064x}") for seq, entry in enumerate(entries, since)]


class Crowded(Mute):
    """Everybody takes receipts, once it is its turn after others that are asked."""

    def request(self, names: Sequence[str], payload: bytes, timeout: float) -> tuple[Raw, Failures]:
        self.now += 3 * receipt_sender.LAST_PATIENCE
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
    assert transport.now == 5 * receipt_sender.PATIENCE * receipt_sender.SHARE
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
    keeper = ReceiptKeeper(parties.kits["bank1"], "bank1", "fraud")
    with keeper.path.open("wb") as file:
        file.truncate(2**30)
    receipt = Receipt("fraud", ID, "bank1", 1, "0" * 64, 1, ())
    assert not keeper.take(receipt.text.decode(), parties.keys.signer.sign(receipt.text), parties.keys.certificate)


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

        receipt_sender.EVERY = 2
        play(parties, folder, parties.engine({"bank1": deadly}))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


@pytest.mark.process
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
