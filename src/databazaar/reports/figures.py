"""The report's figures, one function each from a Report to a matplotlib Figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator

from databazaar.files import write_whole
from databazaar.money import Currency
from databazaar.reports import style
from databazaar.reports.defence_figures import evidence, panels
from databazaar.reports.words import amount, count, number, percent
from databazaar.runs.report import Report


def loss_curve(report: Report) -> list[float] | None:
    """Loss after 0, 1, … T rounds; None where the run has none."""
    known = [loss for loss in report.losses if loss is not None]
    return known if len(known) == len(report.losses) else None


@style.styled
def learning(report: Report) -> Figure:
    """Utility along training and, where the run has one, the loss below it."""
    loss = loss_curve(report)
    figure = style.new_figure()
    panels = figure.subplots(2 if loss else 1, 1, sharex=True, squeeze=False)[:, 0]
    _curve(panels[0], report.utilities, "Utility", style.BLUE)
    if loss:
        _curve(panels[1], loss, "Loss", style.VERMILLION)
    style.rounds_axis(panels[-1], len(report.rounds))
    return figure


def _curve(axes: Axes, values: Sequence[float], name: str, colour: str) -> None:
    axes.plot(values, color=colour, marker="o" if len(values) <= 30 else "", markersize=3.5, clip_on=False)
    axes.plot(len(values) - 1, values[-1], "o", color=colour, markersize=5.5, clip_on=False, zorder=5)
    style.titled(axes, name, f"{number(values[0])} → {number(values[-1])}", color=colour)
    axes.margins(y=0.12)


@style.styled
def distribution(report: Report) -> Figure:
    """The sampling distribution over time: a row for each provider, a column for each round. Of many providers the best
    paid have a row, and all others one with their mean."""
    p, lines = np.asarray(report.distributions, dtype=float).T, report.lines
    names, columns = lines.ids, p.shape[1]
    others = len(lines) - style.MOST_ROWS + 1 if len(lines) > style.MOST_ROWS else 0
    if others:
        named = np.argsort(-lines.pay, kind="stable")[: style.MOST_ROWS - 1]
        rest = np.maximum(p.sum(axis=0) - p[named].sum(axis=0), 0.0) / others
        p, names = np.vstack([p[named], rest]), [*(lines.ids[place] for place in named.tolist()), "mean of others"]
    figure, axes = style.chart("Chance of being asked next", height=style.height_for(len(p)))
    least, most = float(p.min()), float(p.max())
    linear = least * 20 >= most
    thousandth = most / 1000  # three decades at most
    norm = Normalize(0.0, most) if linear else LogNorm(max(least, thousandth), most, clip=True)
    extent = (-0.5, columns - 0.5, len(p) - 0.5, -0.5)
    look: dict[str, Any] = {"aspect": "auto", "cmap": "viridis", "interpolation_stage": "data"}
    image = axes.imshow(p, norm=norm, extent=extent, **look)
    axes.set_yticks(range(len(p)), [style.label(name) for name in names])
    style.rounds_axis(axes, columns - 1)
    axes.set_xlim(-0.5, columns - 0.5)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    for row in range(1, len(p)):
        axes.axhline(row - 0.5, color="white", linewidth=1.2)
    ticks = MaxNLocator(5) if linear else LogLocator(10, (1.0, 2.0, 5.0))
    bar = figure.colorbar(image, ax=axes, fraction=0.045, pad=0.02, ticks=ticks)
    bar.formatter = lambda value, _position=None: f"{100 * value:.2g} %"  # type: ignore[assignment]
    bar.minorticks_off()
    bar.ax.grid(False)
    bar.outline.set_visible(False)
    if others:
        axes.set_ylabel(f"the {len(p) - 1} best paid, and below the mean of {count(others, 'other')}")
    return figure


@style.styled
def payouts(report: Report) -> Figure:
    """What each provider earned, most first."""
    lines = report.lines
    shown = [lines[place] for place in np.argsort(-lines.pay, kind="stable")[: style.MOST_ROWS].tolist()]
    figure, axes = style.chart("Pay and accesses", height=style.height_for(len(shown)))
    most = max(float(shown[0].pay), 1.0)
    axes.barh(range(len(shown)), [float(payout.pay) for payout in shown], color=style.BLUE, height=0.72)
    unit = style.label(report.currency.name, 8)
    texts = [f"{amount(report.currency, payout.pay)} {unit} · {payout.accesses:,}×" for payout in shown]
    for row, (payout, text) in enumerate(zip(shown, texts, strict=True)):
        axes.text(payout.pay + most * 0.015, row, text, va="center", fontsize=style.SMALL, in_layout=False)
    axes.set_yticks(range(len(shown)), [style.label(payout.provider) for payout in shown])
    axes.set_ylim(max(len(shown), 3) - 0.4, -0.6)  # the first on top
    axes.grid(False, axis="y")
    room = min(0.023 * max(map(len, texts)) + 0.05, 0.65)  # of the axes, for the longest text
    axes.set_xlim(0, most / (1 - room))
    money_axis(axes, report.currency, "x")
    if len(lines) > len(shown):
        rest = percent(int(lines.pay.sum()) - sum(payout.pay for payout in shown), report.spent)
        others = count(len(lines) - len(shown), "other")
        text = f"top {len(shown)} of {len(lines):,}; the {others}: {rest}"
        axes.set_title(text, loc="right", size=style.SMALL, fontweight="normal")
    return figure


def money_axis(axes: Axes, currency: Currency, which: str) -> None:
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(lambda value, _position: _short(value / 10**currency.decimals))
    axis.set_label_text(style.label(currency.name))


def _short(value: float) -> str:
    """A tick's label: thousands apart, millions abbreviated."""
    return f"{value / 1e6:,.6g} M" if value >= 1e6 else f"{value:,.10g}"


FIGURES: dict[str, Callable[[Report], Figure]] = {
    "learning": learning,
    "distribution": distribution,
    "payouts": payouts,
}


def figures_of(report: Report) -> dict[str, Callable[[Report], Figure]]:
    """The figures that a run has, by name: that of its defence where that has measured anything."""
    measured = report.defended is not None and panels(report.defended)
    return {**FIGURES, **({"defence": evidence} if measured else {})}


def draw_all(report: Report) -> dict[str, Figure]:
    """Every figure of a run by its name, laid out for good: as PNG or as SVG, each can be written many times."""
    return {name: style.laid_out(draw(report)) for name, draw in figures_of(report).items()}


def save_png(drawn: Mapping[str, Figure], folder: Path, within: Path | None = None) -> list[Path]:
    """Writes every figure to `folder` as NAME.png. No link is followed on the way from `within`."""
    paths = {folder / f"{name}.png": figure for name, figure in drawn.items()}
    for path, figure in paths.items():
        write_whole(path, style.as_png(figure), within=within)
    return list(paths)
