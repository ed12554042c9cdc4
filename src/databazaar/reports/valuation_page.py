"""A comparison of methods as one HTML file, its payouts for spreadsheets, and drawn."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

import numpy as np
from matplotlib.figure import Figure

from databazaar.money import Currency
from databazaar.reports import style
from databazaar.reports.figures import money_axis
from databazaar.reports.pages import page
from databazaar.reports.statement import csv_text
from databazaar.reports.words import amount, count
from databazaar.valuation import Comparison, MethodOutcome
from databazaar.valuation.comparison import FEWEST_SEEDS

CSV_HEADS = ("provider", "method", "pay", "low", "high", "best_rank", "worst_rank", "rank_survives")
MODES = {"positive": "max(value, 0)", "shifted": "value − smallest value"}
COUNTED = ("oracle_calls", "utility_evaluations", "trainings", "permutations")
MOST_NAMES = 25
"""Up to so many providers are named below the bars."""


def render_comparison(comparison: Comparison, *, title: str, currency: Currency, figure: Figure | None = None) -> str:
    """The whole page. The same arguments give the same bytes. `figure` is that of the payouts, where it is drawn."""
    sure = comparison.outcomes[0].stability
    return page(
        "databazaar/comparison.html.jinja",
        title=title,
        currency=currency,
        comparison=comparison,
        methods=[outcome.method for outcome in comparison.outcomes],
        sure=sure is not None,
        fewest_seeds=FEWEST_SEEDS,
        confidence="" if sure is None else f"{100 * sure.confidence:.0f} %",
        drawing=style.inline_svg(figure or payouts(comparison, currency), "fig-payouts"),
        payouts=payout_rows(comparison, currency),
        totals=[mean_amount(currency, o.payouts.sum(1).mean(), len(comparison.seeds)) for o in comparison.outcomes],
        correlation=correlation,
        counted=COUNTED,
        stops=stops,
        proportion=MODES.get(comparison.mode, comparison.mode),
    )


def comparison_csv(comparison: Comparison, currency: Currency) -> str:
    """A line for each provider and method. Amounts are in the currency; low, high and ranks need three seeds."""
    rows = []
    for place, provider in enumerate(comparison.providers):
        for outcome in comparison.outcomes:
            sure = outcome.stability
            means = [outcome.payouts[:, place].mean(), *([] if sure is None else [sure.low[place], sure.high[place]])]
            cells: list[object] = [Decimal(mean_amount(currency, mean, len(comparison.seeds))) for mean in means]
            if sure is None:
                cells += [""] * 5
            else:
                cells += [int(sure.best_rank[place]), int(sure.worst_rank[place])]
                cells.append("yes" if sure.survives[place] else "no")
            rows.append([provider, outcome.method, *cells])
    return csv_text(CSV_HEADS, rows)


def mean_amount(currency: Currency, minor: float, seeds: int) -> str:
    """An amount; a mean over seeds with one more digit than the currency has.

    >>> mean_amount(Currency("EUR", 2), 1250, 1), mean_amount(Currency("EUR", 2), 1250.5, 2)
    ('12.50', '12.505')
    """
    if seeds == 1:
        return currency.amount(round(float(minor)))
    tenths = Decimal(float(minor) * 10).quantize(Decimal(1), ROUND_HALF_UP)
    return f"{tenths.scaleb(-currency.decimals - 1):f}"


def stops(outcome: MethodOutcome) -> list[str]:
    return list(dict.fromkeys(result.stopped for result in outcome.results))


def correlation(value: float) -> str:
    """
    >>> correlation(-0.5), correlation(float("nan"))
    ('−0.50', '–')
    """
    return "–" if np.isnan(value) else f"{value + 0.0:.2f}".replace("-", "−")


def payout_rows(comparison: Comparison, currency: Currency) -> list[tuple[str, list[tuple[str, int]]]]:
    """Every provider with what each method pays it: as written, and as a number to sort by."""
    seeds, rows = len(comparison.seeds), []
    for place in comparison.ranked:
        cells = []
        for outcome in comparison.outcomes:
            mean, sure = float(outcome.payouts[:, place].mean()), outcome.stability
            shown = amount(currency, round(mean)) if seeds == 1 else mean_amount(currency, mean, seeds)
            if sure is not None:
                low, high = (mean_amount(currency, end[place], seeds) for end in (sure.low, sure.high))
                shown += f" ({low}–{high}){' ✓' if sure.survives[place] else ''}"
            elif seeds > 1:
                shown += " (–)"
            cells.append((shown, round(mean * seeds)))
        rows.append((comparison.providers[place], cells))
    return rows


@style.styled
def payouts(comparison: Comparison, currency: Currency) -> Figure:
    """A strip for each method; in it, a bar for each provider, in the same order everywhere, with the interval of the
    mean where there are three seeds or more."""
    order, outcomes = comparison.ranked, comparison.outcomes
    places, named = np.arange(1, len(order) + 1), len(order) <= MOST_NAMES
    figure = style.new_figure(max(style.HEIGHT, 0.72 * len(outcomes) + (1.7 if named else 0.8)))
    panels = figure.subplots(len(outcomes), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, outcome in zip(panels, outcomes, strict=True):
        axes.bar(places, outcome.payouts.mean(0)[order], width=0.84, color=style.BLUE, linewidth=0)
        if outcome.stability is not None and len(order) <= 150:
            low, high = outcome.stability.low[order], outcome.stability.high[order]
            axes.vlines(places, low, high, color=style.INK, linewidth=0.7, alpha=0.6)
        axes.set_title(style.label(outcome.method), loc="left", pad=3)
        axes.grid(False, axis="x")
        money_axis(axes, currency, "y")
        axes.yaxis.get_major_locator().set_params(nbins=3)
        axes.set_ylabel("")
    tops = (o.payouts.mean(0) if o.stability is None else o.stability.high for o in outcomes)
    panels[0].set_ylim(0, max(1.0, *(float(top.max()) for top in tops)) * 1.04)
    panels[0].set_xlim(0.3, len(order) + 0.7)
    panels[0].set_title(f"payout, {style.label(currency.name, 12)}", loc="right", fontweight="normal", pad=3)
    if named:
        names = [style.label(comparison.providers[i], 14) for i in order]
        panels[-1].set_xticks(places, names, rotation=35, ha="right", rotation_mode="anchor")
    panels[-1].set_xlabel(f"{count(len(order), 'provider')}, best paid by {style.label(outcomes[0].method)} first")
    return style.laid_out(figure)
