"""How a text file is written: its encoding, separator, quotes and decimal sign, found out from the file itself."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, replace
from typing import NamedTuple

from databazaar.data.memory_limits import refuse_too_large, table_room
from databazaar.errors import BazaarError

SEPARATORS = ("\t", ";", "|", ",")
"""From the least to the most common inside a field: where two fit as well, the first is taken."""
SAMPLE = 128 * 1024
"""The bytes that are looked at, or more where the header is longer."""
LONGEST_LINE = 64 * 2**20
"""A file whose header is longer than this is none of ours: that would be millions of columns."""
_CELL = 32
"""The bytes that pandas takes for a field while it reads a text: where it is, and its value."""
_BOMS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_EXCEL_LINE = re.compile(rb"sep=(.)\r?\n")
_NUMBER = re.compile(r"[+-]?\d+([.,])(\d+)")
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:([.,])\d{3})+([.,])\d+")


@dataclass(frozen=True)
class TableFormat:
    """What is known of the market's text files; what is None is found out for each file. `missing` are texts that stand
    for a missing value, beside the usual ones such as NA and an empty field."""

    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    missing: tuple[str, ...] = ()


class Found(NamedTuple):
    """A text file in UTF-8, and how it is written; `notes` say what was assumed."""

    text: bytes
    header: list[str]
    separator: str
    decimal: str
    quote: str
    notes: tuple[str, ...]


def find_out(raw: bytes, format: TableFormat, usual: str) -> Found:
    """How a file is written, by `format` and else by its beginning; `usual` separates where nothing else does. Lines
    that lack fields are looked for at the beginning and at the very end."""
    text, notes = _as_utf8(raw, format.encoding)
    excel = _EXCEL_LINE.match(text)
    if excel:
        text = text[excel.end() :]
        format = replace(format, separator=format.separator or excel[1].decode())
    sample = _beginning(text)
    quote = "'" if sample.startswith("'") and '"' not in sample else '"'
    separator = format.separator or _separator(sample, quote, usual)
    records = _records(sample, separator, quote)
    after = text.find(b"\n") + 1  # the header alone may be longer than the sample
    values = records[1:] or _records(text[after : after + SAMPLE].decode("utf-8", "replace"), separator, quote)
    decimal = format.decimal or _decimal(values, separator)
    header = [name.strip() for name in records[0]] if records else []
    refuse_many_cells(text, len(header), separator, quote)
    if len(text) > SAMPLE:
        lines = text[-SAMPLE:].decode("utf-8", "replace").rstrip().split("\n")
        records += _records(lines[-1], separator, quote) if len(lines) > 1 else []
    if any(len(record) < len(header) for record in records):
        notes += ("it has lines with fewer fields than the header, as where it was cut off: these count as missing",)
    return Found(text, header, separator, decimal, quote, notes)


def refuse_many_cells(text: bytes, columns: int, separator: str, quote: str, room: int | None = None) -> None:
    """Refuses a text whose table has no room: a line that lacks fields, of two bytes perhaps, becomes a row of all
    columns. Line breaks inside quotes end no row, and are looked for only where there are too many."""
    room = table_room() if room is None else room
    if _cells(text, columns, separator) * _CELL > room:
        quoted = rb"(?<![^\n\r %b])%b[^%b]*%b" % tuple(map(re.escape, map(str.encode, (separator, *quote * 3))))
        refuse_too_large(_cells(re.sub(quoted, b"", text), columns, separator) * _CELL, room)


def _cells(text: bytes, columns: int, separator: str) -> int:
    rows = max(text.count(b"\n"), text.count(b"\r")) + 1
    return max(rows * columns, rows + text.count(separator.encode()))


def _as_utf8(raw: bytes, encoding: str | None) -> tuple[bytes, tuple[str, ...]]:
    marked = next((name for mark, name in _BOMS if raw.startswith(mark)), None)
    chosen = encoding or marked
    if chosen is not None:
        try:
            return raw.decode(chosen).removeprefix("\ufeff").encode(), ()
        except LookupError:
            raise BazaarError(
                f'`encoding` = {encoding!r} is not known: write one such as "utf-8" or "cp1252"'
            ) from None
    if b"\0" in raw[:SAMPLE]:
        raise ValueError("it holds zero bytes, as no text does")
    try:
        raw.decode("utf-8")
        return raw, ()
    except UnicodeDecodeError:
        pass
    try:
        text, called = raw.decode("cp1252"), "Windows-1252"
    except UnicodeDecodeError:
        text, called = raw.decode("latin-1"), "ISO 8859-1"
    return text.encode(), (f"it is not UTF-8 and is read as {called}: if its letters look wrong, set `encoding`",)


def _beginning(text: bytes) -> str:
    """Whole lines only, where the file goes on: the header in any case."""
    if len(text) <= SAMPLE:
        return text.decode("utf-8", "replace")
    header = text.find(b"\n", 0, LONGEST_LINE) + 1
    if not header and len(text) > LONGEST_LINE:
        raise BazaarError(
            f"its first line is longer than {LONGEST_LINE >> 20} MiB: write a line of names, and one line a row"
        )
    end = max(text.rfind(b"\n", 0, SAMPLE) + 1, header) or len(text)
    return text[:end].decode("utf-8", "replace")


def _records(sample: str, separator: str, quote: str) -> list[list[str]]:
    reader = csv.reader(io.StringIO(sample, newline=""), delimiter=separator, quotechar=quote, skipinitialspace=True)
    try:
        return [record for record in reader if record]
    except csv.Error as reason:  # a field that is longer than the csv module takes, for one
        raise ValueError(str(reason)) from None


def _separator(sample: str, quote: str, usual: str) -> str:
    """The one that cuts most lines into as many fields as the header has, and the header into more than one."""
    best, chosen = 0.0, usual
    for separator in SEPARATORS:
        try:
            records = _records(sample, separator, quote)
        except ValueError:
            continue
        if not records or len(records[0]) < 2:
            continue
        agreeing = sum(len(record) == len(records[0]) for record in records[1:] or records) / max(len(records) - 1, 1)
        agreeing = 1.0 if agreeing > 0.95 else agreeing
        if agreeing > best:
            best, chosen = agreeing, separator
    return chosen


def _decimal(records: list[list[str]], separator: str) -> str:
    """A comma where numbers show one and none shows a point; 1,234 alone is in doubt, and settled by the separator."""
    shown = {".": 0, ",": 0}
    doubtful = 0
    for field in (field.strip() for record in records for field in record):
        grouped, number = _GROUPED.fullmatch(field), _NUMBER.fullmatch(field)
        if grouped and grouped[1] != grouped[2]:
            shown[grouped[2]] += 1
        elif number and (len(number[2]) != 3 or field.lstrip("+-").startswith("0") or len(field.lstrip("+-")) > 7):
            shown[number[1]] += 1
        elif number:
            doubtful += number[1] == ","
    if shown["."]:
        return "."
    return "," if shown[","] or (doubtful and separator == ";") else "."
