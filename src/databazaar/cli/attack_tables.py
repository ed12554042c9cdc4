"""Attacks in the terminal: a bar while they are played, then one table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import mean, stdev
from typing import TypeVar

from rich.box import SIMPLE_HEAD
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from databazaar.cli.screen import LONGEST, console
from databazaar.display import listed, shown
from databazaar.market.rehearsal import Outcome, Rehearsal
from databazaar.reports.wording import count

Played = TypeVar("Played")


@dataclass(frozen=True)
class Row:
    """One attack, who plays it, and what came of it by defence."""

    kind: str
    title: str
    places: tuple[str, ...]
    outcomes: Mapping[str, Outcome]


@contextmanager
def progress(total: int, chatty: bool) -> Iterator[Callable[[Played, str], Played]]:
    """What each run is passed through when it is done, with the name of its attack."""
    if not chatty:
        yield lambda played, title: played
        return
    columns = (BarColumn(bar_width=20), TextColumn("{task.description}", markup=False), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True)) as bar:
        task = bar.add_task("", total=total)

        def done(played: Played, title: str) -> Played:
            bar.update(task, advance=1, description=title)
            return played

        yield done


def show(rehearsal: Rehearsal, defences: Sequence[str], rows: Sequence[Row], notes: Sequence[str]) -> None:
    """The table, and what has to be known to read it."""
    screen = console()
    seeds = len(rehearsal.seeds)
    pair = next((row for row in rows if len(row.places) > 1), None)
    who = shown(rows[0].places[0]) + ("" if pair is None else f", and for attacks of two also {shown(pair.places[1])}")
    told = (
        f"{who} against the market, {count(seeds, 'seed')}: what it earns in % of the budget, and the model's "
        f"{rehearsal.metric} on the {rehearsal.judged_by}"
    )
    screen.print(shown(told, LONGEST), soft_wrap=True)
    screen.print(attack_table(rehearsal, defences, rows))
    for note in (*remarks(rehearsal, rows), *notes):
        screen.print(shown(f"- {note}", LONGEST), soft_wrap=True)


def attack_table(rehearsal: Rehearsal, defences: Sequence[str], rows: Sequence[Row]) -> Table:
    """A line for each attack, and beside each other what it comes to with each defence."""
    table = Table(box=SIMPLE_HEAD)
    table.add_column("attack", no_wrap=True)
    triggers = any(row.kind == "backdoor" for row in rows)
    for head in ("earns", rehearsal.metric, *(["trigger"] if triggers else []), "flagged"):
        for defence in defences if head != "flagged" else defences[1:]:
            table.add_column(f"{head}\n{defence}", justify="right", no_wrap=True)
    for row in rows:
        outcomes = [row.outcomes[defence] for defence in defences]
        cells = [spread([100 * share for share in outcome.earns]) for outcome in outcomes]
        by_class = rehearsal.metric == "accuracy"
        cells += [spread([(100 if by_class else 1) * m for m in o.model], 1 if by_class else 4) for o in outcomes]
        if triggers:
            cells += ["" if o.trigger is None else f"{100 * mean(o.trigger):.0f} %" for o in outcomes]
        cells += [_flags(outcome) for outcome in outcomes[1:]]
        table.add_row(Text(row.title), *map(Text, cells))
    return table


def remarks(rehearsal: Rehearsal, rows: Sequence[Row]) -> list[str]:
    """What the table does not say by itself."""
    found = ["± is one standard error"] if len(rehearsal.seeds) > 1 else ["one seed says little: try --seeds 10"]
    if rehearsal.consumer.audit is None and any(row.kind == "leak" for row in rows):
        found.append(
            "the market has no audit rows, so models are judged by the hold-out: after a leak of it, one looks better "
            "than it is"
        )
    wronged = sorted({row.title for row in rows for outcome in row.outcomes.values() if any(outcome.wronged)})
    if wronged:
        found.append(f"providers that did not attack were flagged in: {listed(wronged)}")
    return found


def spread(values: Sequence[float], digits: int = 1) -> str:
    """The mean, with its standard error where there are several.

    >>> spread([1.0, 3.0]), spread([0.123])
    ('2.0 ± 1.0', '0.1')
    """
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{mean(values):.{digits}f} ± {stdev(values) / math.sqrt(len(values)):.{digits}f}"


def _flags(outcome: Outcome) -> str:
    """In how many runs an attacker was flagged."""
    return f"{sum(caught > 0 for caught in outcome.caught)} of {len(outcome.caught)}"
