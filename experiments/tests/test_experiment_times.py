"""What the runs record about their time, and the two targets that are judged by it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from databazaar_experiments import wall_times
from databazaar_experiments.compute import compute
from databazaar_experiments.parts import find
from databazaar_experiments.plan import ReproductionPlan
from databazaar_experiments.results import Results, gather
from databazaar_experiments.tables import wall_clock
from databazaar_experiments.verdicts import Verdict, mnist_time, whole_time
from databazaar_experiments.wall_times import FILE, WallTime
from small_runs import pretend, tiny_plan

PLAN = ReproductionPlan()
MNIST = ReproductionPlan(whats=("accuracy",), datasets=("mnist",), methods=("osmd",))
GPU, CPU = "NVIDIA H200", "x86_64 CPU, 2 cores"


def mnist(folder: Path, seconds: float, machine: str = GPU, jobs: int = 1, seeds: int = 10) -> Verdict:
    ((case, _),) = MNIST.cases()
    pretend(folder, case, [4.0, 3.0, 2.0, 1.0], seeds=seeds, machine=machine, seconds=seconds, jobs=jobs)
    verdict = mnist_time(gather(MNIST, folder))
    assert verdict is not None
    return verdict


@pytest.mark.parametrize(
    ("seconds", "machine", "jobs", "seeds", "word"),
    [
        (13.6, GPU, 1, 10, "holds"),
        (31.0, GPU, 1, 10, "does not hold"),
        (25.0, GPU, 6, 10, "holds"),  # alone it would only be faster
        (40.8, GPU, 6, 10, "not measured alone"),
        (40.8, GPU, 0, 10, "not measured alone"),
        (13.6, GPU, 1, 9, "not all computed"),
        (13.6, CPU, 1, 10, "not measured on a GPU"),
    ],
)
def test_mnist_in_thirty_seconds(
    tmp_path: Path, seconds: float, machine: str, jobs: int, seeds: int, word: str
) -> None:
    verdict = mnist(tmp_path, seconds, machine, jobs, seeds)
    assert verdict.word == word and f"{seconds} s on {machine}" in verdict.measured


def everything(folder: Path, machine: str = GPU, seconds: tuple[float, ...] = (500.0, 300.0)) -> Results:
    """All parts of the paper, computed by runs that took so long; each made some of them."""
    names = []
    for case, wanted in PLAN.cases():
        pretend(folder, case, [4.0, 3.0, 2.0, 1.0], seeds=wanted, machine=machine)
        names.append(f"{case.key}-seeds0-{wanted - 1}")
    for place, spent in enumerate(seconds):
        wall_times.append(folder, WallTime(machine, 8, spent, tuple(names[place :: len(seconds)])))
    return gather(PLAN, folder)


def said(results: Results) -> tuple[str, str]:
    verdict = whole_time(results)
    assert verdict is not None
    return verdict.word, verdict.measured


def test_the_whole_in_fifteen_minutes(tmp_path: Path) -> None:
    results = everything(tmp_path)
    assert said(results) == ("holds", "13.3 min in 2 runs")
    assert "Computing took 13.3 min by the wall clock, in 2 runs" in wall_clock(results)
    one = replace(results, wall_times=results.wall_times[:1])
    assert said(one) == ("not all timed", "8.3 min in 1 run")
    assert said(replace(results, wall_times=())) == ("not all timed", "–")
    long = replace(results, wall_times=(*results.wall_times, replace(results.wall_times[0], seconds=101.0)))
    assert said(long) == ("does not hold", "15.0 min in 3 runs")
    unrelated = WallTime(GPU, 1, 9000.0, ("another-part",))
    assert said(replace(results, wall_times=(*results.wall_times, unrelated))) == ("holds", "13.3 min in 2 runs")
    part = next(tmp_path.glob("runtime-*.npz"))
    part.unlink()
    assert said(gather(PLAN, tmp_path)) == ("not all computed", "13.3 min in 2 runs")


def test_a_cpu_decides_nothing_about_a_gpu(tmp_path: Path) -> None:
    assert said(everything(tmp_path, CPU, (100.0,))) == ("not measured on a GPU", "1.7 min in 1 run")


@pytest.mark.parametrize(
    "less", [{"seeds": 9}, {"datasets": ("mnist",)}, {"whats": ("mixture",)}, {"changes": {"momentum": "0"}}]
)
def test_less_than_all_is_not_judged_as_all(tmp_path: Path, less: dict[str, object]) -> None:
    assert whole_time(gather(replace(PLAN, **less), tmp_path)) is None  # type: ignore[arg-type]


@pytest.mark.process
def test_every_run_that_computes_leaves_a_line(tmp_path: Path) -> None:
    plan = tiny_plan(methods=("osmd",))
    compute(plan, tmp_path, device="cpu")
    compute(plan, tmp_path, device="cpu")  # nothing left to compute: no line
    compute(replace(plan, seeds=4), tmp_path, device="cpu", jobs=2)
    first, second = wall_times.read(tmp_path)
    assert (first.jobs, second.jobs) == (1, 2) and first.seconds > 0 and "CPU" in first.machine
    files = {path.stem for path in tmp_path.glob("*.npz")}
    assert set(first.parts) | set(second.parts) == files and not set(first.parts) & set(second.parts)
    ((case, _),) = plan.cases()
    alone, together = (find(tmp_path, case, range(n)) for n in (2, 4))
    assert together is not None and together.jobs == 2 and alone is not None


def test_records_and_parts_from_before_can_be_read(tmp_path: Path) -> None:
    assert wall_times.read(tmp_path) == ()
    (tmp_path / FILE).write_text('{"machine": "x", "jobs": 1, "seconds": 2.5, "parts": ["a"]}\n{"machine": "x", "jo')
    assert wall_times.read(tmp_path) == (WallTime("x", 1, 2.5, ("a",)),), "a line cut off by a crash is left out"
    ((case, _),) = MNIST.cases()
    pretend(tmp_path, case, [4.0, 3.0, 2.0, 1.0])
    (path,) = tmp_path.glob("*.npz")
    with np.load(path) as file:
        arrays = dict(file)
    about = json.loads(arrays["about"].tobytes())
    assert about.pop("jobs") == 1
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    np.savez_compressed(path, **arrays)
    found = find(tmp_path, case, range(10))
    assert found is not None and found.jobs == 0 and len(found.seeds) == 10
