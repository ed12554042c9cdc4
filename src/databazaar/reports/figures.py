"""The report's figures, one function each from a Report to a matplotlib Figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from heapq import nsmallest
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, NullFormatter, NullLocator

from databazaar.files import write_whole
from databazaar.money import Currency
from databazaar.reports import style
from databazaar.reports.defence_figures import evidence, panels
from databazaar.reports.gain_figures import gain_per_coin, shares
from databazaar.reports.words import amount, count, number, percent
from databazaar.runs.payouts import Payouts
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
    axes.plot(
        *style.thinned(values), color=colour, marker="o" if len(values) <= 30 else "", markersize=3.5, clip_on=False
    )
    axes.plot(len(values) - 1, values[-1], "o", color=colour, markersize=5.5, clip_on=False, zorder=5)
    style.titled(axes, name, f"{number(values[0])} → {number(values[-1])}", color=colour)
    axes.margins(y=0.12)


@style.styled
def distribution(report: Report) -> Figure:
    """The sampling distribution over time: a row for each provider, a column for each round. Of many providers the best
    paid have a row, and all others one with their mean."""
    p, names, others = _chances(report)
    providers, columns = p.shape[0], p.shape[1] if report.stride == 1 else len(report.rounds) + 1
    figure, axes = style.chart("Chance of being asked next", height=style.height_for(providers))
    norm = _probability_norm(p)
    image = axes.imshow(
        _thinned(p),
        aspect="auto",
        cmap="viridis",
        norm=norm,
        interpolation="nearest" if providers <= 150 else "antialiased",
        interpolation_stage="data",
        extent=(-0.5, columns - 0.5, providers - 0.5, -0.5),
    )
    step = -(-providers // style.MOST_ROWS) if providers <= 2 * style.MOST_ROWS else -(-providers // 25)
    rows = range(0, providers, step)
    axes.set_yticks(list(rows), [style.label(names[row]) for row in rows])
    style.rounds_axis(axes, columns - 1)
    axes.set_xlim(-0.5, columns - 0.5)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    if providers <= style.MOST_ROWS:
        for row in range(1, providers):
            axes.axhline(row - 0.5, color="white", linewidth=1.2)
    bar = figure.colorbar(image, ax=axes, fraction=0.045, pad=0.02)
    bar.ax.grid(False)
    bar.outline.set_visible(False)
    bar.set_ticks(_probability_ticks(norm))
    bar.formatter = lambda value, _position=None: f"{100 * value:.2g} %"  # type: ignore[assignment]
    bar.minorformatter = NullFormatter()
    bar.minorlocator = NullLocator()
    bar.update_ticks()
    if step > 1:
        axes.set_ylabel(f"{count(providers, 'provider')}; one name in {step} is shown")
    if others:
        axes.set_ylabel(f"the {providers - 1} best paid, and below the mean of {count(others, 'other')}")
    return figure


def _chances(report: Report) -> tuple[np.ndarray, Sequence[str], int]:
    """The rows of the figure and their names, and how many are in the last one together."""
    p, lines = np.asarray(report.distributions, dtype=float).T, report.lines
    if not lines.many:
        return p, lines.ids, 0
    named = np.argsort(-lines.pay, kind="stable")[: style.MOST_ROWS - 1]
    others = len(lines) - len(named)
    rest = np.maximum(p.sum(axis=0) - p[named].sum(axis=0), 0.0) / others
    return np.vstack([p[named], rest]), [*(lines.ids[place] for place in named.tolist()), "mean of others"], others


def _thinned(p: np.ndarray, most: int = 600) -> np.ndarray:
    """At most `most` columns, each the mean of the rounds that it stands for."""
    columns = p.shape[1]
    starts = np.arange(0, columns, -(-columns // most))
    return np.add.reduceat(p, starts, axis=1) / np.diff(np.append(starts, columns))


def _probability_norm(p: np.ndarray) -> Normalize:
    """Linear from zero; over at most three decades where the chances differ by more than 20 times."""
    least, most = float(p.min()), float(p.max())
    if least * 20 >= most:
        return Normalize(0.0, most)
    return LogNorm(max(least, most / 1000), most, clip=True)


def _probability_ticks(norm: Normalize) -> list[float]:
    low, high = float(norm.vmin or 0.0), float(norm.vmax or 1.0)
    if not isinstance(norm, LogNorm):
        return [float(tick) for tick in MaxNLocator(5).tick_values(low, high) if tick <= high]
    grid = [mantissa * 10.0**power for power in range(-12, 1) for mantissa in (1, 2, 5)]
    inside = [tick for tick in grid if low <= tick <= high]
    return inside if len(inside) <= 7 else inside[:: -(-len(inside) // 7)]


@style.styled
def payouts(report: Report) -> Figure:
    """What each provider earned, most first; coloured by owner where owners run several providers."""
    lines = report.lines
    shown = [lines[place] for place in np.argsort(-lines.pay, kind="stable")[: style.MOST_ROWS].tolist()]
    colours = owner_colours(lines)
    figure, axes = style.chart("Pay and accesses", height=style.height_for(len(shown)))
    most = max(float(shown[0].pay), 1.0)
    axes.barh(
        range(len(shown)),
        [float(payout.pay) for payout in shown],
        color=[colours.get(payout.owner, style.GREY) if colours else style.BLUE for payout in shown],
        height=0.72,
    )
    unit = style.label(report.currency.name, 40)
    texts = [f"{amount(report.currency, payout.pay)} {unit} · {payout.accesses:,}×" for payout in shown]
    for row, (payout, text) in enumerate(zip(shown, texts, strict=True)):
        axes.text(payout.pay + most * 0.015, row, text, va="center", fontsize=style.SMALL, in_layout=False)
    axes.set_yticks(range(len(shown)), [style.label(payout.provider) for payout in shown])
    axes.set_ylim(max(len(shown), 3) - 0.4, -0.6)
    room = min((max(map(style.text_width, texts)) + 12) / 225, 0.65)  # of the axes, for the longest text
    axes.set_xlim(0, most / (1 - room))
    money_axis(axes, report.currency, "x")
    axes.grid(False, axis="y")
    if len(lines) > len(shown):
        rest = percent(int(lines.pay.sum()) - sum(payout.pay for payout in shown), report.spent)
        others = count(len(lines) - len(shown), "other")
        text = f"top {len(shown)} of {len(lines):,}; the {others}: {rest}"
        axes.set_title(text, loc="right", size=style.SMALL, fontweight="normal")
    if colours:
        rest_exists = any(payout.owner not in colours for payout in shown)
        owner_legend(figure, colours, rest_exists)
    return figure


def owner_colours(lines: Payouts) -> dict[str, str]:
    """A colour for each of the best paid owners; none at all where every owner runs one provider."""
    if max(Counter(lines.owners).values(), default=0) < 2:
        return {}
    pay: Counter[str] = Counter()
    for owner, earned in zip(lines.owners, lines.pay.tolist(), strict=True):
        pay[owner] += earned
    ranked = nsmallest(len(style.OWNER_COLOURS), pay, key=lambda owner: -pay[owner])
    return dict(zip(ranked, style.OWNER_COLOURS, strict=False))


def owner_legend(figure: Figure, colours: dict[str, str], others: bool) -> None:
    names = [*colours, *["other owners"] * others]
    swatches = [Patch(color=colour) for colour in [*colours.values(), *[style.GREY] * others]]
    style.legend(figure, swatches, names, ncols=3, handlelength=1.0)


def money_axis(axes: Axes, currency: Currency, which: str) -> None:
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(lambda value, _position: _short(value / 10**currency.decimals))
    axis.set_label_text(style.label(currency.name))


def _short(value: float) -> str:
    """A tick's label: thousands apart, millions abbreviated."""
    return f"{value / 1e6:,.6g} M" if value >= 1e6 else f"{value:,.10g}"


