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
from databazaar.reports.words import count
from databazaar_experiments.attacks.rehearsal import Outcome, Rehearsal

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
    pair = next((row for row in rows if len(row.places) > 1), None)
    partner = "" if pair is None else f" (its partner where it takes two: {shown(pair.places[1])})"
    unit = ", in %," if rehearsal.consumer.classifies else ""
    told = (
        f"{shown(rows[0].places[0])} attacks{partner}, {count(len(rehearsal.seeds), 'seed')}: what that earns, in % of "
        f"the budget, and the model's {rehearsal.metric}{unit} on the {rehearsal.judged_by}; {' → '.join(defences)}"
    )
    screen.print(shown(told, LONGEST), soft_wrap=True)
    screen.print(attack_table(rehearsal, defences, rows))
    for note in (*remarks(rehearsal, rows), *notes):
        screen.print(shown(f"- {note}", LONGEST), soft_wrap=True)


def attack_table(rehearsal: Rehearsal, defences: Sequence[str], rows: Sequence[Row]) -> Table:
    """A line for each attack: means over seeds, from one defence to the next."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("attack", no_wrap=True)
    triggers = any(row.kind == "backdoor" for row in rows)
    for head in ("earns", rehearsal.metric, *(["trigger"] if triggers else []), "flagged"):
        table.add_column(head, justify="right", no_wrap=True)
    scale, digits = (100, 1) if rehearsal.consumer.classifies else (1, 4)
    for row in rows:
        outcomes = [row.outcomes[defence] for defence in defences]
        cells = [" → ".join(f"{100 * mean(outcome.earns):.1f}" for outcome in outcomes)]
        cells.append(" → ".join(f"{scale * mean(outcome.model):.{digits}f}" for outcome in outcomes))
        if triggers:
            cells.append(" → ".join(f"{100 * mean(o.trigger):.0f}" for o in outcomes if o.trigger is not None))
        caught = outcomes[-1].caught
        cells.append("" if row.kind == "honest" else f"{sum(flags > 0 for flags in caught)} of {len(caught)}")
        table.add_row(Text(row.title), *map(Text, cells))
    return table


def remarks(rehearsal: Rehearsal, rows: Sequence[Row]) -> list[str]:
    """What the table does not say by itself."""
    found = ["one seed says little: try --seeds 10"]
    if len(rehearsal.seeds) > 1:
        outcomes = [outcome for row in rows for outcome in row.outcomes.values()]
        worst = max(error(outcome.earns) for outcome in outcomes), max(error(outcome.model) for outcome in outcomes)
        scale, digits = (100, 1) if rehearsal.consumer.classifies else (1, 4)
        found = [
            f"means over seeds, with a standard error of {100 * worst[0]:.1f} or less in what is earned and "
            f"{scale * worst[1]:.{digits}f} or less in the {rehearsal.metric}"
        ]
    if rehearsal.consumer.audit is None and any(row.kind == "leak" for row in rows):
        found.append(
            "the market has no audit rows, so models are judged by the hold-out: after a leak of it, one looks better "
            "than it is"
        )
    wronged = sorted({row.title for row in rows for outcome in row.outcomes.values() if any(outcome.wronged)})
    if wronged:
        found.append(f"providers that did not attack were flagged in: {listed(wronged)}")
    return found


def error(values: Sequence[float]) -> float:
    """The standard error of the mean.

    >>> error([1.0, 3.0])
    1.0
    """
    return stdev(values) / math.sqrt(len(values))
