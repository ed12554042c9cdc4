"""Computes what is missing of the evaluation. Runs with torch and NumPy alone:

python -m databazaar_experiments.compute --what all --seeds 10 --data-dir DATA --out OUT
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from databazaar.engines.protocol import pick_device
from databazaar_experiments import wall_times
from databazaar_experiments.datasets import SOURCES
from databazaar_experiments.methods import PAPER_METHODS
from databazaar_experiments.parts import Part, find
from databazaar_experiments.plan import WHATS, ReproductionPlan
from databazaar_experiments.progress import ComputeProgress, Listener, Meter, new_shares
from databazaar_experiments.sharing import side_by_side
from databazaar_experiments.wall_times import WallTime
from databazaar_experiments.workers import in_processes, in_this_process, jobs_for, machine

SEEDS_A_PART = 10
"""Seeds that a GPU trains in one batch; on a CPU it is one, so that little is lost when it is interrupted."""
MIXTURE_SEEDS_A_PART = 25
"""The same for the mixture, whose model is so small that a batch of ten leaves a GPU waiting."""


def missing(plan: ReproductionPlan, folder: Path, seeds_a_part: int) -> list[Part]:
    """What is not on disk yet, in parts of at most so many seeds; of the mixture more, unless it is one.

    One part of each kind comes first, so that something of everything is there early.
    """
    parts = []
    for case, count in plan.cases():
        found = find(folder, case, range(count))
        left = [seed for seed in range(count) if found is None or seed not in found.seeds]
        size = MIXTURE_SEEDS_A_PART if seeds_a_part > 1 and case.experiment == "mixture" else seeds_a_part
        parts += [Part(case, tuple(left[i : i + size])) for i in range(0, len(left), size)]
    first = {part.kind: part for part in reversed(parts)}
    return sorted(parts, key=lambda part: first[part.kind] is not part)


def compute(
    plan: ReproductionPlan,
    folder: Path,
    data: Path | None = None,
    device: str = "auto",
    jobs: int | None = None,
    listener: Listener = lambda progress: None,
) -> None:
    """Computes everything that is missing. The listener is called as parts advance, and as each is finished.

    `jobs` are worker processes: one on a CPU and several on a GPU unless you say. What is timed runs alone.
    """
    where = str(pick_device(device))
    gpu = where.startswith("cuda")
    parts = missing(plan, folder, SEEDS_A_PART if gpu else 1)
    if not parts:
        return
    alone = [place for place, part in enumerate(parts) if is_timed(part, gpu)]
    alone.sort(key=lambda place: (parts[place].case.dataset, parts[place].case.settings.providers))  # loads each once
    shared = [place for place in range(len(parts)) if place not in alone]
    jobs = min(jobs or jobs_for(where), max(len(shared), 1))
    meter = Meter(parts, rough_sizes(parts, gpu, jobs), new_shares(len(parts), jobs), listener)
    with _wall_time(folder, parts, machine(where), jobs):
        if jobs > 1:
            with side_by_side(where):
                in_processes(shared, meter, folder, data, where, jobs)
            shared = []
        in_this_process([*shared, *alone], meter, folder, data, where)


@contextmanager
def _wall_time(folder: Path, parts: Sequence[Part], machine: str, jobs: int) -> Iterator[None]:
    """Records how long it took and which of the parts came of it, also where it is interrupted."""
    begun = time.monotonic()
    try:
        yield
    finally:
        done = tuple(part.name for part in parts if (folder / f"{part.name}.npz").exists())
        if done:
            wall_times.append(folder, WallTime(machine, jobs, time.monotonic() - begun, done))


def is_timed(part: Part, gpu: bool) -> bool:
    """Whether a part's own seconds are a result: the runtime study, and on a GPU MNIST with OSMD."""
    case = part.case
    return case.experiment == "runtime" or (gpu and (case.dataset, case.method) == ("mnist", "osmd"))


def rough_sizes(parts: Sequence[Part], gpu: bool, jobs: int) -> list[float]:
    """What each part counts for in the progress. What runs alone has the time of all processes."""
    return [part.rough_size * (jobs if is_timed(part, gpu) else 1) for part in parts]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--what", default="all")
    parser.add_argument("--dataset", default=",".join(SOURCES))
    parser.add_argument("--methods", default=",".join(PAPER_METHODS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--mixture-seeds", type=int, default=100)
    parser.add_argument("--protocol", default="figures")
    parser.add_argument("--data-dir", type=Path, default=None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args(arguments)
    plan = ReproductionPlan(
        whats=WHATS if given.what == "all" else tuple(given.what.split(",")),
        datasets=tuple(given.dataset.split(",")),
        seeds=given.seeds,
        mixture_seeds=given.mixture_seeds,
        protocol=given.protocol,
        methods=tuple(given.methods.split(",")),
        changes=dict(change.split("=", 1) for change in given.set),
    )
    begun = time.perf_counter()
    compute(plan, given.out, given.data_dir, given.device, given.jobs, _print_finished)
    sys.stdout.write(f"all of it: {time.perf_counter() - begun:.1f} s on {machine(str(pick_device(given.device)))}\n")


def _print_finished(progress: ComputeProgress) -> None:
    part = progress.finished
    if part is not None:
        name = f"{part.case.key} {len(part.seeds)} seeds"
        share = f"{100 * progress.share:.0f} % of the work"
        sys.stdout.write(f"{progress.done}/{progress.count} {name}: {progress.seconds:.1f} s, {share}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
