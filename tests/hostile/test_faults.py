"""A disk that fails, and a process that dies, at any I/O call of a run: a sample of what `make faults` plays."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from databazaar.errors import LedgerError
from databazaar.ledger import sql
from databazaar.ledger.sql import SqlStore
from databazaar.runs.folder import RunFolder
from io_faults import FAULTS, Call, Fault, Stage

pytestmark = [pytest.mark.slow, pytest.mark.process]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    made = Stage(tmp_path_factory.mktemp("faults"), large=True)  # the small model's calls are among its own
    yield made
    made.close()


def sample(calls: list[Call]) -> list[tuple[Fault, Call]]:
    """A call of every kind, each with a fault that can hit it, and every fault; the same for the same run."""
    rng, ours = random.Random(12), [call for call in calls if call.path.startswith(("run", ".run"))]
    kinds = sorted({call.kind for call in ours}, key=lambda kind: "write" not in kind)
    faults = itertools.cycle(sorted(FAULTS, key=lambda fault: "halfway" not in fault.name))
    points = []
    for kind in kinds:
        fault = next(fault for fault in faults if any(call.kind == kind and fault.hits(call) for call in ours))
        points.append((fault, rng.choice([call for call in ours if call.kind == kind and fault.hits(call)])))
    large = [call for call in ours if "snapshot" in call.path and "write" in call.kind]
    points.append((next(fault for fault in FAULTS if "halfway" in fault.name), rng.choice(large)))
    rest = [fault for fault in FAULTS if fault not in {fault for fault, _ in points}]
    return [*points, *((fault, rng.choice([call for call in ours if fault.hits(call)])) for fault in rest)]


def test_a_run_comes_to_its_end_whatever_its_disk_does(stage: Stage) -> None:
    points = sample(stage.calls)
    assert {fault for fault, _ in points} == set(FAULTS) and len({call.kind for _, call in points}) >= 9
    wrong = {(fault.name, call): stage.why_not(fault, call) for fault, call in points}
    assert {point: why for point, why in wrong.items() if why is not None} == {}


def test_a_journal_that_cannot_be_removed_at_the_end_does_not_undo_what_was_sealed(stage: Stage) -> None:
    """SQLite is silent about it. The file that was left then rolled the ledger back under its seal."""
    last = [call for call in stage.calls if call.kind == "unlink" and call.path == "run/ledger.sqlite-journal"][-1]
    assert stage.why_not(next(fault for fault in FAULTS if fault.name == "I/O error, once"), last) is None


def test_a_run_that_died_while_it_was_sealed_can_be_read_and_is_resumed(stage: Stage) -> None:
    """With a journal beside it the file can only be read by who may write it: a copy is."""
    last = [call for call in stage.calls if call.kind == "unlink" and call.path == "run/ledger.sqlite-journal"][-1]
    stage.kill_at(last)
    assert (stage.run / "ledger.sqlite-journal").exists()
    assert RunFolder(stage.run).report().closed
    assert (stage.run / "ledger.sqlite-journal").exists(), "who reads leaves it as it is"
    assert stage.why_not(FAULTS[0], last) is None


def test_what_is_broken_in_a_run_is_seen(stage: Stage) -> None:
    """The judge of all this: a fault that never comes is not taken for one that was survived."""
    never = Call(10**6, "write", True, "run/nothing")
    assert "not killed" in str(stage.why_not(FAULTS[0], never))
    stage.whole["head"], head = "another", stage.whole["head"]
    assert "another outcome" in str(stage.why_not(FAULTS[3], never))
    stage.whole["head"] = head


def test_a_log_that_stays_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "_BESIDE", ("-stays",))
    monkeypatch.setattr(sql, "PATIENCE", 1)
    store = SqlStore.file(tmp_path / "ledger.sqlite", "a")
    (tmp_path / "ledger.sqlite-stays").touch()
    with pytest.raises(LedgerError, match=r"cannot be sealed .-stays stays.: see to the disk, then resume the run"):
        store.finish()
    (tmp_path / "ledger.sqlite-stays").unlink()
    store.finish()
