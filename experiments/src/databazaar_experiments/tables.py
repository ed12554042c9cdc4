"""The tables of the reproduction's page, already escaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from databazaar.reports.document import badge
from databazaar.reports.markup import table
from databazaar.reports.wording import count, escape
from databazaar_experiments import published
from databazaar_experiments.datasets import SOURCES
from databazaar_experiments.methods import PAPER_METHODS
from databazaar_experiments.published import DATASET_NAMES, METHOD_NAMES
from databazaar_experiments.results import Results, group_names
from databazaar_experiments.verdicts import Verdict, about, signed
from databazaar_experiments.wall_times import behind, duration


def row(head: str, cells: Sequence[str]) -> str:
    """A row of words: the first cell names it."""
    inside = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f'<tr><th scope="row" class="text">{escape(head)}</th>{inside}</tr>'


def verdict_table(verdicts: Sequence[Verdict]) -> str:
    """What does not hold first, then the rest, target by target."""
    heads = ["Target", "Verdict", "Measured", "Published or expected", "Difference", "Seeds"]
    sections: dict[str, list[Verdict]] = {}
    for verdict in sorted(verdicts, key=lambda v: {False: 0, None: 1, True: 2}[v.holds]):
        title = verdict.target[:1].upper() + verdict.target[1:]
        sections.setdefault(title if verdict.holds else verdict.word.capitalize(), []).append(verdict)
    rows = []
    for title, inside in sections.items():
        rows.append(f'<tr><th scope="colgroup" class="text section" colspan="{len(heads)}">{escape(title)}</th></tr>')
        rows += [_verdict_row(verdict, len(heads)) for verdict in inside]
    return f'<div class="whole">{table("Verdicts", heads, rows, sortable=False)}</div>'


def _verdict_row(verdict: Verdict, columns: int) -> str:
    word = badge(verdict.word.capitalize(), verdict.holds is True)
    allowed = f'<span class="hint">allowed {escape(verdict.tolerance)}</span>' if verdict.tolerance != "–" else ""
    target = "" if verdict.holds else f'<span class="hint">{escape(verdict.target)}</span>'
    texts = [verdict.note, f"Why: {verdict.reason}" if verdict.reason else ""]
    note = " ".join(text for text in texts if text)
    kind = ' class="noted"' if note else ""
    shown = (
        f'<tr{kind}><th scope="row" class="text">{escape(about(verdict))}{target}</th>'
        f"<td>{word}</td><td>{escape(verdict.measured)}</td><td>{escape(verdict.published)}</td>"
        f"<td>{escape(verdict.difference)}{allowed}</td><td>{escape(verdict.seeds)}</td></tr>"
    )
    if note:
        shown += f'\n<tr><td class="text note hint" colspan="{columns}"><span>{escape(note)}</span></td></tr>'
    return shown


def _each(cases: pd.DataFrame) -> Iterator[Any]:
    """Rows whose columns are attributes."""
    yield from cases.itertuples()


def missing(results: Results) -> str:
    """What was asked for and is not there, said plainly."""
    lines = []
    for case in _each(results.cases):
        if case.done < case.wanted:
            name = f"{DATASET_NAMES[case.dataset]}, {METHOD_NAMES[case.method]}"
            if case.experiment == "runtime":
                lines.append(("runtime", f"runtime, {name}", f"{case.providers} providers"))
            else:
                lines.append((case.experiment, name, f"{case.done} of {count(case.wanted, 'seed')}"))
    shown = [f"<li>{escape(name)}: {escape(done)} computed</li>" for kind, name, done in lines if kind != "runtime"]
    timed = sum(kind == "runtime" for kind, _, _ in lines)
    if timed:
        every = int((results.cases.experiment == "runtime").sum())
        shown.append(f"<li>Runtime study: {every - timed} of {count(every, 'measurement')} made</li>")
    if not shown:
        return "<h2>What is missing</h2>\n<p>Nothing: everything that was asked for is computed.</p>"
    items = "\n".join(shown)
    text = "The same command goes on from here; what is finished is not computed again."
    return f'<h2>What is missing</h2>\n<ul>\n{items}\n</ul>\n<p class="hint">{text}</p>'


def group_table(results: Results, dataset: str) -> str:
    """Mean pay of each group, with the published one and the difference below it."""
    names = group_names(results.settings[dataset])
    rows = []
    for method in (m for m in PAPER_METHODS if m in results.plan.methods):
        ours = results.group_means(dataset, method)
        done, wanted = results.seeds(dataset, method)
        few = "" if done == wanted else f'<span class="hint">{done} of {count(wanted, "seed")}</span>'
        theirs = published.revenue(dataset, method) if results.comparable(dataset) else None
        cells = ""
        for group in range(len(names)):
            mine = f"{ours[group]:.1f}" if group < len(ours) else "–"
            told = ""
            if theirs is not None:
                far = f", {signed(100 * (ours[group] / theirs.groups[group] - 1), 1)} %" if ours else ""
                told = f'<span class="hint">published {theirs.groups[group]:.1f}{far}</span>'
            cells += f"<td>{mine}{told}</td>"
        rows.append(f'<tr><th scope="row" class="text">{METHOD_NAMES[method]}{few}</th>{cells}</tr>')
    caption = f"Mean pay by group, {DATASET_NAMES[dataset]}"
    return table(caption, ["Mean pay", *names], rows, sortable=False)


def unpublished(results: Results, datasets: Sequence[str]) -> str:
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
    return "".join(f'<p class="hint">{escape(text)}</p>\n' for text in texts)


def _none_published(results: Results, dataset: str) -> str:
    return "not published" if results.comparable(dataset) or dataset not in SOURCES else "of another size"


def accuracy_table(results: Results) -> str:
    rows = []
    for dataset in results.datasets:
        for method in (m for m in ("osmd", "uniform") if m in results.plan.methods):
            curve = results.curve(dataset, method)
            line = published.accuracy(dataset, method) if results.comparable(dataset) else None
            cells = _final(curve, line, 4, _none_published(results, dataset))
            rows.append(row(f"{DATASET_NAMES[dataset]}, {METHOD_NAMES[method]}", cells))
    heads = ["Final test accuracy", "Mean", "Std", "Published", "Difference", "Seeds"]
    return table("Final test accuracy", heads, rows, sortable=False)


def error_table(results: Results) -> str:
    rows = []
    for method in (m for m in ("osmd", "uniform") if m in results.plan.methods):
        line = published.mixture_error(method) if results.comparable("mixture") else None
        rows.append(row(METHOD_NAMES[method], _final(results.curve("mixture", method), line, 3, "of another size")))
    heads = ["Final estimation error", "Mean", "Std", "Published", "Difference", "Seeds"]
    return table("Final estimation error", heads, rows, sortable=False)


def _final(curve: Any, line: published.Line | None, digits: int, otherwise: str) -> list[str]:
    theirs = f"{line.final:.{digits}f}" if line else otherwise
    if curve.empty:
        return ["–", "–", theirs, "–", "0"]
    last = curve.iloc[:, -1]
    mean, deviation = float(last.mean()), float(last.std(ddof=0))
    difference = signed(mean - line.final, digits) if line else "–"
    return [f"{mean:.{digits}f}", f"{deviation:.{digits}f}", theirs, difference, str(len(last))]


def runtime_table(results: Results) -> str:
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
    heads = ["Runtime", "Providers", "Measured (s)", "Published (s)", "Published ÷ measured"]
    inside = table("Runtime", heads, rows, sortable=False)
    return f"<details><summary>All runtimes</summary>\n{inside}\n</details>"


def costs(results: Results) -> str:
    """Which machine computed what, and how long each case was at work."""
    rows = []
    for case in _each(results.cases[results.cases.done > 0][::-1]):
        name = f"{DATASET_NAMES[case.dataset]}, {METHOD_NAMES[case.method]}"
        name = f"Runtime, {name}, {case.providers} providers" if case.experiment == "runtime" else name
        permutations = f"{case.permutations:,.0f}" if case.permutations else "–"
        jobs = str(case.jobs) if case.jobs else "not noted"
        rows.append(row(name, [str(case.done), f"{case.seconds:,.1f}", jobs, permutations, case.machine]))
    if not rows:
        return ""
    text = (
        f"{_in_all(results)} Below, the seconds that each case was at work, all its seeds together. Cases that were "
        "computed side by side shared the machine, so that their seconds overlap and add up to more than the wall "
        "clock showed. The runtime study is timed alone."
    )
    heads = ["Case", "Seeds", "Seconds", "Processes", "Permutations a seed", "Machine"]
    return f'<h2>Machines and seconds</h2>\n<p class="hint">{text}</p>\n' + table(
        "Machines and seconds", heads, rows, sortable=False
    )


def _in_all(results: Results) -> str:
    """How long everything took by the wall clock, as far as it was recorded."""
    runs, untimed = behind(results.wall_times, results.parts)
    if not runs:
        return "How long the runs took by the wall clock was not recorded."
    each = "; ".join(f"{duration(run.seconds)} on {run.machine} with {_processes(run.jobs)}" for run in runs)
    rest = f" {count(len(untimed), 'part')} came of runs that were not recorded." if untimed else ""
    total = duration(sum(run.seconds for run in runs))
    return f"Computing took {total} by the wall clock, in {count(len(runs), 'run')}: {escape(each)}.{rest}"


def _processes(jobs: int) -> str:
    return count(jobs, "process", "processes")
