"""A comparison of methods as one HTML file, and its payouts for spreadsheets."""

from __future__ import annotations

import itertools
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np

from databazaar.money import Currency
from databazaar.reports import valuation_figures
from databazaar.reports.pages import page
from databazaar.reports.run_page import RuleView, rule_view
from databazaar.reports.spreadsheet import csv_text
from databazaar.reports.style import inline_svg
from databazaar.reports.words import amount
from databazaar.valuation import Comparison, MethodOutcome
from databazaar.valuation.rank_stability import FEWEST_SEEDS

CSV_HEADS = ("provider", "method", "pay", "low", "high", "best_rank", "worst_rank", "rank_survives")
MODES = {"positive": "max(value, 0)", "shifted": "value − smallest value"}
COUNTED = ("oracle_calls", "utility_evaluations", "trainings", "permutations")


def render_comparison(comparison: Comparison, *, title: str, currency: Currency) -> str:
    """The whole page. The same arguments give the same bytes."""
    drawings = {
        name: inline_svg(valuation_figures.figure(part, comparison, currency), f"fig-{name}")
        for name, part in (("payouts", "payouts"), ("ranks", "correlations"), ("costs", "costs"))
    }
    sure = comparison.outcomes[0].stability
    return page(
        "databazaar/comparison.html.jinja",
        title=title,
        currency=currency,
        comparison=comparison,
        methods=[outcome.method for outcome in comparison.outcomes],
        favourites=favourites(comparison),
        even=[outcome.method for outcome in comparison.outcomes if pays_alike(outcome)],
        agreement_pairs=agreement_pairs(comparison),
        sure=sure is not None,
        fewest_seeds=FEWEST_SEEDS,
        fastest=min(comparison.outcomes, key=lambda outcome: outcome.mean("seconds")),
        frugal=min(comparison.outcomes, key=lambda outcome: outcome.mean("oracle_calls")),
        samplers=[(o.method, rule) for o in comparison.outcomes for rule in samplers(o)],
        confidence="" if sure is None else f"{100 * sure.confidence:.0f} %",
        drawings=drawings,
        payouts=_payouts(comparison, currency),
        totals=[mean_amount(currency, o.payouts.sum(1).mean(), len(comparison.seeds)) for o in comparison.outcomes],
        surviving=[(o.method, survivors(comparison, o)) for o in comparison.outcomes if o.stability is not None],
        agreement=[
            (outcome.method, [correlation(value) for value in line])
            for outcome, line in zip(comparison.outcomes, comparison.rank_correlation, strict=True)
        ],
        costs=[_cost(outcome) for outcome in comparison.outcomes],
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


def interval(currency: Currency, outcome: MethodOutcome, place: int) -> str:
    """A provider's interval, as a person reads it; a dash where there are too few seeds for one."""
    sure = outcome.stability
    if sure is None:
        return "(–)"
    low, high = (mean_amount(currency, end, sure.seeds) for end in (sure.low[place], sure.high[place]))
    return f"({low}–{high})"


def pays_alike(outcome: MethodOutcome) -> bool:
    """Whether a method pays everybody alike: by its sampler but for luck, or by its amounts to within a tenth."""
    drawn = {result.settings.get("sampler", {}).get("kind") for result in outcome.results}
    means = outcome.payouts.mean(0)
    return drawn == {"uniform"} or float(np.ptp(means)) <= 0.1 * float(means.max())


def favourites(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """Whom methods pay most, each with the methods that do; those that pay everybody alike have no favourite."""
    found: dict[str, list[str]] = {}
    for outcome in comparison.outcomes:
        if not pays_alike(outcome):
            best = comparison.providers[int(outcome.payouts.mean(0).argmax())]
            found.setdefault(best, []).append(outcome.method)
    return sorted(found.items(), key=lambda item: -len(item[1]))


def agreement_pairs(comparison: Comparison) -> list[tuple[str, str, str]]:
    """The two methods whose orders are most alike, and the two whose are least, with their rank correlation. Those
    that pay everybody alike have no order but by luck."""
    outcomes, matrix = comparison.outcomes, comparison.rank_correlation
    judging = [place for place, outcome in enumerate(outcomes) if not pays_alike(outcome)]
    pairs = [
        (float(matrix[i, j]), outcomes[i].method, outcomes[j].method)
        for i, j in itertools.combinations(judging, 2)
        if not np.isnan(matrix[i, j])
    ]
    ends = [max(pairs, key=lambda pair: pair[0]), min(pairs, key=lambda pair: pair[0])] if pairs else []
    return [(a, b, correlation(r)) for r, a, b in dict.fromkeys(ends)]


def samplers(outcome: MethodOutcome) -> list[RuleView]:
    """The sampler that a method played the market with, once, with its η and α."""
    found = [result.settings["sampler"] for result in outcome.results if "sampler" in result.settings]
    return [rule_view("sampler", found[0])] if found else []


def survivors(comparison: Comparison, outcome: MethodOutcome) -> list[str]:
    """Providers whose rank would survive another seed, best paid first."""
    assert outcome.stability is not None
    order = np.argsort(-outcome.stability.mean, kind="stable").tolist()
    return [comparison.providers[i] for i in order if outcome.stability.survives[i]]


def stops(outcome: MethodOutcome) -> list[str]:
    """How the method stopped, each way once."""
    return list(dict.fromkeys(result.stopped for result in outcome.results))


def correlation(value: float) -> str:
    """
    >>> correlation(-0.5), correlation(float("nan"))
    ('−0.50', '–')
    """
    return "–" if np.isnan(value) else f"{value + 0.0:.2f}".replace("-", "−")


def _payouts(comparison: Comparison, currency: Currency) -> list[tuple[str, list[tuple[str, int]]]]:
    """Every provider with what each method pays it: as written, and as a number to sort by."""
    seeds, rows = len(comparison.seeds), []
    for place in valuation_figures.ranked(comparison):
        cells = []
        for outcome in comparison.outcomes:
            mean = float(outcome.payouts[:, place].mean())
            if seeds == 1:
                shown = amount(currency, round(mean))
            else:
                mark = " ✓" if outcome.stability is not None and outcome.stability.survives[place] else ""
                shown = f"{mean_amount(currency, mean, seeds)} {interval(currency, outcome, place)}{mark}"
            cells.append((shown, round(mean * seeds)))
        rows.append((comparison.providers[place], cells))
    return rows


def _cost(outcome: MethodOutcome) -> dict[str, Any]:
    return {
        "method": outcome.method,
        "seconds": outcome.mean("seconds"),
        "counts": [outcome.mean(name) for name in COUNTED],
        "utility": outcome.final_utility,
        "stops": stops(outcome),
    }
