"""A comparison of methods as one HTML file, and its payouts for spreadsheets."""

from __future__ import annotations

import csv
import io
from decimal import ROUND_HALF_UP, Decimal

import numpy as np

from databazaar.money import Currency
from databazaar.reports import valuation_figures
from databazaar.reports.document import document
from databazaar.reports.markup import cell, figure_card, grid, pairs, table
from databazaar.reports.svg import inline_svg
from databazaar.reports.wording import amount, count, escape, money, named, number
from databazaar.valuation import Comparison, MethodOutcome

CSV_HEADS = ("provider", "method", "pay", "low", "high", "best_rank", "worst_rank", "rank_survives")


def render_comparison(comparison: Comparison, *, title: str, currency: Currency) -> str:
    """The whole page."""
    body = [
        _figures(comparison, currency),
        _payouts(comparison, currency),
        _stability(comparison),
        _agreement(comparison),
        _costs(comparison),
        _settings(comparison, currency),
    ]
    content = "\n".join(part for part in body if part)
    return document(title, "databazaar comparison", _summary(comparison, currency), content)


def comparison_csv(comparison: Comparison, currency: Currency) -> str:
    """A line for each provider and method. Amounts are in the currency; low, high and ranks need several seeds."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_HEADS)
    for place, provider in enumerate(comparison.providers):
        for outcome in comparison.outcomes:
            cells = [mean_amount(currency, outcome.payouts[:, place].mean(), len(comparison.seeds))]
            sure = outcome.stability
            if sure is None:
                cells += [""] * 5
            else:
                cells += [mean_amount(currency, end[place], len(comparison.seeds)) for end in (sure.low, sure.high)]
                cells += [str(sure.best_rank[place]), str(sure.worst_rank[place])]
                cells.append("yes" if sure.survives[place] else "no")
            writer.writerow([provider, outcome.method, *cells])
    return text.getvalue()


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
    """Half the width of a provider's interval, as a person reads it."""
    assert outcome.stability is not None
    half = (outcome.stability.high[place] - outcome.stability.low[place]) / 2
    return f"±{mean_amount(currency, half, outcome.stability.seeds)}"


def survivors(comparison: Comparison, outcome: MethodOutcome) -> list[str]:
    """Providers whose rank would survive another seed, best paid first."""
    assert outcome.stability is not None
    order = np.argsort(-outcome.stability.mean, kind="stable").tolist()
    return [comparison.providers[i] for i in order if outcome.stability.survives[i]]


def stops(outcome: MethodOutcome) -> list[str]:
    """How the method stopped, each way once."""
    return list(dict.fromkeys(result.stopped for result in outcome.results))


def _summary(comparison: Comparison, currency: Currency) -> str:
    methods = [outcome.method for outcome in comparison.outcomes]
    seeds = f", each with {count(len(comparison.seeds), 'seed')}" if len(comparison.seeds) > 1 else ""
    fastest = min(comparison.outcomes, key=lambda outcome: outcome.mean("seconds"))
    frugal = min(comparison.outcomes, key=lambda outcome: outcome.mean("oracle_calls"))
    sentences = [
        f"{count(len(methods), 'method')} split a budget of <strong>{escape(money(currency, comparison.budget))}"
        f"</strong> between {count(len(comparison.providers), 'provider')}{seeds}."
    ]
    if len(methods) > 1:
        sentences.append(
            f"The fastest was {fastest.method} with {number(fastest.mean('seconds'))} s; the fewest oracle calls "
            f"were those of {frugal.method}, {frugal.mean('oracle_calls'):,.0f}."
        )
    return '<p class="lead">' + " ".join(sentences) + "</p>"


def _figures(comparison: Comparison, currency: Currency) -> str:
    many = len(comparison.seeds) > 1
    about_pay = (
        "Payout per provider and method",
        f"Providers are ordered by what {comparison.outcomes[0].method} pays them."
        + (f" Lines are {_confidence(comparison)} intervals of the mean over seeds." if many else ""),
    )
    about_ranks = (
        "Rank correlation",
        "Spearman’s, between the payouts of two methods: 1 is the same order, −1 the reverse; "
        "a dash where a method pays everybody alike.",
    )
    about_cost = ("Cost", "Wall time and updates asked of providers. Both axes are logarithmic.")
    drawings = (
        (valuation_figures.payouts(comparison, currency), "fig-pay", about_pay),
        (valuation_figures.correlations(comparison), "fig-ranks", about_ranks),
        (valuation_figures.costs(comparison), "fig-cost", about_cost),
    )
    pay, ranks, cost = (figure_card(inline_svg(drawing, name, *about), *about) for drawing, name, about in drawings)
    return "<h2>At a glance</h2>\n" + grid([pay, f'<div class="stack">\n{ranks}\n{cost}\n</div>'])


