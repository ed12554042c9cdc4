"""One look for every figure: how it is made, labelled and written as a file or into a page."""

from __future__ import annotations

import io
import re
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any, ParamSpec

import matplotlib.style
from markupsafe import Markup
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure, SubFigure
from matplotlib.font_manager import findfont, get_font
from matplotlib.ticker import MaxNLocator

Arguments = ParamSpec("Arguments")

# The colours of Okabe and Ito, which readers with any kind of colour vision tell apart.
BLUE, VERMILLION, GREEN, ORANGE, PINK, SKY = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9"
OWNER_COLOURS = (BLUE, ORANGE, GREEN, PINK, VERMILLION, SKY)
GREY, INK, MUTED, HAIRLINE = "#9AA3AF", "#1F2937", "#566070", "#E3E7EC"

WIDTH = 5.0  # inches; two figures sit side by side on a desktop, one fills a phone
HEIGHT = 3.4
MOST_ROWS = 40
DASHED = (0, (4, 3))
FONT = "DejaVu Sans"  # ships with matplotlib
SMALL = 8.0
DPI = 170

LOOK: dict[str, object] = {
    "font.family": [FONT],
    "font.size": 9.0,
    "text.parse_math": False,
    "text.color": INK,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.labelcolor": MUTED,
    "axes.labelsize": 8.5,
    "axes.edgecolor": HAIRLINE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": HAIRLINE,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.fontsize": SMALL,
    "legend.borderpad": 0.1,
    "legend.borderaxespad": 0.7,
    "lines.linewidth": 1.9,
    "lines.solid_capstyle": "round",
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.w_pad": 0.08,
    "svg.fonttype": "path",
    "svg.hashsalt": "databazaar",
}


def look() -> AbstractContextManager[None]:
    """Our settings and matplotlib's own defaults, whatever the user's matplotlibrc says."""
    return matplotlib.style.context(["default", LOOK])


def styled(draw: Callable[Arguments, Figure]) -> Callable[Arguments, Figure]:
    """Draw under `look()`."""

    @wraps(draw)
    def drawn(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Figure:
        with look():
            return draw(*args, **kwargs)

    return drawn


def laid_out(figure: Figure) -> Figure:
    """The figure with its parts in their places for good, so that no file that is written of it moves them."""
    engine = figure.get_layout_engine()
    if engine is not None:
        with look():
            engine.execute(figure)
        figure.set_layout_engine("none")
    return figure


def as_svg(figure: Figure) -> str:
    """The figure's file, without the time and the program."""
    written = io.StringIO()
    with look():
        figure.set_dpi(DPI)
        FigureCanvasSVG(figure).print_svg(written, metadata={"Date": None, "Creator": None})  # type: ignore[no-untyped-call]
    return written.getvalue()


def as_png(figure: Figure) -> bytes:
    """The same bytes as `savefig` writes. That draws every figure twice, for a layout which ours has already."""
    written = io.BytesIO()
    with look():
        figure.set_dpi(DPI)
        FigureCanvasAgg(figure).print_png(written, metadata={"Software": None})  # type: ignore[no-untyped-call]
    return written.getvalue()


@dataclass(frozen=True)
class Drawing:
    """A figure for the macro `figure`: what stands inside its `<svg>`, the closing tag too, and the view box."""

    view_box: str
    inside: Markup


def inline_svg(figure: Figure, name: str) -> Drawing:
    """The figure with no date, no outside reference, and every id prefixed with `name`. Same figure, same bytes."""
    markup = as_svg(figure)
    markup = markup[markup.index("<svg") :]
    markup = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", markup, flags=re.DOTALL)
    markup = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", markup)
    markup = re.sub(r"\n\s*", "\n", markup)
    opening = re.match(r'<svg[^>]*viewBox="([^"]+)"[^>]*>', markup)
    assert opening is not None, "matplotlib wrote an SVG without a view box"
    return Drawing(opening[1], Markup(markup[opening.end() :].strip()))  # noqa: S704


def new_figure(height: float = HEIGHT) -> Figure:
    return Figure(figsize=(WIDTH, height), layout="constrained", facecolor="white")


def chart(title: str, note: str = "", height: float = HEIGHT) -> tuple[Figure, Axes]:
    """A figure with one pair of axes, its title on the left and a note on the right."""
    figure = new_figure(height)
    axes = figure.subplots()
    titled(axes, title, note)
    return figure, axes


def titled(axes: Axes, title: str, note: str = "", **more: Any) -> None:
    axes.set_title(title, loc="left", **more)
    axes.set_title(note, loc="right", fontweight="normal")


def height_for(rows: int) -> float:
    """Tall enough for one line of text a row, up to MOST_ROWS."""
    return max(HEIGHT, 0.18 * min(rows, MOST_ROWS) + 1.1)


def rounds_axis(axes: Axes, rounds: int) -> None:
    """The horizontal axis that the figures share: rounds completed, whole numbers only."""
    axes.set_xlabel("rounds completed")
    axes.set_xlim(0, max(rounds, 1))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(lambda value, _position: f"{value:,.0f}")


def legend(figure: Figure | SubFigure, handles: Sequence[Artist], names: Sequence[str], **more: Any) -> None:
    """A legend below the figure, whatever the names are."""
    # Matplotlib refuses labels that begin with an underscore, so the names are set afterwards.
    made = figure.legend(handles, ["name"] * len(names), loc="outside lower center", **more)
    for text, name in zip(made.get_texts(), names, strict=True):
        text.set_text(label(name))


def label(text: str, most: int = 20) -> str:
    """The text as a figure may show it: drawable glyphs, at most so many, cut in the middle."""
    glyphs = _glyphs()
    safe = "".join(
        character if ord(character) in glyphs and unicodedata.category(character)[0] != "C" else "□"
        for character in " ".join(text.split()) or "(no name)"
    )
    return safe if len(safe) <= most else f"{safe[: most // 2].rstrip()}…{safe[1 - most // 2 :].lstrip()}"


@cache
def _glyphs() -> frozenset[int]:
    return frozenset(int(code) for code in get_font(findfont(FONT)).get_charmap())
