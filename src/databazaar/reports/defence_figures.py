"""The evidence that verdicts rest on, drawn: what was measured of each provider, answer by answer, and the limits."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from databazaar.defence.judge import FIRST_LOOK, LEAST, leak_limit
from databazaar.ledger.rounds import Numbers
from databazaar.reports import style
from databazaar.runs.defended import Defended
from databazaar.runs.report import Report

MOST_LINES = 40
PANEL = 2.0
LIMIT: dict[str, Any] = {"color": style.INK, "linestyle": style.DASHED, "linewidth": 1.1}


class Panel(NamedTuple):
    """One test: the figure of `Curve` that it measures, the limits that it judges by, and who is drawn in colour."""

    title: str
    says: str
    figure: Literal["leak", "signal", "harm"]
    limits: tuple[float, ...]
    coloured: tuple[int, ...]


def panels(defended: Defended) -> list[Panel]:
    """The tests that are on and have spoken."""
    settings, stands, found = defended.defence, defended.stands, list[Panel]()
    names = [stand.provider for stand in stands]

    def ruled(*whats: str) -> tuple[int, ...]:
        ordered = sorted((one for one in defended.rulings if one.what in whats), key=lambda one: whats.index(one.what))
        return tuple(dict.fromkeys(names.index(one.provider) for one in ordered))

    if settings.leak is not None:
        limit = leak_limit(settings.leak, defended.owners)
        found.append(Panel("Gains on one part alone", "standard errors", "leak", (-limit, limit), ruled("leak")))
    if settings.data is not None:
        title, says = "What persists in the answers", "of an ordinary provider’s"
        found.append(Panel(title, says, "signal", (LEAST,), ruled("no-data", "in-doubt")))
    left_out = [i for i, stand in enumerate(stands) if stand.left_out]
    if settings.screen is not None and left_out:
        most = sorted(left_out, key=lambda i: -stands[i].left_out)
        found.append(Panel("Harm", "standard errors", "harm", (settings.screen,), tuple(most)))
    return [one for one in found if any(np.isfinite(getattr(curve, one.figure)).any() for curve in defended.curves)]


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
    coloured = dict.fromkeys(place for panel in drawn for place in panel.coloured)
    colours = dict(zip(coloured, style.OWNER_COLOURS, strict=False))
    figure = style.new_figure(PANEL * len(drawn) + 0.9)
    axes = figure.subplots(len(drawn), 1, sharex=True, squeeze=False)[:, 0]
    for panel, place in zip(drawn, axes, strict=True):
        _draw(place, panel, defended, {i: colours[i] for i in panel.coloured if i in colours})
    longest, answers = max(len(curve) for curve in defended.curves), axes[-1].xaxis
    axes[-1].set_xscale("log", base=2)
    axes[-1].set_xlim(1, max(longest, 2) * 1.08)
    answers.set_major_locator(FixedLocator([2.0**power for power in range(longest.bit_length())]))
    answers.set_minor_locator(NullLocator())
    answers.set_major_formatter(lambda value, _position: f"{value:,.0f}")
    axes[-1].set_xlabel("valid answers of a provider")
    lines = [(defended.stands[i].provider, Line2D([], [], color=colour)) for i, colour in colours.items()]
    if len(defended.stands) > len(colours):
        lines.append(("others" if colours else "providers", Line2D([], [], color=style.GREY, linewidth=0.8)))
    names, handles = zip(*lines, ("limit", Line2D([], [], **LIMIT)), strict=True)
    style.legend(figure, handles, names, ncols=4, handlelength=1.6)
    return figure


def _draw(axes: Axes, panel: Panel, defended: Defended, colours: dict[int, str]) -> None:
    figures = [getattr(curve, panel.figure) for curve in defended.curves]
    others = [i for i in range(len(figures)) if i not in colours]
    for i in others[:MOST_LINES]:
        axes.plot(*_line(figures[i]), color=style.GREY, linewidth=0.8, alpha=0.7)
    for i, colour in colours.items():
        at, middle = _line(figures[i])
        axes.plot(at, middle, color=colour, marker="o" if len(figures[i]) <= 30 else "", markersize=3.0)
        if panel.figure == "signal":
            wide = 2 * defended.curves[i].error[(at - 1).astype(int)]
            axes.fill_between(at, middle - wide, middle + wide, color=colour, alpha=0.18, linewidth=0)
    for limit in panel.limits:
        axes.axhline(limit, **LIMIT)
    style.titled(axes, panel.title, panel.says)
    first = FIRST_LOOK - 1 if panel.figure == "signal" else 0  # before, it says only that there were few answers
    drawn = np.concatenate([np.array([0.0, *panel.limits]), *(one[first:] for one in figures)])
    low, high = np.nanmin(drawn), np.nanmax(drawn)
    axes.set_ylim(low - 0.08 * (high - low), high + 0.08 * (high - low))


def _line(values: Numbers) -> tuple[Numbers, Numbers]:
    """The answers that have a figure, counted from 1, and the figures."""
    known = np.flatnonzero(np.isfinite(values))
    return (known + 1).astype(np.float64), values[known]
