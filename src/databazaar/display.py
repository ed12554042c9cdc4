"""How objects show themselves: one screen in a terminal, a small table in a notebook. Data are told by their size."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

LINE = 160
"""What is short enough is shown on one line."""
MOST_ROWS = 10
"""So many rows of a table are shown; the rest is counted."""
WIDEST = 60
"""Longer words are cut: they may be somebody else's."""


class Displayed:
    """Base of what has more inside than a screen holds. Write `_facts`, and `_table` where there is one.

    >>> class Stall(Displayed):
    ...     def _facts(self):
    ...         return {"open": "yes", "goods": "3 apples"}
    >>> Stall()
    Stall(open: yes, goods: 3 apples)
    """

    def _facts(self) -> Mapping[str, str]:
        raise NotImplementedError

    def _table(self) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        """Heads and rows, the most important row first; none where there is nothing to list."""
        return (), ()

    def __repr__(self) -> str:
        name, facts = type(self).__name__, {key: shown(value) for key, value in self._facts().items()}
        heads, rows = self._table()
        short = f"{name}({', '.join(f'{key}: {value}' for key, value in facts.items())})"
        if not heads and len(short) <= LINE:
            return short
        wide = max(map(len, facts))
        lines = [name, *(f"  {key:<{wide}}  {value}" for key, value in facts.items())]
        return "\n".join([*lines, "", *(f"  {line}" for line in _columns(heads, rows))] if heads else lines)

    def _repr_html_(self) -> str:
        facts = "".join(_row([key, value], "th", "td") for key, value in self._facts().items())
        heads, rows = self._table()
        parts = [f"<p><b>{type(self).__name__}</b></p>", f"<table>{facts}</table>"]
        if heads:
            body = "".join(_row(row) for row in rows[:MOST_ROWS])
            parts.append(f"<table><thead>{_row(heads, 'th', 'th')}</thead><tbody>{body}</tbody></table>")
        if len(rows) > MOST_ROWS:
            parts.append(f"<p>… and {len(rows) - MOST_ROWS:,} more</p>")
        return f"<div>{''.join(parts)}</div>"


def shown(value: object, most: int | None = 4 * WIDEST) -> str:
    """Words of other people as a screen, a page or a figure may show them: on one line, not longer than `most`, and
    nothing in them that a terminal obeys, that cannot be seen or that turns the text around it.

    >>> shown("north\\nbank \\x1b[2J\\u202eknab")
    'north�bank �[2J�knab'
    """
    text = str(value)
    if most is not None and len(text) > most:
        text = f"{text[: most - 1]}…"
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else " " if unicodedata.category(one) == "Zs" else "\ufffd" for one in text)


def shown_lines(text: str) -> str:
    """Text of several lines, each of them `shown` in full.

    >>> shown_lines("one\\x07\\ntwo\\n")
    'one�\\ntwo\\n'
    """
    return "\n".join(shown(line, None) for line in text.split("\n"))


def listed(words: Sequence[object], most: int = 5) -> str:
    """The first few of many.

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    first = ", ".join(shown(word, WIDEST) for word in words[:most])
    return first if len(words) <= most else f"{first} and {len(words) - most:,} more"


def size_of(data: Any) -> str:
    """What rows there are, without showing any: data are somebody's own, and large.

    >>> import numpy as np
    >>> size_of((np.zeros((300, 8)), np.zeros(300)))
    '300 rows of 8'
    """
    data = getattr(data, "tensors", data)  # of a torch dataset, or of inputs with names
    if isinstance(data, tuple) and data:
        return size_of(data[0])
    if isinstance(data, Mapping):
        return "; ".join(f"{key}: {size_of(part)}" for key, part in data.items())
    shape = tuple(getattr(data, "shape", ()))
    if not shape:
        return type(data).__name__
    return f"{shape[0]:,} rows" + (f" of {'×'.join(map(str, shape[1:]))}" if shape[1:] else "")


def _columns(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """A table as text: words to the left, numbers to the right."""
    cells = [[shown(cell, WIDEST // 2) for cell in row] for row in (heads, *rows[:MOST_ROWS])]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    left = [isinstance(cell, str) for cell in (rows[0] if rows else heads)]
    lines = [
        "  ".join(
            f"{cell:<{width}}" if to_left else f"{cell:>{width}}"
            for cell, width, to_left in zip(row, widths, left, strict=True)
        ).rstrip()
        for row in cells
    ]
    return [*lines, f"… and {len(rows) - MOST_ROWS:,} more"] if len(rows) > MOST_ROWS else lines


def _row(cells: Sequence[object], first: str = "td", other: str = "td") -> str:
    tags = [first, *[other] * (len(cells) - 1)]
    written = (f"<{tag}>{escape(shown(cell))}</{tag}>" for tag, cell in zip(tags, cells, strict=True))
    return f"<tr>{''.join(written)}</tr>"


def duration(seconds: float) -> str:
    """
    >>> duration(0.2), duration(42), duration(200), duration(9000)
    ('a second', '42 seconds', '3 minutes', '2.5 hours')
    """
    if seconds < 1.5:
        return "a second"
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
