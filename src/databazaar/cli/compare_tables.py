"""A comparison in the terminal: a line of progress for each method, then tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from databazaar.cli.screen import console, say, table
from databazaar.display import shown
from databazaar.money import Currency
from databazaar.reports.valuation_page import correlation, mean_amount, payout_rows, stops
from databazaar.reports.words import number
from databazaar.valuation import Comparison

MOST_ROWS = 30
NAME_WIDTH = 28


@contextmanager
def progress(names: Sequence[str], seeds: int, quiet: bool) -> Iterator[Callable[[str, int], None]]:
    """What to call with a method and a seed when that run is done."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=20), MofNCompleteColumn())
    with Progress(*columns, console=console(stderr=True, quiet=quiet)) as bar:
        tasks = {name: bar.add_task(shown(name, NAME_WIDTH), total=seeds) for name in names}
        yield lambda name, seed: bar.advance(tasks[name])


def show(comparison: Comparison, currency: Currency, page: Path) -> None:
    screen, methods = console(), [outcome.method for outcome in comparison.outcomes]
    say(f"Who is paid what, in {currency.name}")
    paid = payout_rows(comparison, currency)[:MOST_ROWS]
    rows = [[shown(provider, NAME_WIDTH), *(text for text, _ in cells)] for provider, cells in paid]
    totals = [mean_amount(currency, one.payouts.sum(1).mean(), len(one.payouts)) for one in comparison.outcomes]
    screen.print(_table("provider", methods, [*rows, ["total", *totals]]))
    hidden = len(comparison.providers) - MOST_ROWS
    if hidden > 0:
        say(f"{hidden:,} more providers stand in {page.with_name('comparison.csv')}")
    say("Rank correlation of payouts (Spearman)")
    lines = zip(methods, comparison.rank_correlation, strict=True)
    screen.print(_table("", methods, [[method, *map(correlation, line)] for method, line in lines]))
    say("What it cost" + (", mean over seeds" if len(comparison.seeds) > 1 else ""))
    costs = []
    for outcome in comparison.outcomes:
        counts = (outcome.mean(cost) for cost in ("oracle_calls", "utility_evaluations", "trainings"))
        utility = "–" if outcome.final_utility is None else f"{outcome.final_utility:.4f}"
        costs.append([outcome.method, number(outcome.mean("seconds")), *(f"{value:,.0f}" for value in counts), utility])
    heads = ["seconds", "oracle calls", "utility evaluations", "trainings", "final utility"]
    screen.print(_table("method", heads, costs))
    for outcome in comparison.outcomes:
        say(f"{outcome.method} stopped: {'; '.join(stops(outcome))}")
    if comparison.outcomes[0].stability is not None:
        say("✓ above: a rank that would survive another seed, each pair judged with 95 % confidence")
    say(f"comparison  {page}")


def _table(first: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A column of words, and columns of numbers, which a narrow screen may break."""
    return table([first, *heads], rows, wrapped=range(1, len(heads) + 1))
