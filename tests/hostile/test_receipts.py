"""An arbiter that puts its ledger back or writes it anew: the receipts that it signed show it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from databazaar import Progress
from databazaar.federation.engine import FederatedEngine
from databazaar.federation.messages import decode_request, is_receipt
from databazaar.federation.receipts import Settled
from databazaar.federation.transport import LocalTransport
from databazaar.federation.worker import ProviderWorker
from databazaar.runs.folder import RunFolder
from markets import examples, federated
from receipted_runs import audit, kits, play, put_back, receipts_of
from signed_parties import NAMES, Handler, SignedParties


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


def again(parties: SignedParties, silent_in: int) -> FederatedEngine:
    """An engine of the arbiter's for a second history, of which providers are to know nothing. In one round bank1 does
    not answer there."""
    forgetful: dict[str, Handler] = {
        name: ProviderWorker(name, examples(name), signer=parties.signers[name]) for name in NAMES
    }

    def silent(payload: bytes) -> bytes:
        if not is_receipt(payload) and decode_request(payload)[0].round == silent_in:
            raise RuntimeError
        return forgetful["bank1"](payload)

    return federated(NAMES, LocalTransport({**forgetful, "bank1": silent}), keys=parties.keys)


def test_a_ledger_that_is_written_anew_without_an_answer_is_found(parties: SignedParties, tmp_path: Path) -> None:
    """The arbiter plays the run once more under the same id, and has it that bank1 did not answer in round 3."""
    play(parties, tmp_path / "run")
    play(parties, tmp_path / "second", again(parties, silent_in=3))
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
    play(parties, tmp_path / "second", again(parties, silent_in=11))
    put_back(tmp_path / "run", tmp_path / "second")
    assert "the same: the ledger was written anew in between" in audit(tmp_path / "run", *kits(parties), code=1)


WITHOUT = "import sys; sys.modules.update(dict.fromkeys({names!r})); from databazaar.cli import main; main()"


def bazaar_without(names: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT.format(names=names), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.process
def test_an_audit_needs_cryptography_and_neither_torch_nor_grpc(parties: SignedParties, tmp_path: Path) -> None:
    play(parties, tmp_path / "run")
    arguments = ["audit", str(tmp_path / "run"), "--receipts", str(parties.kits["bank1"])]
    done = bazaar_without(["torch", "grpc", "pandas"], *arguments)
    assert done.returncode == 0 and "2 receipts of the market agree" in done.stdout, done.stderr
    done = bazaar_without(["cryptography"], *arguments)
    assert done.returncode == 3 and "pip install 'databazaar[federated]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
