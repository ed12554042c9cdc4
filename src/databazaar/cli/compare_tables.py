"""A comparison in the terminal: a line of progress for each method, then tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from databazaar.cli.screen import LONGEST, console
from databazaar.display import shown
from databazaar.money import Currency
from databazaar.reports.valuation_figures import ranked
from databazaar.reports.valuation_page import correlation, interval, mean_amount, stops, survivors
from databazaar.reports.words import number
from databazaar.valuation import Comparison, MethodOutcome

MOST_ROWS = 30
MOST_NAMES = 8
NAME_WIDTH = 28


@contextmanager
def progress(names: Sequence[str], seeds: int, chatty: bool) -> Iterator[Callable[[str, int], None]]:
    """What to call with a method and a seed when that run is done."""
    if not chatty:
        yield lambda name, seed: None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[doing]}", markup=False),
        TimeElapsedColumn(),
    )
    titles = {name: shown(name, NAME_WIDTH) for name in names}
    width = max(map(len, titles.values()))
    with Progress(*columns, console=console(stderr=True)) as bar:
        tasks = {
            name: bar.add_task(f"{titles[name]:<{width}}", total=seeds, start=False, doing="waits") for name in names
        }

        def start(name: str) -> None:
            bar.start_task(tasks[name])
            bar.update(tasks[name], doing="runs")

        def done(name: str, seed: int) -> None:
            bar.update(tasks[name], advance=1, doing=f"seed {seed} is done")
            if bar.tasks[tasks[name]].finished:
                bar.update(tasks[name], doing="done")
                following = names[names.index(name) + 1 :]
                if following:
                    start(following[0])

        start(names[0])
        yield done


def show(comparison: Comparison, currency: Currency, page: Path) -> None:
    """All tables and where the files lie."""
    screen = console()
    _say(screen, f"Who is paid what, in {currency.name}")
    for table in payout_tables(comparison, currency, screen.width):
        screen.print(table)
    hidden = len(comparison.providers) - MOST_ROWS
    if hidden > 0:
        _say(screen, f"{hidden:,} more providers stand in {page.with_name('comparison.csv')}")
        _say(screen, "")
    _say(screen, "Rank correlation of payouts (Spearman)")
    screen.print(correlation_table(comparison))
    _say(screen, "What it cost" + (", mean over seeds" if len(comparison.seeds) > 1 else ""))
    screen.print(cost_table(comparison))
    for outcome in comparison.outcomes:
        _say(screen, f"{outcome.method} stopped: {'; '.join(stops(outcome))}")
    if comparison.outcomes[0].stability is not None:
        _say(screen, "")
        _say(screen, "Ranks that would survive another seed (* above), each pair judged with 95 % confidence:")
        for outcome in comparison.outcomes:
            _say(screen, f"{outcome.method}: {_survivors(comparison, outcome)}")
    _say(screen, "")
    _say(screen, f"comparison  {page}")


def payout_tables(comparison: Comparison, currency: Currency, width: int) -> list[Table]:
    """One table, or several where the terminal is too narrow for all methods."""
    order = ranked(comparison)[:MOST_ROWS]
    names = [_short(comparison.providers[place]) for place in order]
    columns = {
        outcome.method: [*(_cell(comparison, outcome, place, currency) for place in order), _total(outcome, currency)]
        for outcome in comparison.outcomes
    }
    room = width - max(len("provider"), *map(len, names)) - 5
    groups: list[list[str]] = [[]]
    used = 0
    for method, cells in columns.items():
        needed = max(len(method), *map(len, cells)) + 3
        if groups[-1] and used + needed > room:
            groups.append([])
            used = 0
        groups[-1].append(method)
        used += needed
    return [
        _table(
            ["provider", *group],
            [[name, *(columns[method][row] for method in group)] for row, name in enumerate([*names, "total"])],
        )
        for group in groups
    ]


def correlation_table(comparison: Comparison) -> Table:
    methods = [outcome.method for outcome in comparison.outcomes]
    lines = zip(methods, comparison.rank_correlation, strict=True)
    return _table(["", *methods], [[method, *map(correlation, line)] for method, line in lines])


def cost_table(comparison: Comparison) -> Table:
    rows = []
    for outcome in comparison.outcomes:
        counts = (outcome.mean(cost) for cost in ("oracle_calls", "utility_evaluations", "trainings"))
        utility = "–" if outcome.final_utility is None else f"{outcome.final_utility:.4f}"
        rows.append([outcome.method, number(outcome.mean("seconds")), *(f"{value:,.0f}" for value in counts), utility])
    return _table(["method", "seconds", "oracle calls", "utility evaluations", "trainings", "final utility"], rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A first column of words, and columns of numbers; narrow screens break the heads of numbers alone."""
    table = Table(box=SIMPLE_HEAD)
    for place, head in enumerate(heads):
        table.add_column(head, justify="right" if place else "left", no_wrap=place == 0)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _cell(comparison: Comparison, outcome: MethodOutcome, place: int, currency: Currency) -> str:
    mean = mean_amount(currency, outcome.payouts[:, place].mean(), len(comparison.seeds))
    if len(comparison.seeds) == 1:
        return mean
    survives = outcome.stability is not None and outcome.stability.survives[place]
    return f"{mean} {interval(currency, outcome, place)} {'*' if survives else ' '}"


def _total(outcome: MethodOutcome, currency: Currency) -> str:
    total = mean_amount(currency, outcome.payouts.sum(1).mean(), len(outcome.payouts))
    return total if len(outcome.payouts) == 1 else f"{total}  "


def _survivors(comparison: Comparison, outcome: MethodOutcome) -> str:
    who = [shown(name, NAME_WIDTH) for name in survivors(comparison, outcome)]
    more = f" and {len(who) - MOST_NAMES:,} more" if len(who) > MOST_NAMES else ""
    return f"{len(who):,} of {len(comparison.providers):,}" + (f": {', '.join(who[:MOST_NAMES])}{more}" if who else "")


def _short(name: str) -> str:
    name = shown(name)
    return name if len(name) <= NAME_WIDTH else f"{name[: NAME_WIDTH - 10]}…{name[-9:]}"


def _say(console: Console, text: str) -> None:
    console.print(shown(text, LONGEST), soft_wrap=True)
