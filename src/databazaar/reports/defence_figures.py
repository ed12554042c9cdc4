"""The evidence that verdicts rest on, drawn: what was measured of everybody, answer by answer, beside the limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from databazaar.defence.judge import FIRST_LOOK, LEAST, leak_limit
from databazaar.ledger.figures import Curve
from databazaar.ledger.rounds import Numbers
from databazaar.reports import style
from databazaar.runs.defended import Defended
from databazaar.runs.report import Report

MOST_POINTS = 200
MOST_LINES = 40
PANEL = 2.0


class Panel(NamedTuple):
    """One test: its figures, the limits that it judges by, and who is drawn in colour."""

    title: str
    says: str
    figure: Callable[[Curve], Numbers]
    limits: tuple[float, ...]
    coloured: tuple[int, ...]
    band: bool = False


def panels(defended: Defended) -> list[Panel]:
    """The tests that are on and have spoken."""
    settings, names = defended.defence, [stand.provider for stand in defended.stands]
    by_rule = {
        what: tuple(dict.fromkeys(names.index(one.provider) for one in defended.rulings if one.what == what))
        for what in ("leak", "no-data", "in-doubt")
    }
    found = []
    if settings.leak is not None:
        limit = leak_limit(settings.leak, defended.owners)
        says = "standard errors"
        found.append(Panel("Gains on one part alone", says, lambda one: one.leak, (-limit, limit), by_rule["leak"]))
    if settings.data is not None:
        shown = (*by_rule["no-data"], *by_rule["in-doubt"])
        title, says = "What persists in the answers", "of an ordinary provider’s"
        found.append(Panel(title, says, lambda one: one.signal, (LEAST,), shown, band=True))
    if settings.screen is not None and any(stand.left_out for stand in defended.stands):
        out = [i for i, stand in enumerate(defended.stands) if stand.left_out]
        most = sorted(out, key=lambda i: -defended.stands[i].left_out)
        found.append(Panel("Harm", "standard errors", lambda one: one.harm, (settings.screen,), tuple(most)))
    return [panel for panel in found if any(np.isfinite(panel.figure(one)).any() for one in defended.curves)]


def evidence(report: Report) -> Figure:
    """A panel for each test that has spoken: those it has found in colour, all others in grey, limits dashed."""
    assert report.defended is not None
    return _drawn(report.defended, panels(report.defended))


def own_evidence(report: Report, provider: str) -> Figure | None:
    """The same for one provider, with nothing of any other; None where no test has spoken of it."""
    assert report.defended is not None
    alone = report.defended.alone(provider)
    spoke = panels(alone)
    return _drawn(alone, [panel._replace(coloured=(0,)) for panel in spoke]) if spoke else None


@style.styled
def _drawn(defended: Defended, drawn: list[Panel]) -> Figure:
    coloured = list(dict.fromkeys(place for panel in drawn for place in panel.coloured))[: len(style.OWNER_COLOURS)]
    colours = dict(zip(coloured, style.OWNER_COLOURS, strict=False))
    figure = style.new_figure(PANEL * len(drawn) + 0.9)
    axes = figure.subplots(len(drawn), 1, sharex=True, squeeze=False)[:, 0]
    longest = max(len(curve) for curve in defended.curves)
    for panel, place in zip(drawn, axes, strict=True):
        _draw(place, panel, defended, {i: colours[i] for i in panel.coloured if i in colours})
    axes[-1].set_xscale("log", base=2)
    axes[-1].set_xlim(1, max(longest, 2) * 1.08)
    axes[-1].xaxis.set_major_locator(FixedLocator([2.0**power for power in range(longest.bit_length())]))
    axes[-1].xaxis.set_minor_locator(NullLocator())
    axes[-1].xaxis.set_major_formatter(lambda value, _position: f"{value:,.0f}")
    axes[-1].set_xlabel("valid answers of a provider")
    _legend(figure, defended, colours)
    return figure


def _draw(axes: Axes, panel: Panel, defended: Defended, colours: dict[int, str]) -> None:
    others = [i for i in range(len(defended.curves)) if i not in colours]
    for i in others[:MOST_LINES]:
        axes.plot(*_line(panel.figure(defended.curves[i])), color=style.GREY, linewidth=0.8, alpha=0.7)
    for i, colour in colours.items():
        curve = defended.curves[i]
        axes.plot(*_line(panel.figure(curve)), color=colour, marker="o" if len(curve) <= 30 else "", markersize=3.0)
        if panel.band:
            at, middle = _line(curve.signal)
            wide = 2 * curve.error[(at - 1).astype(int)]
            axes.fill_between(at, middle - wide, middle + wide, color=colour, alpha=0.18, linewidth=0)
    for limit in panel.limits:
        axes.axhline(limit, color=style.INK, linestyle=style.DASHED, linewidth=1.1)
    style.titled(axes, panel.title, panel.says)
    axes.set_ylim(*_range(panel, defended))


def _line(values: Numbers) -> tuple[Numbers, Numbers]:
    """The answers that have a figure, counted from 1, and the figures; of many, those that stand out."""
    known = np.flatnonzero(np.isfinite(values))
    places, heights = style.thinned(values[known].tolist(), MOST_POINTS)
    return (known[places] + 1).astype(np.float64), heights


def _range(panel: Panel, defended: Defended) -> tuple[float, float]:
    """All that is drawn and the limits, without what only says that there were few answers."""
    from_answer = FIRST_LOOK - 1 if panel.band else 0
    figures = np.concatenate([np.zeros(1), *(panel.figure(one)[from_answer:] for one in defended.curves)])
    figures = figures[np.isfinite(figures)]
    low, high = np.quantile(figures, [0.005, 0.995]) if len(figures) > 400 else (figures.min(), figures.max())
    low, high = min(float(low), 0.0, *panel.limits), max(float(high), 0.0, *panel.limits)
    room = 0.08 * (high - low)
    return low - room, high + room


def _legend(figure: Figure, defended: Defended, colours: dict[int, str]) -> None:
    lines: list[Artist] = [Line2D([], [], color=colour) for colour in colours.values()]
    names = [defended.stands[i].provider for i in colours]
    if len(defended.stands) > len(colours):
        lines.append(Line2D([], [], color=style.GREY, linewidth=0.8))
        names.append("others" if colours else "providers")
    lines.append(Line2D([], [], color=style.INK, linestyle=style.DASHED, linewidth=1.1))
    names.append("limit")
    style.legend(figure, lines, names, ncols=4, handlelength=1.6)
