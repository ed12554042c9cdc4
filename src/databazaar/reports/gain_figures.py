"""Where the money went over the rounds, and what a coin brought."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from databazaar.reports import style
from databazaar.reports.per_coin import PerCoin
from databazaar.reports.words import count
from databazaar.runs.report import Report
from databazaar.runs.trajectory import Trajectory

MOST_COLUMNS = 600
FARTHEST = 3.0


@style.styled
def shares(report: Report) -> Figure:
    """The part of a round's money that the sampler's chances give to each provider, round by round: the best paid by
    name, and all others as one."""
    trajectory = Trajectory(report)
    rows, rounds = trajectory.shares, np.array(trajectory.begins)
    places = np.argsort(-report.lines.pay, kind="stable").tolist()
    named, rest = places[: len(style.OWNER_COLOURS)], places[len(style.OWNER_COLOURS) :]
    names, lines = [report.lines.ids[i] for i in named], [rows[:, i] for i in named]
    colours = [*style.OWNER_COLOURS[: len(named)], *[style.GREY] * bool(rest)]
    if rest:
        names.append(report.lines.ids[rest[0]] if len(rest) == 1 else count(len(rest), "other"))
        lines.append(rows[:, rest].sum(axis=1))
    at = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), MOST_COLUMNS)).astype(int))
    figure, axes = style.chart("Share of a round’s money, by the chances", height=3.9)
    axes.stackplot(rounds[at], [100 * line[at] for line in lines], colors=colours, linewidth=0.6, edgecolor="white")
    style.rounds_axis(axes, trajectory.rounds)
    axes.set_ylim(0, 100)
    axes.yaxis.set_major_formatter(lambda value, _position: f"{value:.0f} %")
    style.legend(figure, [Patch(color=colour) for colour in colours], names, ncols=3, handlelength=1.0)
    return figure


@style.styled
def gain_per_coin(report: Report) -> Figure:
    """What a coin brought, most first, with standard errors, and the mean of the market."""
    known = [one for one in report.brought_by_asked if one.gain_per_coin is not None]
    ranked = sorted(known, key=lambda one: -(one.gain_per_coin or 0.0))
    half = style.MOST_ROWS // 2
    shown = ranked if len(ranked) <= 2 * half else ranked[:half] + ranked[-half:]
    per_coin = PerCoin.of(report)
    mean = report.gain_per_coin
    note = "" if mean is None else f"market {per_coin.plain(mean)}"
    figure, axes = style.chart("Gain per coin", note, style.height_for(len(shown)))
    values = np.array([per_coin.coins * (one.gain_per_coin or 0.0) for one in shown])
    errors = np.array([per_coin.coins * (one.gain_per_coin_error or 0.0) for one in shown])
    farthest = _farthest(report, per_coin)
    drawn = np.clip(values, -farthest, farthest)
    axes.barh(range(len(shown)), drawn, color=np.where(values < 0, style.VERMILLION, style.BLUE), height=0.72)
    for row in np.flatnonzero(drawn != values).tolist():
        side = "left" if values[row] < 0 else "right"
        text = f" {per_coin.plain(shown[row].gain_per_coin, shown[row].gain_per_coin_error)} "
        axes.text(drawn[row], row, text, ha=side, va="center", fontsize=style.SMALL, color="white", weight="bold")
    inside = np.flatnonzero(drawn == values)
    axes.errorbar(values[inside], inside, xerr=errors[inside], fmt="none", ecolor=style.INK, capsize=2.5)
    axes.axvline(0.0, color=style.INK, linewidth=0.9)
    errors[drawn != values] = 0.0
    low, high = drawn - errors, drawn + errors
    room = 0.03 * (high.max(initial=0.0) - low.min(initial=0.0)) or 1.0
    axes.set_xlim(low.min(initial=0.0) - room, high.max(initial=0.0) + room)
    axes.set_yticks(range(len(shown)), [style.label(one.provider) for one in shown])
    axes.set_ylim(max(len(shown), 3) - 0.4, -0.6)
    axes.grid(False, axis="y")
    axes.set_xlabel(f"gain in utility per {per_coin.coins:,} {style.label(report.currency.name, 40)}")
    if mean is not None:
        axes.axvline(per_coin.coins * mean, color=style.INK, linestyle=style.DASHED, linewidth=1.2)
    if len(shown) < len(ranked):
        axes.set_ylabel(f"the first and the last {half} of {len(ranked):,}")
    return figure


def _farthest(report: Report, per_coin: PerCoin) -> float:
    """Where bars are cut off: far beyond what those brought who earned nine tenths of the money. One bad access of
    somebody who was hardly asked would hide all the others."""
    paid, largest = 0.0, 0.0
    for one in sorted(report.brought_by_asked, key=lambda one: -one.share):
        if paid < 0.9:
            paid, largest = paid + one.share, max(largest, abs(one.gain_per_coin or 0.0))
    return FARTHEST * largest * per_coin.coins or 1.0
