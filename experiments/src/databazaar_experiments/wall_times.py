"""How long the runs of the evaluation took by the wall clock, and the two targets that are judged by it.

Every run adds a line to a file beside the parts that it computed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from databazaar_experiments.plan import PAPER_SEEDS

if TYPE_CHECKING:
    from databazaar_experiments.results import Results

FILE = "walls.jsonl"
MNIST_SECONDS, WHOLE_SECONDS = 30.0, 15 * 60.0
BESIDE = "Other work shared the GPU while it was measured, or may have: alone it is faster."
UNTIMED = "{some} of {all} parts came of runs whose wall clock was not recorded."


@dataclass(frozen=True)
class WallTime:
    """One run: on which machine, with how many worker processes, for how long, and which parts came of it."""

    machine: str
    jobs: int
    seconds: float
    parts: tuple[str, ...]


def append(folder: Path, run: WallTime) -> None:
    """Adds a line in one write, so that runs beside each other do not mix their lines."""
    line = json.dumps({**asdict(run), "seconds": round(run.seconds, 3)}) + "\n"
    with (folder / FILE).open("a", encoding="utf-8") as file:
        file.write(line)


def read(folder: Path) -> tuple[WallTime, ...]:
    """All runs that were recorded, in their order. A line cut off by a crash is left out: its parts are not timed."""
    path = folder / FILE
    runs = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        with suppress(ValueError, KeyError, TypeError):
            fields = json.loads(line)
            timing = int(fields["jobs"]), float(fields["seconds"])
            runs.append(WallTime(fields["machine"], *timing, tuple(fields["parts"])))
    return tuple(runs)


def behind(recorded: Sequence[WallTime], parts: frozenset[str]) -> tuple[list[WallTime], frozenset[str]]:
    """The runs that these parts came of, and the parts of which no run is recorded."""
    runs = [run for run in recorded if parts & set(run.parts)]
    return runs, parts - {part for run in runs for part in run.parts}


@dataclass(frozen=True)
class TimeTarget:
    """What was measured and whether it is short enough; `open` says why where that cannot be known."""

    measured: str
    holds: bool | None
    seeds: str
    open: str = "not computed"
    note: str = ""


def mnist_seconds(results: Results) -> TimeTarget | None:
    """MNIST with OSMD, ten seeds, 500 rounds. None where the plan does not ask for that."""
    rows = results.cases[(results.cases.experiment == "images") & (results.cases.dataset == "mnist")]
    rows = rows[rows.method == "osmd"]
    if rows.empty or not results.comparable("mnist") or results.plan.seeds < PAPER_SEEDS:
        return None
    case = rows.iloc[0]
    done, seconds = int(case.done), float(case.seconds)
    seeds = f"{done}" if done == case.wanted else f"{done} of {case.wanted}"
    if not done:
        return TimeTarget("–", None, seeds)
    measured = f"{duration(seconds)} on {case.machine}"
    if not case.gpu:
        return TimeTarget(measured, None, seeds, "not measured on a GPU")
    if done < PAPER_SEEDS:
        return TimeTarget(measured, None, seeds, "not all computed")
    if seconds < MNIST_SECONDS or case.jobs == 1:
        return TimeTarget(measured, seconds < MNIST_SECONDS, seeds)
    return TimeTarget(measured, None, seeds, "not measured alone", BESIDE)


def whole_seconds(results: Results) -> TimeTarget | None:
    """Everything of the paper, by the wall clock of the runs it came of. None where the plan asks for less."""
    from databazaar.reports.words import count

    if not results.plan.is_whole_paper:
        return None
    cases, seeds = results.cases, str(results.plan.seeds)
    done = cases[cases.done > 0]
    if done.empty:
        return TimeTarget("–", None, seeds)
    runs, untimed = behind(results.wall_times, results.parts)
    seconds = sum(run.seconds for run in runs)
    measured = f"{duration(seconds)} in {count(len(runs), 'run')}" if runs else "–"
    note = UNTIMED.format(some=len(untimed), all=len(results.parts)) if untimed else ""
    if not done.gpu.all():
        return TimeTarget(measured, None, seeds, "not measured on a GPU", note)
    if seconds >= WHOLE_SECONDS:
        return TimeTarget(measured, False, seeds, note=note)
    if (cases.done < cases.wanted).any():
        return TimeTarget(measured, None, seeds, "not all computed", note)
    return TimeTarget(measured, None if untimed else True, seeds, "not all timed", note)


def duration(seconds: float) -> str:
    """
    >>> duration(13.64), duration(266), duration(9000)
    ('13.6 s', '4.4 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
