"""What rows have brought is kept beside the run: it changes nothing, and a kill loses nothing of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from databazaar import Arbiter, BazaarError, Consumer, Provider
from databazaar.learners import Averaging, Boosting, InRun, Learner, Newton
from databazaar.ledger import Entry, Snapshot
from databazaar.ledger.sql import SqlStore
from databazaar.runs.folder import RunFolder
from databazaar.runs.notes import ROWS
from small_markets import blobs

SIZES = (50, 60, 70, 80)
LEARNERS = (("logistic", InRun(rows=25)), ("trees", Boosting(rows=30, trees=2)), ("logistic", Newton(rows=30)))


class PowerCutError(Exception):
    """Stands in for a kill: whatever was not committed is gone."""


def arbiter(model: str, learner: Learner, values_rows: bool = True) -> Arbiter:
    rng = np.random.default_rng(0)
    providers = [Provider(f"p{i}", blobs(rng, size, flip=0.1 * i)) for i, size in enumerate(SIZES)]
    consumer = Consumer(model, 18, blobs(rng, 60), "negative-loss", per_round=3)
    return Arbiter(consumer, providers, learner=learner, device="cpu", values_rows=values_rows)


@pytest.mark.parametrize(("model", "learner"), LEARNERS, ids=lambda one: getattr(one, "kind", one))
def test_values_change_nothing_and_are_of_the_rows_that_were_bought(model: str, learner: Learner) -> None:
    valued, plain = arbiter(model, learner), arbiter(model, learner, values_rows=False)
    report, other = valued.run(), plain.run()
    assert report.ledger_head == other.ledger_head and plain.row_values == {}
    drawn: dict[str, dict[int, float]] = {}
    for number, one in enumerate(report.rounds):
        for access in one.accesses:
            drawn.setdefault(f"p{access.provider}", {})[number] = access.gain or 0.0
    assert drawn.keys() == valued.row_values.keys()
    for name, gains in drawn.items():
        values = valued.row_values[name]
        assert values.times.sum() == len(gains) * learner.rows  # type: ignore[operator]
        size = np.abs(values.brought).sum()
        assert values.brought.sum() == pytest.approx(sum(gains.values()), abs=0.05 * size)
        assert len(values.fit) <= SIZES[int(name[1:])] and values.fit.any()


@pytest.mark.parametrize("at", range(1, 9))
@pytest.mark.parametrize("after", [False, True])
def test_a_run_that_is_killed_keeps_the_values(
    at: int, after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = 0

    class Failing(SqlStore):
        def append(self, entries: Sequence[Entry], snapshot: Snapshot | None) -> None:
            nonlocal seen
            seen += 1
            if seen == at and not after:
                raise PowerCutError
            super().append(entries, snapshot)
            if seen == at:
                raise PowerCutError

    model, learner = LEARNERS[at % 3]
    whole = arbiter(model, learner)
    whole.run(tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr("databazaar.runs.folder.SqlStore", Failing)
        with pytest.raises(PowerCutError):
            arbiter(model, learner).run(tmp_path / "killed")
    begun = at > 3 or (at == 3 and after)  # from the first round on the state says itself whether rows are valued
    resumed = arbiter(model, learner, values_rows=not begun)
    assert resumed.run(tmp_path / "killed").ledger_head == RunFolder(tmp_path / "whole").summary()["ledger_head"]
    assert (tmp_path / "killed" / ROWS).read_bytes() == (tmp_path / "whole" / ROWS).read_bytes()
    for name, values in whole.row_values.items():
        assert np.array_equal(values.sums, resumed.row_values[name].sums)


def test_a_run_killed_before_its_summary_still_has_them(tmp_path: Path) -> None:
    model, learner = LEARNERS[1]
    path, whole = tmp_path / "run", arbiter(model, learner)
    whole.run(path)
    (path / "summary.json").unlink()
    again = arbiter(model, learner)
    again.run(path)
    assert again.row_values.keys() == whole.row_values.keys() and RunFolder(path).row_sums()


def test_a_file_that_is_none_of_ours_says_nothing(tmp_path: Path) -> None:
    model, learner = LEARNERS[1]
    path = tmp_path / "run"
    arbiter(model, learner).run(path)
    (path / ROWS).write_bytes(b"something else")
    assert RunFolder(path).row_sums() is None


def test_updates_have_no_rows() -> None:
    consumer = Consumer("logistic", 10, blobs(np.random.default_rng(0), 40), per_round=1)
    providers = [Provider("p0", blobs(np.random.default_rng(1), 40))]
    with pytest.raises(BazaarError, match="values_rows needs a learner that trains on rows"):
        Arbiter(consumer, providers, learner=Averaging(), values_rows=True)
