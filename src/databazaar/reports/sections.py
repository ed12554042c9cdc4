"""The parts of the HTML report: each turns a Report into a piece of markup, already escaped."""

from __future__ import annotations

import json
from collections import defaultdict

from databazaar.reports import comparison, figures
from databazaar.reports.markup import cell, figure_card, grid, pairs, table
from databazaar.reports.statement import owner_totals
from databazaar.reports.svg import inline_svg
from databazaar.reports.wording import (
    amount,
    count,
    escape,
    money,
    named,
    number,
    percent,
    signed_amount,
    signed_number,
)
from databazaar.runs.report import Report

MOST_REASONS = 20
MOST_NAMES = 6


def summary(report: Report) -> str:
    """The run in two or three sentences, for somebody who reads nothing else."""
    currency, accesses = report.currency, sum(payout.accesses for payout in report.payouts)
    start = figures.utility_curve(report)[0]
    verb = "rose" if report.final_utility > start else "fell" if report.final_utility < start else "stayed"
    change = f"from {number(start)} to " if verb != "stayed" else "at "
    sentences = [
        f"Of a budget of {escape(money(currency, report.budget))}, "
        f"<strong>{escape(money(currency, report.spent))}</strong> paid for "
        f"{count(accesses, 'access', 'accesses')} to {count(len(report.payouts), 'provider')} "
        f"in {count(len(report.rounds), 'round')}, and {escape(money(currency, report.refunded))} went back "
        "to the consumer.",
        f"The model’s utility {verb} {change}<strong>{number(report.final_utility)}</strong>.",
    ]
    best = max(report.payouts, key=lambda payout: payout.pay, default=None)
    if best is not None and best.pay and len(report.payouts) > 1:
        share = percent(best.pay, report.spent)
        sentences.append(f"The best paid provider was {named(best.provider)}, with {share} of the spend.")
    return '<p class="lead">' + " ".join(sentences) + "</p>"


def tiles(report: Report) -> str:
    """The headline numbers."""
    currency, utility, loss = report.currency, figures.utility_curve(report), figures.loss_curve(report)
    shown = [
        ("Budget", amount(currency, report.budget), currency.name, "set by consumer"),
        (
            "Spent",
            amount(currency, report.spent),
            currency.name,
            f"{percent(report.spent, report.budget)} of budget",
        ),
        ("Refunded", amount(currency, report.refunded), currency.name, "unspent budget"),
        ("Final utility", number(report.final_utility), "", f"started at {number(utility[0])}"),
    ]
    if report.final_loss is not None:
        began = f"started at {number(loss[0])}" if loss else "lower is better"
        shown.append(("Final loss", number(report.final_loss), "", began))
    draws = f"{count(report.per_round, 'draw')} each"
    shown.append(("Rounds", f"{len(report.rounds):,}", "", draws))
    items = "\n".join(_tile(*tile) for tile in shown)
    return f'<dl class="tiles">\n{items}\n</dl>'


def _tile(label: str, value: str, unit: str, more: str) -> str:
    term = f"{label} ({escape(unit)})" if unit else label
    size = "value long" if len(value) > 9 else "value"
    return (
        f'<div class="tile card"><dt>{term}</dt><dd><div class="{size}">{escape(value)}</div>'
        f'<div class="more">{escape(more)}</div></dd></div>'
    )


def training(report: Report) -> str:
    """The four figures, each with a caption that says how to read it."""
    utility = figures.utility_curve(report)
    best = max(report.payouts, key=lambda payout: payout.pay, default=None)
    captions = {
        "learning": (
            "Utility and loss along training",
            f"Utility went from {number(utility[0])} to {number(utility[-1])} over "
            f"{count(len(report.rounds), 'round')}, measured on the consumer’s own hold-out data.",
        ),
        "spend": (
            "Spend",
            f"{money(report.currency, report.spent)} of {money(report.currency, report.budget)} was paid. "
            "A failed reply is voided: nobody is paid for it.",
        ),
        "distribution": (
            "Sampling distribution over time",
            "Brighter means more likely to be asked in the next round. Every run begins with equal chances.",
        ),
        "payouts": (
            "Payout per provider",
            "Pay, and how often (×) each was paid for an access."
            + (f" The most went to {best.provider}." if best is not None and best.pay else ""),
        ),
    }
    drawn = [
        figure_card(inline_svg(draw(report), f"fig-{name}", *captions[name]), *captions[name])
        for name, draw in figures.FIGURES.items()
    ]
    return "<h2>How the training went</h2>\n" + grid(drawn)


