"""An HTML page that is complete in itself: it opens offline, asks the network for nothing and needs no script."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources

from databazaar.reports.wording import escape


def document(title: str, brand: str, header: str, content: str) -> str:
    """The whole page; `header` and `content` are ready markup. The same arguments give the same bytes."""
    style, script = _asset("report.css"), _asset("sort.js")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<header class="top">
<div class="brand">{escape(brand)}</div>
<h1>{escape(title)}</h1>
{header}
</header>
<main>
{content}
</main>
<footer>Made by databazaar. This file is complete in itself and loads nothing from the network.</footer>
<script>{script}</script>
</body>
</html>
"""


def badge(text: str, good: bool) -> str:
    mark = "✓" if good else "✗"
    kind = "badge" if good else "badge bad"
    return f'<span class="{kind}"><span aria-hidden="true">{mark}</span> {escape(text)}</span>'


def _asset(name: str) -> str:
    return resources.files("databazaar.reports").joinpath(name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """Nothing may load from anywhere, and the one script that may run is ours."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
