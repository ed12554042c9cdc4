"""For the documentation site: examples in docstrings become code blocks; Markdown alone takes >>> for quotes."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", flags=re.MULTILINE)


class DoctestFences(griffe.Extension):
    """Fences each run of lines that begins with >>> and ends at an empty line."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
