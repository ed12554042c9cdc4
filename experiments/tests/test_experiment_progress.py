"""How far an evaluation is: the forecast on a clock of its own, and what is heard while parts run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from databazaar_experiments import workers
from databazaar_experiments.compute import Plan, compute
from databazaar_experiments.forecast import QUIET, Forecast, Work
from databazaar_experiments.watch import News
from databazaar_experiments.workers import jobs_for
from small_runs import TINY, tiny_plan


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def works(*kinds: str, cost: float = 1.0, alone: bool = False) -> list[Work]:
    return [Work((kind,), cost, alone) for kind in kinds]


def test_nothing_is_said_before_anything_is_known(clock: Clock) -> None:
    forecast = Forecast(works("slow", "fast"), clock=clock)
    clock.now = QUIET - 1
    forecast.finished(0, 1.0)
    assert np.isnan(forecast.seconds_left()), "too early"
    other = Forecast(works("slow", "fast"), clock=clock)
    other.tell(0, 0.0)
    clock.now += 100 * QUIET
    assert np.isnan(other.seconds_left()) and other.share() == 0, "nothing was heard but that it runs"


def test_each_kind_has_its_pace(clock: Clock) -> None:
    forecast = Forecast(works("slow", "slow", "fast", "fast"), clock=clock)
    clock.now = 10.0
    forecast.finished(0, 10.0)
    assert forecast.seconds_left() == pytest.approx(30.0), "a kind that was not met goes at the pace of the others"
    assert forecast.share() == pytest.approx(0.25)
    clock.now = 11.0
    forecast.finished(2, 1.0)
    assert forecast.seconds_left() == pytest.approx(11.0) and forecast.share() == pytest.approx(0.5)
    clock.now = 21.0
    forecast.finished(1, 10.0)
    assert forecast.seconds_left() == pytest.approx(1.0)
    forecast.finished(3, 1.0)
    assert forecast.seconds_left() == 0 and forecast.share() == 1


def test_a_kind_that_was_not_met_goes_like_its_nearest_relative(clock: Clock) -> None:
    kinds = [("cnn", "osmd"), ("mlp", "osmd"), ("cnn", "uniform")]
    forecast = Forecast([Work(kind, 1.0) for kind in kinds], clock=clock)
    clock.now = 110.0
    forecast.finished(0, 100.0)
    forecast.finished(1, 10.0)
    assert forecast.seconds_left() == pytest.approx(100.0)


def test_a_running_chore_counts_by_its_share(clock: Clock) -> None:
    forecast = Forecast(works("a", "a"), clock=clock)
    forecast.tell(0, 0.0)
    clock.now = 20.0  # it loads its data, which is no pace
    forecast.tell(0, 0.01)
    clock.now = 29.9
    forecast.tell(0, 0.10)
    assert forecast.seconds_left() == pytest.approx(99.0 + 110.0)
    clock.now = 64.9
    assert forecast.seconds_left() == pytest.approx(99.0 + 110.0 - 35.0), "time passes between two shares"
    clock.now = 500.0
    assert forecast.seconds_left() > 110.0, "late for its next share it is not as good as done"


def test_a_chore_that_tells_nothing_goes_by_its_kind(clock: Clock) -> None:
    forecast = Forecast(works("a", "a"), clock=clock)
    clock.now = 40.0
    forecast.finished(0, 40.0)
    forecast.tell(1, 0.0)
    clock.now = 50.0
    assert forecast.seconds_left() == pytest.approx(30.0) and forecast.share() == pytest.approx(50 / 80)


def test_workers_share_what_is_free_and_what_is_alone_waits(clock: Clock) -> None:
    forecast = Forecast([*works(*"aaaaa"), *works("a", "a", alone=True)], workers=2, clock=clock)
    clock.now = 10.0
    forecast.finished(0, 10.0)
    assert forecast.seconds_left() == pytest.approx(4 * 10 / 2 + 2 * 10)
    for place in (1, 2, 3):
        forecast.finished(place, 10.0)
    assert forecast.seconds_left() == pytest.approx(10 + 2 * 10), "one chore is not faster for two workers"


def test_the_share_never_goes_back(clock: Clock) -> None:
    forecast = Forecast(works("a", "b", "b"), clock=clock)
    clock.now = 10.0
    forecast.finished(0, 10.0)
    before = forecast.share()
    forecast.tell(1, 0.0)
    clock.now = 1000.0
    forecast.tell(1, 0.1)
    assert forecast.seconds_left() > 9000 and forecast.share() == pytest.approx(max(before, 1000 / 20_000))


LONG = {**TINY, "images.rounds": "60"}


@pytest.mark.parametrize("jobs", [1, 2])
def test_progress_is_heard_within_a_part(tmp_path: Path, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("databazaar_experiments.watch.EVERY", 0.02)
    monkeypatch.setattr("databazaar_experiments.forecast.QUIET", 0.0)
    heard: list[News] = []
    plan = Plan(("accuracy",), ("synthetic",), 2, 2, "quick", ("osmd",), LONG)
    compute(plan, tmp_path, device="cpu", jobs=jobs, tell=heard.append)
    inside = [news for news in heard if news.finished is None and 0 < news.share < 1]
    assert len({round(news.share, 3) for news in inside if news.done == 0}) > 5, "it moved before any part was done"
    assert 1 <= max(len(news.running) for news in heard) <= jobs
    assert [news.share for news in heard] == sorted(news.share for news in heard)
    last = heard[-1]
    assert (last.done, last.count, last.share, last.left) == (2, 2, 1.0, 0.0)
    assert sum(news.finished is not None for news in heard) == 2


def test_a_listener_that_fails_ends_the_run_and_keeps_what_is_done(tmp_path: Path) -> None:
    def tell(news: News) -> None:
        if news.finished is not None:
            raise RuntimeError("no more room on the screen")

    with pytest.raises(RuntimeError, match="no more room"):
        compute(tiny_plan(methods=("osmd",)), tmp_path, device="cpu", tell=tell)
    assert len(list(tmp_path.glob("*.npz"))) == 1


def test_how_many_jobs_where_nobody_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, jobs in ((1, 1), (2, 1), (6, 3), (16, 8), (64, 8)):
        monkeypatch.setattr(workers, "cores", lambda cores=cores: cores)
        assert (jobs_for("cuda"), jobs_for("cuda:0"), jobs_for("cpu")) == (jobs, jobs, 1)


def test_computing_needs_torch_and_numpy_alone() -> None:
    """What a bare GPU machine does not have is not imported."""
    code = (
        "import sys, databazaar_experiments.compute;"
        "print([name for name in ('pandas', 'matplotlib', 'rich', 'typer', 'sqlalchemy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