def payouts(report: Report) -> str:
    """The statement: a line a provider, and a line an owner where owners run several."""
    currency = report.currency
    rows = []
    most = max((payout.pay for payout in report.payouts), default=0)
    for payout in sorted(report.payouts, key=lambda payout: -payout.pay):
        width = 100 * payout.pay / most if most else 0
        share = percent(payout.pay, report.spent)
        rows.append(
            f'<tr><th scope="row" class="text">{named(payout.provider)}</th>'
            f'<td class="text">{named(payout.owner)}</td>'
            + cell(amount(currency, payout.price), payout.price)
            + cell(f"{payout.accesses:,}", payout.accesses)
            + cell(f"{payout.failures:,}", payout.failures)
            + cell(amount(currency, payout.pay), payout.pay)
            + f'<td class="share" data-value="{payout.pay}">{share}'
            f'<span class="meter"><span style="width:{width:.1f}%"></span></span></td></tr>'
        )
    heads = ["Provider", "Owner", "Price", "Accesses", "Failures", f"Pay ({currency.name})", "Share of spend"]
    foot = [
        "Total",
        count(len({payout.owner for payout in report.payouts}), "owner"),
        "",
        f"{sum(payout.accesses for payout in report.payouts):,}",
        f"{sum(payout.failures for payout in report.payouts):,}",
        amount(currency, sum(payout.pay for payout in report.payouts)),
        percent(sum(payout.pay for payout in report.payouts), report.spent),
    ]
    parts = [
        "<h2>Who was paid</h2>",
        f'<p class="hint">Best paid first, amounts in {escape(currency.name)}. '
        "One price is paid for each valid access; failures were not paid.</p>",
        table("Payouts", heads, rows, text_at={0, 1}, foot=foot),
    ]
    owners = owner_totals(report)
    if len(owners) < len(report.payouts):
        lines = [
            f'<tr><th scope="row" class="text">{named(line["owner"])}</th>'
            + cell(f"{line['providers']:,}", line["providers"])
            + cell(f"{line['accesses']:,}", line["accesses"])
            + cell(amount(currency, line["pay"]), line["pay"])
            + cell(percent(line["pay"], report.spent), line["pay"])
            + "</tr>"
            for line in sorted(owners, key=lambda line: -int(line["pay"]))
        ]
        heads = ["Owner", "Providers", "Accesses", f"Pay ({currency.name})", "Share of spend"]
        parts += ["<h3>By owner</h3>", table("Payouts by owner", heads, lines)]
    return "\n".join(parts)