def _payouts(comparison: Comparison, currency: Currency) -> str:
    seeds = len(comparison.seeds)
    rows = []
    for place in valuation_figures.ranked(comparison):
        cells = ""
        for outcome in comparison.outcomes:
            mean = outcome.payouts[:, place].mean()
            if outcome.stability is None:
                shown = amount(currency, round(float(mean)))
            else:
                mark = " ✓" if outcome.stability.survives[place] else ""
                shown = f"{mean_amount(currency, mean, seeds)} {interval(currency, outcome, place)}{mark}"
            cells += cell(shown, round(float(mean) * seeds))
        rows.append(f'<tr><th scope="row" class="text">{named(comparison.providers[place])}</th>{cells}</tr>')
    foot = ["Total"] + [mean_amount(currency, o.payouts.sum(1).mean(), seeds) for o in comparison.outcomes]
    hint = (
        f"Amounts in {escape(currency.name)}. A method that runs the market pays by access; what it could not spend "
        "went back to the consumer. All others split the whole budget by value."
    )
    if seeds > 1:
        hint += (
            f" Means over {seeds:,} seeds, with the {_confidence(comparison)} interval of the mean; "
            "✓ marks a rank that would survive another seed."
        )
    heads = ["Provider", *(outcome.method for outcome in comparison.outcomes)]
    return f'<h2>Who is paid what</h2>\n<p class="hint">{hint}</p>\n' + table("Payouts", heads, rows, foot=foot)


def _stability(comparison: Comparison) -> str:
    if len(comparison.seeds) < 2:
        text = "One seed was run: with --seeds 5 or so, the page says which ranks would survive another."
        return f'<h2>Would it stand?</h2>\n<p class="hint">{text}</p>'
    rows = []
    for outcome in comparison.outcomes:
        who = survivors(comparison, outcome)
        shown = ", ".join(named(name) for name in who[:12]) + (f" and {len(who) - 12:,} more" if len(who) > 12 else "")
        rows.append(
            f'<tr><th scope="row" class="text">{outcome.method}</th>'
            + cell(f"{len(who):,} of {len(comparison.providers):,}", len(who))
            + f'<td class="text">{shown or "none"}</td></tr>'
        )
    hint = (
        "A rank survives if every pair with this provider is in the same order in another run with "
        f"{_confidence(comparison)} confidence, each pair by itself."
    )
    heads = ["Method", "Ranks that would survive another seed", "Whose"]
    return f'<h2>Would it stand?</h2>\n<p class="hint">{hint}</p>\n' + table(
        "Ranks that would survive another seed", heads, rows, text_at={0, 2}, sortable=False
    )


def _agreement(comparison: Comparison) -> str:
    rows = [
        f'<tr><th scope="row" class="text">{outcome.method}</th>'
        + "".join(f"<td>{correlation(value)}</td>" for value in line)
        + "</tr>"
        for outcome, line in zip(comparison.outcomes, comparison.rank_correlation, strict=True)
    ]
    heads = ["", *(outcome.method for outcome in comparison.outcomes)]
    return "<h2>Rank correlations</h2>\n" + table("Rank correlations", heads, rows, sortable=False)


def correlation(value: float) -> str:
    """
    >>> correlation(-0.5), correlation(float("nan"))
    ('−0.50', '–')
    """
    return "–" if np.isnan(value) else f"{value + 0.0:.2f}".replace("-", "−")


def _costs(comparison: Comparison) -> str:
    rows = []
    for outcome in comparison.outcomes:
        figures = [outcome.mean(name) for name in ("oracle_calls", "utility_evaluations", "trainings", "permutations")]
        utility = outcome.final_utility
        rows.append(
            f'<tr><th scope="row" class="text">{outcome.method}</th>'
            + cell(number(outcome.mean("seconds")), round(1e6 * outcome.mean("seconds")))
            + "".join(cell(f"{figure:,.0f}", round(figure)) for figure in figures)
            + cell("–" if utility is None else number(utility), 0 if utility is None else round(1e9 * utility))
            + f'<td class="text">{"; ".join(escape(why) for why in stops(outcome))}</td></tr>'
        )
    heads = [
        "Method",
        "Seconds",
        "Oracle calls",
        "Utility evaluations",
        "Trainings",
        "Permutations",
        "Final utility",
        "How it stopped",
    ]
    hint = "Means over seeds. Only methods that train one model on the way have a final utility."
    return f'<h2>What it cost</h2>\n<p class="hint">{hint}</p>\n' + table("Costs", heads, rows, text_at={0, 7})


def _settings(comparison: Comparison, currency: Currency) -> str:
    modes = {"positive": "max(value, 0)", "shifted": "value − smallest value"}
    first, last = comparison.seeds[0], comparison.seeds[-1]
    items = [
        ("budget", escape(money(currency, comparison.budget))),
        ("payout mode", f"{comparison.mode}: in proportion to {modes[comparison.mode]}"),
        ("seeds", f"{first}" if first == last else f"{first} to {last}"),
    ]
    return "<h2>Settings</h2>\n" + pairs(items)


def _confidence(comparison: Comparison) -> str:
    sure = comparison.outcomes[0].stability
    return f"{100 * sure.confidence:.0f} %" if sure is not None else ""
