"""The two targets about time, from what the parts and the runs recorded themselves."""

from __future__ import annotations

from dataclasses import dataclass

from databazaar.reports.wording import count
from databazaar_experiments.compute import WHATS
from databazaar_experiments.datasets import SOURCES
from databazaar_experiments.methods import METHODS
from databazaar_experiments.results import Results
from databazaar_experiments.walls import behind

MNIST_SECONDS, WHOLE_SECONDS = 30.0, 15 * 60.0
SEEDS, MIXTURE_SEEDS = 10, 100
BESIDE = "Other work shared the GPU while it was measured, or may have: alone it is faster."
UNTIMED = "{some} of {all} parts came of runs whose wall clock was not recorded."


@dataclass(frozen=True)
class Time:
    """What was measured and whether it is short enough; `open` says why where that cannot be told."""

    told: str
    holds: bool | None
    seeds: str
    open: str = "not computed"
    note: str = ""


def mnist_seconds(results: Results) -> Time | None:
    """MNIST with OSMD, ten seeds, 500 rounds. None where the plan does not ask for that."""
    rows = results.pieces[(results.pieces.experiment == "images") & (results.pieces.dataset == "mnist")]
    rows = rows[rows.method == "osmd"]
    if rows.empty or not results.comparable("mnist") or results.plan.seeds < SEEDS:
        return None
    piece = rows.iloc[0]
    done, seconds = int(piece.done), float(piece.seconds)
    seeds = f"{done}" if done == piece.wanted else f"{done} of {piece.wanted}"
    if not done:
        return Time("–", None, seeds)
    told = f"{duration(seconds)} on {piece.machine}"
    if not piece.gpu:
        return Time(told, None, seeds, "not measured on a GPU")
    if done < SEEDS:
        return Time(told, None, seeds, "not all computed")
    if seconds < MNIST_SECONDS or piece.jobs == 1:
        return Time(told, seconds < MNIST_SECONDS, seeds)
    return Time(told, None, seeds, "not measured alone", BESIDE)


def whole_seconds(results: Results) -> Time | None:
    """Everything of the paper, by the wall clock of the runs it came of. None where the plan asks for less."""
    plan, pieces = results.plan, results.pieces
    asked = set(plan.whats) >= set(WHATS) and set(plan.datasets) >= set(SOURCES) and set(plan.methods) >= set(METHODS)
    if not asked or plan.changes or plan.seeds < SEEDS or plan.mixture_seeds < MIXTURE_SEEDS:
        return None
    seeds, done = str(plan.seeds), pieces[pieces.done > 0]
    if done.empty:
        return Time("–", None, seeds)
    runs, untimed = behind(results.walls, results.parts)
    seconds = sum(wall.seconds for wall in runs)
    told = f"{duration(seconds)} in {count(len(runs), 'run')}" if runs else "–"
    note = UNTIMED.format(some=len(untimed), all=len(results.parts)) if untimed else ""
    if not done.gpu.all():
        return Time(told, None, seeds, "not measured on a GPU", note)
    if seconds >= WHOLE_SECONDS:
        return Time(told, False, seeds, note=note)
    if (pieces.done < pieces.wanted).any():
        return Time(told, None, seeds, "not all computed", note)
    return Time(told, None if untimed else True, seeds, "not all timed", note)


def duration(seconds: float) -> str:
    """
    >>> duration(13.64), duration(266), duration(9000)
    ('13.6 s', '4.4 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
