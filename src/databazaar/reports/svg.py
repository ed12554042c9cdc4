"""A figure as SVG that may stand inside a page beside others."""

from __future__ import annotations

import re
from dataclasses import dataclass

from markupsafe import Markup
from matplotlib.figure import Figure

from databazaar.reports import style


@dataclass(frozen=True)
class Drawing:
    """A figure for the macro `figure`: what stands inside its `<svg>`, the closing tag too, and the view box."""

    view_box: str
    inside: Markup


def inline_svg(figure: Figure, name: str) -> Drawing:
    """The figure with no date, no outside reference, and every id prefixed with `name`. Same figure, same bytes."""
    markup = style.as_svg(figure)
    markup = markup[markup.index("<svg") :]
    markup = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", markup, flags=re.DOTALL)
    markup = re.sub(r'\bid="', f'id="{name}-', markup)
    markup = re.sub(r'href="#', f'href="#{name}-', markup)
    markup = re.sub(r"url\(#", f"url(#{name}-", markup)
    markup = re.sub(r"\n\s*", "\n", markup)
    opening = re.match(r'<svg[^>]*viewBox="([^"]+)"[^>]*>', markup)
    assert opening is not None, "matplotlib wrote an SVG without a view box"
    return Drawing(opening[1], Markup(markup[opening.end() :].strip()))  # noqa: S704
