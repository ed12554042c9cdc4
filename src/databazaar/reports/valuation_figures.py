"""Figures of a comparison of methods: who is paid what by whom, how far methods agree, and what they cost."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from databazaar.money import Currency
from databazaar.reports import style
from databazaar.reports.figures import money_axis
from databazaar.reports.words import count, number
from databazaar.valuation import Comparison, MethodOutcome

MOST_DOTS = 25
"""Up to so many providers each has a row with its name; beyond, each method has a strip of bars."""

MARKS = {
    "osmd": (style.BLUE, "o"),
    "uniform": (style.GREY, "s"),
    "uniform-without-replacement": (style.MUTED, "8"),
    "market": ("#004D7A", "h"),
    "g-shapley": (style.ORANGE, "D"),
    "fedsv": (style.GREEN, "^"),
    "fedsv-exact": ("#00543D", "v"),
    "gtg": (style.PINK, "P"),
    "tmc": (style.SKY, "X"),
    "loo": (style.VERMILLION, "<"),
    "exact": (style.INK, "d"),
}
"""A colour and a shape for each method that we know, the same in all figures."""

OTHER_COLOURS = ("#8C510A", "#762A83", "#B2182B", "#35978F", "#4D4D00")
OTHER_SHAPES = ("p", "*", ">", "H")
"""Those of other methods, in turn."""


def marks(methods: Sequence[str]) -> dict[str, tuple[str, str]]:
    """A colour and a shape for every method, built-in or not: ours keep theirs, others take the next in turn.

    >>> marks(["acme", "osmd"])
    {'acme': ('#8C510A', 'p'), 'osmd': ('#0072B2', 'o')}
    """
    others = [method for method in methods if method not in MARKS]
    taken = zip(others, itertools.cycle(OTHER_COLOURS), itertools.cycle(OTHER_SHAPES), strict=False)
    given = MARKS | {method: (colour, shape) for method, colour, shape in taken}
    return {method: given[method] for method in methods}


def _marks(comparison: Comparison) -> dict[str, tuple[str, str]]:
    return marks([outcome.method for outcome in comparison.outcomes])


def ranked(comparison: Comparison) -> list[int]:
    """Providers in the order that all figures and tables share: best paid by the first method first."""
    order: list[int] = np.argsort(-comparison.outcomes[0].payouts.mean(0), kind="stable").tolist()
    return order


@style.styled
def figure(part: str, comparison: Comparison, currency: Currency) -> Figure:
    """One figure: "payouts" per provider and method, with the mean's interval where there are several seeds;
    "correlations", Spearman's, of the mean payouts for every pair of methods; or "costs", seconds and oracle calls."""
    height, draw = _PARTS[part]
    made = style.new_figure(height(comparison))
    draw(made, comparison, currency)
    return made


@style.styled
def overview(comparison: Comparison, currency: Currency) -> Figure:
    """All three on one sheet."""
    heights = {part: height(comparison) for part, (height, _) in _PARTS.items()}
    ratios = [heights["correlations"], heights["costs"]]
    size = 2 * style.WIDTH, max(heights["payouts"], sum(ratios))
    sheet = Figure(figsize=size, layout="constrained", facecolor="white")
    left, beside = sheet.subfigures(1, 2, squeeze=False)[0]
    for place, (_, draw) in zip((left, *beside.subfigures(2, 1, height_ratios=ratios)), _PARTS.values(), strict=True):
        draw(place, comparison, currency)
    return sheet


def save_overview(comparison: Comparison, currency: Currency, path: Path) -> None:
    """Writes the sheet as PNG."""
    with style.look():
        overview(comparison, currency).savefig(path, format="png", dpi=style.DPI, metadata={"Software": None})


def _payouts_height(comparison: Comparison) -> float:
    methods, providers = len(comparison.outcomes), len(comparison.providers)
    if providers > MOST_DOTS:
        return max(style.HEIGHT, 0.72 * methods + 0.8)
    return max(style.HEIGHT, providers * (0.085 * methods + 0.12) + 1.3)


