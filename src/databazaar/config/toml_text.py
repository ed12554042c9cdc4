"""Settings as TOML text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def toml_text(settings: Mapping[str, Any]) -> str:
    """Sections, and lists of sections in double brackets; what is None is left out.

    >>> print(toml_text({"market": {"budget": "1.50", "name": None}, "stops": [{"kind": "a"}, {"kind": "b"}]}))
    [market]
    budget = "1.50"
    <BLANKLINE>
    [[stops]]
    kind = "a"
    <BLANKLINE>
    [[stops]]
    kind = "b"
    <BLANKLINE>
    """
    sections = []
    for name, value in settings.items():
        for section in [value] if isinstance(value, Mapping) else value:
            head = f"[{_key(name)}]" if isinstance(value, Mapping) else f"[[{_key(name)}]]"
            lines = [f"{_key(key)} = {toml_value(inner)}" for key, inner in section.items() if inner is not None]
            sections.append("\n".join([head, *lines]) + "\n")
    return "\n".join(sections)


def quoted(text: str) -> str:
    """Text as TOML writes it.

    >>> print(quoted('a "b"'))
    "a \\"b\\""
    """
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(key: str) -> str:
    """
    >>> _key("per_round"), _key("a b")
    ('per_round', '"a b"')
    """
    return key if key.isascii() and key.replace("_", "").replace("-", "").isalnum() else quoted(key)


def toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, Mapping):
        pairs = (f"{_key(key)} = {toml_value(inner)}" for key, inner in value.items() if inner is not None)
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return repr(value)
