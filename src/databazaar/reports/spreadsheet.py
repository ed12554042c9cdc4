"""CSV that a spreadsheet may open: no cell of text is taken for a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from decimal import Decimal

from databazaar.display import shown_lines


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The table with a line of heads. Numbers are written as they are, text so that it stays text."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return written.getvalue()


def _cell(value: object) -> object:
    """Text that a spreadsheet would take for a formula gets a single quote in front; ends of lines and tabs stay, and
    nothing else that a terminal obeys."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if not isinstance(value, str):
        return value
    text = value.encode("utf-8", "replace").decode("utf-8")
    text = text.replace("\r\n", "\n").replace("\r", "\n")  # csv would leave a lone \r unquoted, and begin a new row
    risky = text.lstrip()[:1] in {"=", "+", "-", "@"} or text[:1] in {"\t", "\n"}
    return "\t".join(map(shown_lines, (f"'{text}" if risky else text).split("\t")))