@style.styled
def spend(report: Report) -> Figure:
    """Cumulative payments against the budget, with what was voided on the way and refunded at the end, or is held."""
    rounds = report.columns
    places, paid = style.thinned([0.0, *accumulate(map(float, rounds.spent))])
    voided = [0.0, *accumulate(map(float, rounds.in_rounds(rounds.voided)))]
    figure, axes = style.chart("Spend against the budget", f"{percent(report.spent, report.budget)} spent")
    ends, top = len(report.rounds), float(report.budget)
    written = amount(report.currency, report.budget)
    axes.axhline(top, color=style.INK, linestyle=style.DASHED, linewidth=1.3, label=f"Budget {written}")
    axes.fill_between(places, paid, color=style.BLUE, alpha=0.14, linewidth=0)
    written = amount(report.currency, report.spent)
    axes.plot(places, paid, color=style.BLUE, marker="o" if ends <= 30 else "", markersize=3.5, label=f"Paid {written}")
    written = amount(report.currency, round(voided[-1]))
    axes.plot(*style.thinned(voided), color=style.VERMILLION, linestyle=(0, (2, 1.5)), label=f"Voided {written}")
    _rest(axes, report)
    style.rounds_axis(axes, ends)
    axes.set_ylim(0, max(top, voided[-1], 1.0) * 1.06)
    money_axis(axes, report.currency, "y")
    figure.legend(loc="outside lower center", ncols=2, handlelength=1.8)
    return figure


def _rest(axes: Axes, report: Report) -> None:
    """Money that nobody has been paid: refunded once the run is closed, until then held for the round under way."""
    name, colour, low, high = "Refunded", style.GREEN, report.budget - report.refunded, report.budget
    if not report.closed:
        name, colour, low, high = "Held", style.ORANGE, report.spent, report.spent + report.held
    look: dict[str, Any] = {"color": colour, "linewidth": 5, "solid_capstyle": "butt", "clip_on": False}
    axes.plot([len(report.rounds)] * 2, [low, high], label=f"{name} {amount(report.currency, high - low)}", **look)


FIGURES: dict[str, Callable[[Report], Figure]] = {
    "learning": learning,
    "spend": spend,
    "distribution": distribution,
    "payouts": payouts,
    "shares": shares,
    "gain-per-coin": gain_per_coin,
}


def figures_of(report: Report) -> dict[str, Callable[[Report], Figure]]:
    """The figures that a run has, by name: that of its defence where that has measured anything."""
    measured = report.defended is not None and panels(report.defended)
    return {**FIGURES, **({"defence": evidence} if measured else {})}


def draw_all(report: Report) -> dict[str, Figure]:
    """Every figure of a run by its name, laid out for good: as PNG or as SVG, each can be written many times."""
    return {name: style.laid_out(draw(report)) for name, draw in figures_of(report).items()}


def save_png(drawn: Mapping[str, Figure], folder: Path, within: Path | None = None) -> list[Path]:
    """Writes every figure to `folder` (made if need be) as NAME.png; the files' paths. No link is followed on the way
    from `within`."""
    paths = []
    for name, figure in drawn.items():
        path = folder / f"{name}.png"
        write_whole(path, style.as_png(figure), within=within)
        paths.append(path)
    return paths
