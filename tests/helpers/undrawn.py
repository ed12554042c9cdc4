"""Reports without drawings, which take longer than a small market: for tests that look at all the rest of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from markupsafe import Markup

from databazaar.reports import run_page
from databazaar.reports.figures import FIGURES
from databazaar.reports.style import Drawing

BLANK = Drawing("0 0 1 1", Markup("</svg>"))


def undraw(replace: Callable[[object, str, Any], None] = setattr) -> None:
    """Takes the drawings out of the reports that this process writes, by `replace`: for good, or as a test does it."""
    replace(run_page, "draw_all", lambda report: dict.fromkeys(FIGURES))
    replace(run_page, "save_png", lambda drawn, folder, within=None: [])
    replace(run_page, "inline_svg", lambda figure, name: BLANK)
