"""Nothing is computed twice, and an evaluation that is killed goes on where it stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from databazaar.errors import BazaarError
from databazaar_experiments import wall_times, workers
from databazaar_experiments.compute import compute, missing
from databazaar_experiments.parts import find
from databazaar_experiments.plan import ReproductionPlan
from databazaar_experiments.progress import ComputeProgress
from processes import Forked
from small_runs import SETS, TINY, tiny_plan


def computed(plan: ReproductionPlan, folder: Path) -> list[str]:
    methods: list[str] = []

    def note(progress: ComputeProgress) -> None:
        if progress.finished is not None:
            methods.append(progress.finished.case.method)

    compute(plan, folder, device="cpu", listener=note)
    return methods


def test_finished_parts_are_not_computed_again(tmp_path: Path) -> None:
    plan = tiny_plan(methods=("osmd", "uniform"))
    assert len(computed(plan, tmp_path)) == 4
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.npz")}
    assert computed(plan, tmp_path) == []
    assert computed(replace(plan, seeds=3), tmp_path) == ["uniform", "osmd"]
    assert all(path.stat().st_mtime_ns == then for path, then in before.items())
    other = replace(plan, changes={**TINY, "images.momentum": "0.9"})
    assert len(missing(other, tmp_path, 1)) == 4, "another market is another part"


def test_a_gpu_takes_more_seeds_of_the_mixture_at_a_time(tmp_path: Path) -> None:
    plan = tiny_plan("revenue", "mixture", seeds=30, methods=("osmd",))
    sizes = {"images": [10, 10, 10], "mixture": [25, 5]}
    for experiment, expected in sizes.items():
        parts = [part for part in missing(plan, tmp_path, 10) if part.case.experiment == experiment]
        assert sorted((len(part.seeds) for part in parts), reverse=True) == expected
        assert {seed for part in parts for seed in part.seeds} == set(range(30))
    assert all(len(part.seeds) == 1 for part in missing(plan, tmp_path, 1))


def test_an_interruption_keeps_what_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, begun, compute_part = tiny_plan(methods=("osmd",), seeds=3), [0], workers.compute_part

    def interrupted(*args: object) -> object:
        begun[0] += 1
        if begun[0] == 3:
            raise KeyboardInterrupt
        return compute_part(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(workers, "compute_part", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compute(plan, tmp_path, device="cpu")
    assert [part.seeds for part in missing(plan, tmp_path, 1)] == [(2,)]
    (run,) = wall_times.read(tmp_path)
    assert len(run.parts) == 2 and run.seconds > 0, "the time of an interrupted run counts too"


@pytest.mark.process
def test_a_killed_process_leaves_whole_parts_and_the_rest_is_computed(tmp_path: Path) -> None:
    plan = tiny_plan("revenue", seeds=6, methods=("osmd",))
    arguments = ["--what", "revenue", "--dataset", "synthetic", "--protocol", "quick", "--methods", "osmd"]
    command = [sys.executable, "-m", "databazaar_experiments.compute", *arguments, "--seeds", "6", *SETS]
    killed = tmp_path / "killed"
    with Forked(
        [*command, "--device", "cpu", "--out", str(killed)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stdout.readline().startswith("1/6 "), "a part is finished"
        process.send_signal(signal.SIGKILL)
    left = len(missing(plan, killed, 1))
    assert left < 6
    assert len(computed(plan, killed)) == left
    compute(plan, tmp_path / "whole", device="cpu")
    (case, count), *_ = plan.cases()
    one, other = (find(folder, case, range(count)) for folder in (killed, tmp_path / "whole"))
    assert one is not None and other is not None and one.seeds == other.seeds == list(range(6))
    assert np.array_equal(one.pay, other.pay) and np.array_equal(one.curve, other.curve)


def test_a_part_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    plan = tiny_plan(methods=("osmd",), seeds=1)
    compute(plan, tmp_path, device="cpu")
    (path,) = tmp_path.glob("*.npz")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(BazaarError, match="remove it, it is computed again"):
        missing(plan, tmp_path, 1)


def test_something_of_everything_comes_first(tmp_path: Path) -> None:
    order = [(part.kind, part.seeds) for part in missing(tiny_plan("revenue", "mixture", seeds=3), tmp_path, 1)]
    kinds = {kind for kind, _ in order}
    assert {kind for kind, _ in order[: len(kinds)]} == kinds and {seeds for _, seeds in order[: len(kinds)]} == {(0,)}
    rest = [kind for kind, _ in order[len(kinds) :]]
    assert len(rest) == 2 * len(kinds) and rest[::2] == rest[1::2], "then part by part"
