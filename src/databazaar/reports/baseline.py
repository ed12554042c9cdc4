"""Two runs at the same budget, side by side: this one and the uniform baseline."""

from __future__ import annotations

from matplotlib.figure import Figure

from databazaar.reports import style
from databazaar.reports.figures import money_axis, utility_curve
from databazaar.reports.wording import number
from databazaar.runs.report import Report

MOST_PAIRS = 20


@style.styled
def utilities(report: Report, baseline: Report) -> Figure:
    """Utility along training, both runs on the same axes."""
    figure = style.new_figure()
    axes = figure.subplots()
    for run, name, colour, dashes in (
        (baseline, "Uniform baseline", style.MUTED, (0, (4, 2))),
        (report, "This run", style.BLUE, "-"),
    ):
        curve = utility_curve(run)
        axes.plot(curve, color=colour, linestyle=dashes, label=f"{name} {number(curve[-1])}")
        axes.plot(len(curve) - 1, curve[-1], "o", color=colour, markersize=5.5, clip_on=False, zorder=5)
    style.rounds_axis(axes, max(len(report.rounds), len(baseline.rounds)))
    axes.set_title("Utility", loc="left")
    figure.legend(loc="outside lower center", ncols=2)
    return figure


@style.styled
def pay(report: Report, baseline: Report) -> Figure:
    """What each provider earned in either run, those that the two runs treat most differently if many."""
    other = {payout.provider: payout.pay for payout in baseline.payouts}
    pairs = [(payout.provider, payout.pay, other.get(payout.provider, 0)) for payout in report.payouts]
    widest = sorted(pairs, key=lambda pair: -abs(pair[1] - pair[2]))[:MOST_PAIRS]
    shown = sorted(widest, key=lambda pair: -pair[1])
    rows = range(len(shown))
    mine, others = [float(pair[1]) for pair in shown], [float(pair[2]) for pair in shown]
    figure = style.new_figure(style.height_for(len(shown)))
    axes = figure.subplots()
    axes.hlines(rows, mine, others, color=style.HAIRLINE, linewidth=3)
    axes.plot(
        others,
        rows,
        "o",
        color="white",
        markeredgecolor=style.MUTED,
        markeredgewidth=1.5,
        label="Uniform baseline",
        clip_on=False,
    )
    axes.plot(mine, rows, "o", color=style.BLUE, label="This run", clip_on=False)
    axes.set_yticks(rows, [style.label(pair[0]) for pair in shown])
    axes.set_ylim(max(len(shown), 3) - 0.4, -0.6)
    axes.set_xlim(0, max(*mine, *others, 1.0) * 1.05)
    axes.grid(False, axis="y")
    money_axis(axes, report.currency, "x")
    axes.set_title("Pay", loc="left")
    if len(pairs) > len(shown):
        text = f"the {len(shown)} of {len(pairs):,} that differ most"
        axes.set_title(text, loc="right", size=style.SMALL, fontweight="normal")
    figure.legend(loc="outside lower center", ncols=2)
    return figure
