"""The tables of the reproduction's page, already escaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from databazaar.experiments import published
from databazaar.experiments.compute import PROTOCOLS
from databazaar.experiments.methods import METHODS
from databazaar.experiments.published import DATASET_NAMES, METHOD_NAMES
from databazaar.experiments.results import Results, group_names
from databazaar.experiments.settings import changed
from databazaar.experiments.verdicts import Verdict, about, signed
from databazaar.reports.document import badge
from databazaar.reports.markup import table
from databazaar.reports.wording import count, escape


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
    kind = ' class="noted"' if verdict.note else ""
    shown = (
        f'<tr{kind}><th scope="row" class="text">{escape(about(verdict))}{target}</th>'
        f"<td>{word}</td><td>{escape(verdict.measured)}</td><td>{escape(verdict.published)}</td>"
        f"<td>{escape(verdict.difference)}{allowed}</td><td>{escape(verdict.seeds)}</td></tr>"
    )
    if verdict.note:
        shown += f'\n<tr><td class="text note hint" colspan="{columns}">{escape(verdict.note)}</td></tr>'
    return shown


def _each(pieces: pd.DataFrame) -> Iterator[Any]:
    """Rows whose columns are attributes."""
    yield from pieces.itertuples()


def missing(results: Results) -> str:
    """What was asked for and is not there, said plainly."""
    lines = []
    for piece in _each(results.pieces):
        if piece.done < piece.wanted:
            name = f"{DATASET_NAMES[piece.dataset]}, {METHOD_NAMES[piece.method]}"
            if piece.experiment == "runtime":
                lines.append(("runtime", f"runtime, {name}", f"{piece.providers} providers"))
            else:
                lines.append((piece.experiment, name, f"{piece.done} of {count(piece.wanted, 'seed')}"))
    shown = [f"<li>{escape(name)}: {escape(done)} computed</li>" for kind, name, done in lines if kind != "runtime"]
    timed = sum(kind == "runtime" for kind, _, _ in lines)
    if timed:
        every = int((results.pieces.experiment == "runtime").sum())
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
    for method in (m for m in METHODS if m in results.plan.methods):
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


def unpublished(dataset: str) -> str:
    name = DATASET_NAMES[dataset]
    return f'<p class="hint">{name} has no published numbers here, so that there is nothing to subtract.</p>'


def accuracy_table(results: Results) -> str:
    rows = []
    for dataset in results.datasets:
        for method in (m for m in ("osmd", "uniform") if m in results.plan.methods):
            curve = results.curve(dataset, method)
            line = published.accuracy(dataset, method) if results.comparable(dataset) else None
            rows.append(row(f"{DATASET_NAMES[dataset]}, {METHOD_NAMES[method]}", _final(curve, line, 4)))
    heads = ["Final test accuracy", "Mean", "Std", "Published", "Difference", "Seeds"]
    return table("Final test accuracy", heads, rows, sortable=False)


def error_table(results: Results) -> str:
    rows = []
    for method in (m for m in ("osmd", "uniform") if m in results.plan.methods):
        line = published.mixture_error(method) if results.comparable("mixture") else None
        rows.append(row(METHOD_NAMES[method], _final(results.curve("mixture", method), line, 3)))
    heads = ["Final estimation error", "Mean", "Std", "Published", "Difference", "Seeds"]
    return table("Final estimation error", heads, rows, sortable=False)


def _final(curve: Any, line: published.Line | None, digits: int) -> list[str]:
    theirs = f"{line.final:.{digits}f}" if line else "–"
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
        for method in (m for m in METHODS if m in results.plan.methods):
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


def settings_table(caption: str, sections: Sequence[tuple[str, dict[str, Any]]]) -> str:
    heads = ["Setting", *(DATASET_NAMES[name] for name, _ in sections)]
    rows = [row(key, [_written(values[key]) for _, values in sections]) for key in sections[0][1]]
    return f"<details open><summary>All settings</summary>\n{table(caption, heads, rows, sortable=False)}\n</details>"


def runtime_settings(results: Results) -> str:
    if "runtime" not in results.plan.whats:
        return ""
    values = asdict(changed(PROTOCOLS[results.plan.protocol].runtime, results.plan.changes or {}))
    told = ", ".join(f"{key} {_written(value)}" for key, value in values.items())
    return f"<p><strong>Runtime study:</strong> {escape(told)}; everything else as in the image markets.</p>"


def _written(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def costs(results: Results) -> str:
    """Which machine computed what, and how long each piece was at work."""
    rows = []
    for piece in _each(results.pieces[results.pieces.done > 0][::-1]):
        name = f"{DATASET_NAMES[piece.dataset]}, {METHOD_NAMES[piece.method]}"
        name = f"Runtime, {name}, {piece.providers} providers" if piece.experiment == "runtime" else name
        permutations = f"{piece.permutations:,.0f}" if piece.permutations else "–"
        rows.append(row(name, [str(piece.done), f"{piece.seconds:,.1f}", permutations, piece.machine]))
    if not rows:
        return ""
    text = (
        "Seconds that each piece was at work, all its seeds together. Pieces that were computed side by side shared "
        "the machine, so that their seconds overlap and add up to more than the wall clock showed. The runtime study "
        "is timed alone."
    )
    heads = ["Piece", "Seeds", "Seconds", "Permutations a seed", "Machine"]
    return f'<h2>Machines and seconds</h2>\n<p class="hint">{text}</p>\n' + table(
        "Machines and seconds", heads, rows, sortable=False
    )