def _correlations_height(comparison: Comparison) -> float:
    return max(style.HEIGHT, 0.3 * len(comparison.outcomes) + 1.2)


def _costs_height(comparison: Comparison) -> float:
    return max(1.9, 0.24 * len(comparison.outcomes) + 0.9)


def _payouts(figure: Figure | SubFigure, comparison: Comparison, currency: Currency) -> None:
    if len(comparison.providers) > MOST_DOTS:
        _strips(figure, comparison, currency)
    else:
        _dots(figure, comparison, currency)


def _dots(figure: Figure | SubFigure, comparison: Comparison, currency: Currency) -> None:
    """A row for each provider; in it, a dot for each method, one below the other in the order of the legend."""
    axes = figure.subplots()
    order, methods = ranked(comparison), len(comparison.outcomes)
    rows = np.arange(len(order))
    for row in rows[::2]:
        axes.axhspan(row - 0.5, row + 0.5, color="#F4F6F8", linewidth=0, zorder=0)
    looks = _marks(comparison)
    for place, outcome in enumerate(comparison.outcomes):
        colour, shape = looks[outcome.method]
        at = rows + (0.0 if methods == 1 else 0.68 * (place / (methods - 1) - 0.5))
        if outcome.stability is not None:
            axes.hlines(
                at, outcome.stability.low[order], outcome.stability.high[order], color=colour, linewidth=1.4, alpha=0.55
            )
        mean = outcome.payouts.mean(0)[order]
        axes.plot(mean, at, shape, color=colour, markersize=4.6, markeredgewidth=0, clip_on=False, zorder=4)
    axes.set_yticks(rows, [style.label(comparison.providers[i]) for i in order])
    axes.set_ylim(len(order) - 0.5, -0.5)
    axes.set_xlim(0, _most(comparison) * 1.04)
    axes.grid(False, axis="y")
    money_axis(axes, currency, "x")
    axes.set_title("Payout per provider and method", loc="left")
    handles = [
        Line2D([], [], color=colour, marker=shape, markeredgewidth=0, markersize=5, ls="")
        for colour, shape in looks.values()
    ]
    style.legend(figure, handles, list(looks), ncols=min(methods, 5), handletextpad=0.2, columnspacing=1.3)