def against_baseline(report: Report, baseline: Report) -> str:
    """The same budget spent by asking everybody alike, next to this run."""
    rows = [
        ("Final utility", report.final_utility, baseline.final_utility),
        ("Final loss", report.final_loss, baseline.final_loss),
    ]
    lines = [
        f'<tr><th scope="row" class="text">{label}</th><td>{number(mine)}</td><td>{number(theirs)}</td>'
        f"<td>{signed_number(mine - theirs)}</td></tr>"
        for label, mine, theirs in rows
        if mine is not None and theirs is not None
    ]
    currency = report.currency
    for label, paid, other in (
        ("Spent", report.spent, baseline.spent),
        ("Refunded", report.refunded, baseline.refunded),
    ):
        lines.append(
            f'<tr><th scope="row" class="text">{label} ({escape(currency.name)})</th>'
            f"<td>{amount(currency, paid)}</td><td>{amount(currency, other)}</td>"
            f"<td>{signed_amount(currency, paid - other)}</td></tr>"
        )
    pay = {payout.provider: payout.pay for payout in baseline.payouts}
    both = [(payout.provider, payout.pay, pay.get(payout.provider, 0)) for payout in report.payouts]
    side_by_side = [
        f'<tr><th scope="row" class="text">{named(provider)}</th>'
        + cell(amount(currency, mine), mine)
        + cell(amount(currency, theirs), theirs)
        + cell(signed_amount(currency, mine - theirs), mine - theirs)
        + "</tr>"
        for provider, mine, theirs in both
    ]
    ahead = report.final_utility - baseline.final_utility
    standing = f"{number(abs(ahead))} {'above' if ahead > 0 else 'below'}" if ahead else "level with"
    about_utility = ("Utility, both runs", f"This run ends {standing} the baseline.")
    about_pay = (
        "Pay, both runs",
        "A filled dot right of the ring earned more here than under equal sampling.",
    )
    drawn = [
        figure_card(
            inline_svg(comparison.utilities(report, baseline), "fig-both-utilities", *about_utility),
            *about_utility,
        ),
        figure_card(inline_svg(comparison.pay(report, baseline), "fig-both-pay", *about_pay), *about_pay),
    ]
    columns = ["This run", "Uniform baseline", "Difference"]
    return "\n".join(
        [
            "<h2>Against the uniform baseline</h2>",
            '<p class="hint">The same job with every provider equally likely to be asked in every round.</p>',
            table("This run and the uniform baseline", ["", *columns], lines, sortable=False),
            grid(drawn),
            "<details open>" if len(both) <= 12 else "<details>",
            "<summary>Payouts side by side</summary>",
            table("Payouts in both runs", [f"Provider (pay in {currency.name})", *columns], side_by_side),
            "</details>",
        ]
    )


def failures(report: Report) -> str:
    """Accesses that were voided, grouped by reason, most frequent first."""
    groups: dict[str, list[int]] = defaultdict(list)
    for round_ in report.rounds:
        for access in round_.accesses:
            if access.failure is not None:
                groups[access.failure].append(access.provider)
    if not groups:
        return "<h2>Failures</h2>\n<p>None: every access returned a valid update.</p>"
    ranked = sorted(groups.items(), key=lambda group: -len(group[1]))
    lines = []
    for reason, providers in ranked[:MOST_REASONS]:
        who = [named(report.payouts[provider].provider) for provider in dict.fromkeys(providers)]
        more = f" and {len(who) - MOST_NAMES:,} more" if len(who) > MOST_NAMES else ""
        lines.append(
            f'<tr><th scope="row" class="text">{named(reason)}</th>'
            + cell(f"{len(providers):,}", len(providers))
            + f'<td class="text">{", ".join(who[:MOST_NAMES])}{more}</td></tr>'
        )
    text = "Replies that could not be used. They were neither aggregated into the model nor paid."
    if len(ranked) > MOST_REASONS:
        text += f" The {MOST_REASONS} most frequent of {len(ranked):,} reasons are shown."
    heads = ["Reason", "Accesses", "Providers"]
    return f'<h2>Failures</h2>\n<p class="hint">{text}</p>\n' + table(
        "Failures by reason", heads, lines, text_at={0, 2}, sortable=False
    )


def settings(report: Report) -> str:
    """The sampler's settings, the seed, and the regret bound where the theory applies."""
    items = [(escape(key.replace("_", " ")), escape(_setting(value))) for key, value in report.sampler.items()]
    items += [("draws per round", f"{report.per_round:,}"), ("seed", f"{report.seed}")]
    if report.regret_bound is not None:
        items.append(
            (
                "regret bound",
                f'{number(report.regret_bound)} <span class="hint">Theorem 1, for a utility in [0, 1]: '
                "in expectation, a competitor that knows the best providers and the right order to ask them "
                "gains at most this much more utility, summed over all accesses.</span>",
            )
        )
    return "<h2>How providers were chosen</h2>\n" + pairs(items)


def _setting(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str | int):
        return str(value)
    return json.dumps(value, ensure_ascii=False, default=str)
