"""How far an evaluation is: what a listener is given while parts run, and the bar that is drawn from it."""

from __future__ import annotations

import subprocess
import sys
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import pytest

from databazaar_experiments import workers
from databazaar_experiments.compute import SEEDS_A_PART, compute, missing, rough_sizes
from databazaar_experiments.plan import ReproductionPlan
from databazaar_experiments.progress import ComputeProgress, Meter, new_shares
from databazaar_experiments.workers import jobs_for
from small_runs import SETS, TINY, tiny_plan

pytestmark = [pytest.mark.slow, pytest.mark.process]

LONG = {**TINY, "images.rounds": "60"}


@pytest.mark.parametrize("jobs", [1, 2])
def test_parts_count_by_their_size(tmp_path: Path, jobs: int) -> None:
    parts = missing(tiny_plan(methods=("osmd",), seeds=3), tmp_path, 1)
    seen: list[ComputeProgress] = []
    meter = Meter(parts, [1.0, 2.0, 5.0], new_shares(3, jobs), seen.append)
    meter.report()
    assert (seen[-1].share, seen[-1].running) == (0.0, ()), "nothing has begun"
    meter.advance(1, 0.0)
    assert (seen[-1].share, seen[-1].running) == (0.0, (parts[1],)), "it has begun, and no more is known"
    meter.advance(1, 0.5)
    meter.advance(2, 0.2)
    assert seen[-1].share == pytest.approx((2.0 * 0.5 + 5.0 * 0.2) / 8.0) and seen[-1].running == tuple(parts[1:])
    meter.finish(1, 4.0)
    assert seen[-1].share == pytest.approx((2.0 + 5.0 * 0.2) / 8.0)
    assert (seen[-1].done, seen[-1].running, seen[-1].finished, seen[-1].seconds) == (1, (parts[2],), parts[1], 4.0)
    meter.finish(2, 1.0)
    meter.finish(0, 1.0)
    assert (seen[-1].share, seen[-1].done, seen[-1].count, seen[-1].running) == (1.0, 3, 3, ())


def test_no_experiment_fills_the_bar_alone(tmp_path: Path) -> None:
    """With eight processes on a GPU, each of the three took between a quarter and two fifths of the time."""
    parts = missing(ReproductionPlan(), tmp_path, SEEDS_A_PART)
    sizes = dict.fromkeys(("images", "mixture", "runtime"), 0.0)
    for part, size in zip(parts, rough_sizes(parts, True, 8), strict=True):
        sizes[part.case.experiment] += size
    assert all(0.1 < size / sum(sizes.values()) < 0.6 for size in sizes.values()), sizes


@pytest.mark.parametrize("jobs", [1, 2])
def test_progress_is_seen_within_a_part(tmp_path: Path, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "REPORT_EVERY", 0.02)
    forked = SimpleNamespace(get_context=lambda kind: get_context("forkserver"))
    monkeypatch.setattr(workers, "multiprocessing", forked)
    seen: list[ComputeProgress] = []
    plan = ReproductionPlan(("accuracy",), ("synthetic",), 2, 2, "quick", ("osmd",), LONG)
    compute(plan, tmp_path, device="cpu", jobs=jobs, listener=seen.append)
    inside = [progress for progress in seen if progress.finished is None and 0 < progress.share < 1]
    assert len({round(progress.share, 3) for progress in inside if progress.done == 0}) > 5, "before any part was done"
    assert 1 <= max(len(progress.running) for progress in seen) <= jobs
    assert [progress.share for progress in seen] == sorted(progress.share for progress in seen)
    last = seen[-1]
    assert (last.done, last.count, last.share) == (2, 2, 1.0)
    assert sum(progress.finished is not None for progress in seen) == 2


def test_a_listener_that_fails_ends_the_run_and_keeps_what_is_done(tmp_path: Path) -> None:
    def fail(progress: ComputeProgress) -> None:
        if progress.finished is not None:
            raise RuntimeError("no more room on the screen")

    with pytest.raises(RuntimeError, match="no more room"):
        compute(tiny_plan(methods=("osmd",)), tmp_path, device="cpu", listener=fail)
    assert len(list(tmp_path.glob("*.npz"))) == 1


def test_how_many_jobs_where_nobody_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, jobs in ((1, 1), (2, 1), (6, 4), (16, 12), (64, 12)):
        monkeypatch.setattr(workers, "cores", lambda cores=cores: cores)
        assert (jobs_for("cuda"), jobs_for("cuda:0"), jobs_for("cpu")) == (jobs, jobs, 1)


BARE = """
import sys
for name in ("pandas", "pyarrow", "matplotlib", "rich", "typer", "sqlalchemy", "pydantic", "jinja2", "sklearn"):
    sys.modules[name] = None  # importing it fails, as where it is not installed
from databazaar_experiments.compute import main
main(sys.argv[1:])
"""


def test_computing_needs_torch_and_numpy_alone(tmp_path: Path) -> None:
    """The whole computation where everything else that the package can use is missing."""
    arguments = ["--dataset", "synthetic", "--protocol", "quick", "--seeds", "1", "--mixture-seeds", "1", *SETS]
    command = [sys.executable, "-c", BARE, *arguments, "--device", "cpu", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("*.npz"))) == 4 + 4 + 2 * 4, "the images, the mixture, and two sizes of market"
    assert "16/16 " in done.stdout and "100 % of the work" in done.stdout
