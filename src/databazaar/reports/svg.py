"""A figure as SVG markup that may stand inside a page beside others."""

from __future__ import annotations

import io
import re

from matplotlib.figure import Figure

from databazaar.reports import style
from databazaar.reports.wording import escape


def inline_svg(figure: Figure, name: str, title: str, description: str) -> str:
    """The figure's `<svg>` element: no date, no outside reference, every id prefixed with `name`.

    The same figure gives the same bytes. `title` and `description` are for screen readers.
    """
    written = io.StringIO()
    with style.look():
        figure.savefig(written, format="svg", dpi=170, metadata={"Date": None, "Creator": None})
    markup = written.getvalue()
    markup = markup[markup.index("<svg") :]
    markup = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", markup, flags=re.DOTALL)
    markup = re.sub(r'\bid="', f'id="{name}-', markup)
    markup = re.sub(r'href="#', f'href="#{name}-', markup)
    markup = re.sub(r"url\(#", f"url(#{name}-", markup)
    markup = re.sub(r"\n\s*", "\n", markup)
    opening = re.match(r'<svg[^>]*viewBox="([^"]+)"[^>]*>', markup)
    assert opening is not None, "matplotlib wrote an SVG without a view box"
    return (
        f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{opening[1]}" role="img"'
        f' aria-label="{escape(title)}. {escape(description)}">\n'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>" + markup[opening.end() :].strip()
    )