def _strips(figure: Figure | SubFigure, comparison: Comparison, currency: Currency) -> None:
    """A strip for each method; in it, a bar for each provider, in the same order everywhere."""
    order, looks = ranked(comparison), _marks(comparison)
    places = np.arange(1, len(order) + 1)
    panels = figure.subplots(len(comparison.outcomes), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, outcome in zip(panels, comparison.outcomes, strict=True):
        colour, _ = looks[outcome.method]
        axes.bar(places, outcome.payouts.mean(0)[order], width=0.84, color=colour, linewidth=0)
        if outcome.stability is not None and len(order) <= 150:
            low = outcome.stability.low[order]
            axes.vlines(places, low, outcome.stability.high[order], color=style.INK, linewidth=0.7, alpha=0.6)
        ink = colour if outcome.method != "uniform" else style.MUTED
        axes.set_title(style.label(outcome.method), loc="left", color=ink, pad=3)
        axes.grid(False, axis="x")
        money_axis(axes, currency, "y")
        axes.yaxis.get_major_locator().set_params(nbins=3)
        axes.set_ylabel("")
    panels[0].set_ylim(0, _most(comparison) * 1.04)
    panels[0].set_xlim(0.3, len(order) + 0.7)
    panels[0].set_title(f"payout, {style.label(currency.name, 60)}", loc="right", fontweight="normal", pad=3)
    panels[-1].set_xlabel(f"{count(len(order), 'provider')}, best paid by {_names(comparison)[0]} first")


def _names(comparison: Comparison) -> list[str]:
    return [style.label(outcome.method) for outcome in comparison.outcomes]


def _most(comparison: Comparison) -> float:
    """The largest amount on the axis of payouts."""
    return max(1.0, *(float(_top(outcome).max()) for outcome in comparison.outcomes))


def _top(outcome: MethodOutcome) -> np.ndarray:
    return outcome.payouts.mean(0) if outcome.stability is None else outcome.stability.high


def _correlations(figure: Figure | SubFigure, comparison: Comparison, currency: Currency) -> None:
    axes = figure.subplots()
    matrix, names = comparison.rank_correlation, _names(comparison)
    edges = np.arange(len(names) + 1) - 0.5
    axes.pcolormesh(edges, edges, np.ma.masked_invalid(matrix), cmap="RdBu", vmin=-1.3, vmax=1.3)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_facecolor("#EEF1F4")
    for i, row in enumerate(matrix):
        for j, r in enumerate(row):
            ink = "white" if abs(r) > 0.75 else style.INK
            text = "–" if np.isnan(r) else f"{r + 0.0:.2f}".replace("-", "−")
            axes.text(j, i, text, ha="center", va="center", color=ink, fontsize=style.SMALL)
    slanted = len(names) > 5
    axes.set_xticks(
        range(len(names)),
        names,
        rotation=35 if slanted else 0,
        ha="right" if slanted else "center",
        rotation_mode="anchor",
    )
    axes.set_yticks(range(len(names)), names)
    axes.set_xticks(np.arange(len(names) - 1) + 0.5, minor=True)
    axes.set_yticks(np.arange(len(names) - 1) + 0.5, minor=True)
    axes.set_axisbelow(False)
    axes.grid(False)
    axes.grid(True, which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="minor", length=0)
    axes.spines[:].set_visible(False)
    axes.set_title("Rank correlation of payouts", loc="left")


def _costs(figure: Figure | SubFigure, comparison: Comparison, currency: Currency) -> None:
    left, right = figure.subplots(1, 2, sharey=True)
    names = _names(comparison)
    _bars(left, comparison, "seconds", "Seconds", lambda value: number(float(f"{value:.2g}")))
    _bars(
        right,
        comparison,
        "oracle_calls",
        "Oracle calls",
        lambda value: f"{value:,.0f}" if value < 1e6 else f"{value / 1e6:,.3g} M",
    )
    left.set_yticks(range(len(names)), names)
    left.set_ylim(len(names) - 0.4, -0.6)


def _bars(axes: Axes, comparison: Comparison, cost: str, title: str, write: Callable[[float], str]) -> None:
    values = [max(outcome.mean(cost), 1e-3) for outcome in comparison.outcomes]
    least, most = min(values) / 3, max(values)
    colours = [colour for colour, _ in _marks(comparison).values()]
    axes.barh(range(len(values)), values, color=colours, height=0.66)
    axes.set_xscale("log")
    axes.set_xlim(least, most * (most / least) ** 0.38)
    for row, value in enumerate(values):
        axes.text(value * (most / least) ** 0.03, row, write(value), va="center", fontsize=style.SMALL, in_layout=False)
    axes.xaxis.set_major_locator(LogLocator(10, numticks=4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _position: _brief(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(which="minor", length=0)
    axes.grid(False, axis="y")
    axes.set_title(title, loc="left")
    axes.set_xlabel("log scale; mean over seeds" if len(comparison.seeds) > 1 else "log scale")


def _brief(value: float) -> str:
    """
    >>> _brief(0.1), _brief(1000), _brief(10_000_000)
    ('0.1', '1,000', '10 M')
    """
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if value >= size:
            return f"{value / (1e3 if unit == ' k' else size):,.10g}{unit}"
    return f"{value:,.10g}"


_PARTS = {
    "payouts": (_payouts_height, _payouts),
    "correlations": (_correlations_height, _correlations),
    "costs": (_costs_height, _costs),
}
