"""What the tables of the reproduction's page show, as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from databazaar.reports.words import count
from databazaar_experiments import published
from databazaar_experiments.datasets import SOURCES
from databazaar_experiments.methods import PAPER_METHODS
from databazaar_experiments.published import DATASET_NAMES, METHOD_NAMES
from databazaar_experiments.results import Results, group_names
from databazaar_experiments.verdicts import Verdict, signed
from databazaar_experiments.wall_times import behind, duration

FINAL = ("Mean", "Std", "Published", "Difference", "Seeds")
"""Heads of a table of how curves end."""


@dataclass(frozen=True)
class Cell:
    """What a cell shows, and in small print below it."""

    text: str
    hint: str = ""


@dataclass(frozen=True)
class Row:
    """A row of a table; `marked` ones stand out."""

    head: str
    cells: tuple[Cell, ...]
    hint: str = ""
    marked: bool = False


@dataclass(frozen=True)
class Table:
    """A table as its page shows it; the first head is that of the rows' heads."""

    caption: str
    heads: tuple[str, ...]
    rows: tuple[Row, ...]


def row(head: str, cells: Sequence[str]) -> Row:
    """A row of words: the first cell names it."""
    return Row(head, tuple(map(Cell, cells)))


def by_target(verdicts: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    """Verdicts by their section's title: what does not hold first, then the rest, target by target."""
    sections: dict[str, list[Verdict]] = {}
    for verdict in sorted(verdicts, key=lambda v: {False: 0, None: 1, True: 2}[v.holds]):
        title = verdict.target[:1].upper() + verdict.target[1:]
        sections.setdefault(title if verdict.holds else verdict.word.capitalize(), []).append(verdict)
    return sections


def _each(cases: pd.DataFrame) -> Iterator[Any]:
    """Rows whose columns are attributes."""
    yield from cases.itertuples()


def missing(results: Results) -> list[str]:
    """What was asked for and is not there, said plainly."""
    lines, timed = [], 0
    for case in _each(results.cases):
        if case.done < case.wanted:
            if case.experiment == "runtime":
                timed += 1
            else:
                name = f"{DATASET_NAMES[case.dataset]}, {METHOD_NAMES[case.method]}"
                lines.append(f"{name}: {case.done} of {count(case.wanted, 'seed')} computed")
    if timed:
        every = int((results.cases.experiment == "runtime").sum())
        lines.append(f"Runtime study: {every - timed} of {count(every, 'measurement')} made")
    return lines


def group_table(results: Results, dataset: str) -> Table:
    """Mean pay of each group, with the published one and the difference below it."""
    names = group_names(results.settings[dataset])
    rows = []
    for method in (m for m in PAPER_METHODS if m in results.plan.methods):
        ours = results.group_means(dataset, method)
        done, wanted = results.seeds(dataset, method)
        few = "" if done == wanted else f"{done} of {count(wanted, 'seed')}"
        line = published.revenue(dataset, method) if results.comparable(dataset) else None
        cells = []
        for group in range(len(names)):
            hint = ""
            if line is not None:
                far = f", {signed(100 * (ours[group] / line.groups[group] - 1), 1)} %" if ours else ""
                hint = f"published {line.groups[group]:.1f}{far}"
            cells.append(Cell(f"{ours[group]:.1f}" if group < len(ours) else "–", hint))
        rows.append(Row(METHOD_NAMES[method], tuple(cells), few))
    return Table(f"Mean pay by group, {DATASET_NAMES[dataset]}", ("Mean pay", *names), tuple(rows))


def unpublished(results: Results, datasets: Sequence[str]) -> tuple[str, ...]:
    """Says plainly which datasets have nothing published to stand beside; empty where all have."""
    drawn = [DATASET_NAMES[d] for d in datasets if published.revenue(d, "osmd") is None and d in SOURCES]
    made_up = [DATASET_NAMES[d] for d in datasets if d not in SOURCES]
    sized = [DATASET_NAMES[d] for d in datasets if d in SOURCES and not results.comparable(d)]
    texts = []
    if drawn:
        texts.append(
            f"{' and '.join(drawn)}: no published numbers. The paper draws {'it' if len(drawn) == 1 else 'them'} "
            "without giving numbers for revenue or accuracy, so only the order of the groups, and OSMD against "
            "uniform sampling, is judged."
        )
    if made_up:
        texts.append(f"{' and '.join(made_up)}: no published numbers, because the paper has no such market.")
    if sized:
        texts.append(f"{' and '.join(sized)}: not compared with the published numbers, which are of another size.")
    return tuple(texts)


def _none_published(results: Results, dataset: str) -> str:
    return "not published" if results.comparable(dataset) or dataset not in SOURCES else "of another size"


def accuracy_table(results: Results) -> Table:
    rows = []
    for dataset in results.datasets:
        for method in (m for m in ("osmd", "uniform") if m in results.plan.methods):
            curve = results.curve(dataset, method)
            line = published.accuracy(dataset, method) if results.comparable(dataset) else None
            cells = _final(curve, line, 4, _none_published(results, dataset))
            rows.append(row(f"{DATASET_NAMES[dataset]}, {METHOD_NAMES[method]}", cells))
    return Table("Final test accuracy", ("Final test accuracy", *FINAL), tuple(rows))


def error_table(results: Results) -> Table:
    rows = []
    for method in (m for m in ("osmd", "uniform") if m in results.plan.methods):
        line = published.mixture_error(method) if results.comparable("mixture") else None
        rows.append(row(METHOD_NAMES[method], _final(results.curve("mixture", method), line, 3, "of another size")))
    return Table("Final estimation error", ("Final estimation error", *FINAL), tuple(rows))


def _final(curve: Any, line: published.Line | None, digits: int, otherwise: str) -> list[str]:
    theirs = f"{line.final:.{digits}f}" if line else otherwise
    if curve.empty:
        return ["–", "–", theirs, "–", "0"]
    last = curve.iloc[:, -1]
    mean, deviation = float(last.mean()), float(last.std(ddof=0))
    difference = signed(mean - line.final, digits) if line else "–"
    return [f"{mean:.{digits}f}", f"{deviation:.{digits}f}", theirs, difference, str(len(last))]


def runtime_table(results: Results) -> Table:
    """Seconds, ours and theirs, and how many times faster."""
    rows = []
    for dataset in results.datasets:
        for method in (m for m in PAPER_METHODS if m in results.plan.methods):
            mine = results.runtime[(results.runtime.dataset == dataset) & (results.runtime.method == method)]
            ours = {int(n): float(s) for n, s in zip(mine.providers, mine.seconds, strict=True)}
            line = published.runtime(dataset, method)
            theirs = dict(zip(line.at, line.values, strict=True)) if line else {}
            for n in sorted(ours.keys() | theirs.keys()):
                cells = [
                    f"{n:,}",
                    f"{ours[n]:,.1f}" if n in ours else "–",
                    f"{theirs[n]:,.0f}" if n in theirs else "–",
                    f"{theirs[n] / ours[n]:,.0f} ×" if n in ours and n in theirs else "–",
                ]
                rows.append(row(f"{DATASET_NAMES[dataset]}, {METHOD_NAMES[method]}", cells))
    heads = ("Runtime", "Providers", "Measured (s)", "Published (s)", "Published ÷ measured")
    return Table("Runtime", heads, tuple(rows))


def costs(results: Results) -> Table:
    """Which machine computed what, and how long each case was at work."""
    rows = []
    for case in _each(results.cases[results.cases.done > 0][::-1]):
        name = f"{DATASET_NAMES[case.dataset]}, {METHOD_NAMES[case.method]}"
        name = f"Runtime, {name}, {case.providers} providers" if case.experiment == "runtime" else name
        permutations = f"{case.permutations:,.0f}" if case.permutations else "–"
        jobs = str(case.jobs) if case.jobs else "not noted"
        rows.append(row(name, [str(case.done), f"{case.seconds:,.1f}", jobs, permutations, case.machine]))
    heads = ("Case", "Seeds", "Seconds", "Processes", "Permutations a seed", "Machine")
    return Table("Machines and seconds", heads, tuple(rows))


def wall_clock(results: Results) -> str:
    """How long everything took by the wall clock, as far as it was recorded."""
    runs, untimed = behind(results.wall_times, results.parts)
    if not runs:
        return "How long the runs took by the wall clock was not recorded."
    each = "; ".join(f"{duration(run.seconds)} on {run.machine} with {_processes(run.jobs)}" for run in runs)
    rest = f" {count(len(untimed), 'part')} came of runs that were not recorded." if untimed else ""
    total = duration(sum(run.seconds for run in runs))
    return f"Computing took {total} by the wall clock, in {count(len(runs), 'run')}: {each}.{rest}"


def _processes(jobs: int) -> str:
    return count(jobs, "process", "processes")
