"""Users' CSV and Parquet files as tables, with the common faults of such files refused by name."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import warnings
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from databazaar.data.columns import listed
from databazaar.data.formats import Found, TableFormat, find_out
from databazaar.data.images import class_folders, is_image, read_class_folders, with_images
from databazaar.data.memory_limits import refuse_too_large, table_room, text_room
from databazaar.data.parquet import read_parquet
from databazaar.data.schema import Array, Schema
from databazaar.data.schema_message import TaskKind
from databazaar.data.target import labelled
from databazaar.errors import BazaarError

__all__ = ["SUFFIXES", "Array", "Schema", "TableFile", "TableFormat", "labelled", "read_table", "table_suffix"]

_SEPARATORS = {".csv": ",", ".tsv": "\t", ".txt": "\t", ".csv.gz": ",", ".tsv.gz": "\t", ".txt.gz": "\t"}
SUFFIXES = (*_SEPARATORS, ".parquet")


@dataclass(frozen=True, eq=False)
class TableFile:
    """A table and the file that it was read from, in one read. `digest` is the SHA-256 of the very bytes that `frame`
    was made from, and `notes` say what was assumed of them. `unlabelled` counts the rows that `labelled` has left
    out."""

    path: Path
    frame: pd.DataFrame
    digest: str
    notes: tuple[str, ...] = ()
    unlabelled: int = 0

    def labelled(self, target: str, task: TaskKind) -> TableFile:
        """Only the rows of which the target is known."""
        known = labelled(self.frame, target, task, str(self.path))
        return replace(self, frame=known, unlabelled=self.unlabelled + len(self.frame) - len(known))


def table_suffix(path: Path) -> str | None:
    """How the name says that a file is a table: ".csv.gz" for north.csv.gz."""
    return next((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), None)


def read_table(path: Path, format: TableFormat | None = None) -> TableFile:
    """The table in a CSV, TSV or Parquet file, or of a folder of images (data/images.py), with at least one row and
    distinct column names. The file is opened and read once. How a text file is written is found out, unless `format`
    says so."""
    if os.path.isdir(path):  # noqa: PTH112 (false, and no error, for a name that no file can have)
        return _read_images(path, format)
    if (suffix := table_suffix(path)) is None:
        raise BazaarError(
            f"{path}: the file type {path.suffix!r} is not known: save the table as {', '.join(SUFFIXES)}"
        )
    try:
        kind = None if path.is_file() else "is not a file" if path.exists() else "does not exist"
    except OSError as error:  # a name that is too long, a folder that may not be looked into
        kind = f"cannot be looked at ({error.strerror})"
    if kind is not None:
        raise BazaarError(
            f"{path}: the file {kind}: correct the path (in market.toml it is relative to that file's folder)"
        )
    try:
        if suffix == ".parquet":
            raw = _content(path, table_room())
            frame, names = read_parquet(pa.BufferReader(raw))
            notes: tuple[str, ...] = ()
        else:
            raw = _content(path, text_room())
            text = _unpacked(raw, text_room()) if suffix.endswith(".gz") else raw
            frame, names, notes = _read_text(text, format or TableFormat(), _SEPARATORS[suffix])
    except pd.errors.EmptyDataError:
        raise BazaarError(f"{path}: the file is empty: write a header line and at least one row") from None
    except BazaarError as error:
        raise BazaarError(f"{path}: {error}") from None
    except (OSError, EOFError, ValueError, KeyError, NotImplementedError, zlib.error, pd.errors.ParserWarning) as error:
        reason = _plainly(" ".join(str(error).split()).removesuffix(".")[:160])
        raise BazaarError(
            f"{path}: the file cannot be read as {suffix} ({reason}): correct it or save it again"
        ) from None
    repeated = sorted(name for name, times in Counter(names).items() if times > 1)
    if repeated:
        raise BazaarError(f"{path}: the column {repeated[0]!r} appears more than once: rename or drop one of them")
    if not len(frame):
        raise BazaarError(
            f"{path}: the file has the columns {listed(names)} but no rows: add data or leave the file out"
        )
    return TableFile(path, frame, hashlib.sha256(raw).hexdigest(), notes)


def _read_images(path: Path, format: TableFormat | None) -> TableFile:
    try:
        tables = tables_in(path)
        if not tables:
            frame, digest = read_class_folders(path)
            if not len(frame):
                raise BazaarError("the folder has no class folders with images: give a folder for each class")
            return TableFile(path, frame, digest)
        if len(tables) > 1:
            raise BazaarError(f"the folder has {len(tables)} tables: leave the one whose rows name its images")
        table = read_table(tables[0], format)
        frame, digest = with_images(table.frame, path, table.digest)
    except BazaarError as error:
        raise BazaarError(f"{path}: {error}") from None
    except OSError as error:
        raise BazaarError(f"{path}: the folder cannot be read ({error.strerror}): correct its rights") from None
    return replace(table, path=path, frame=frame, digest=digest)


def tables_in(path: Path) -> list[Path]:
    """The files of a folder that are tables."""
    return sorted(one for one in path.iterdir() if one.is_file() and table_suffix(one))


def holds_images(path: Path) -> bool:
    """Whether a folder is a table of images: at least two class folders, or one table beside image files."""
    if not path.is_dir() or path.is_symlink():
        return False
    if tables := tables_in(path):
        return len(tables) == 1 and any(is_image(one.name) for one in path.iterdir())
    return len(class_folders(path)) >= 2


def _plainly(reason: str) -> str:
    """What pandas says of lines that are longer than the header, without its own inner matters.

    >>> _plainly("Error tokenizing data. C error: Expected 3 fields in line 7, saw 4")
    'line 7 has 4 fields, and the lines before it 3'
    """
    if longer := re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", reason):
        return f"line {longer[2]} has {longer[3]} fields, and the lines before it {longer[1]}"
    return "its lines have more fields than its header" if reason.startswith("Length of header") else reason


def _read_text(raw: bytes, format: TableFormat, usual: str) -> tuple[pd.DataFrame, list[str], tuple[str, ...]]:
    """The table, its header as written (pandas itself renames repeated columns), and notes."""
    found = find_out(raw, format, usual)
    options: dict[str, Any] = {
        "sep": found.separator,
        "quotechar": found.quote,
        "decimal": found.decimal,
        "na_values": list(format.missing),
        "index_col": False,
        "low_memory": False,
        "skipinitialspace": True,
        "encoding": "utf-8",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        frame = pd.read_csv(io.BytesIO(found.text), **options)
        codes = _columns_of_codes(found, frame, options)
        if codes:
            frame = pd.read_csv(io.BytesIO(found.text), dtype=dict.fromkeys(codes, str), **options)
    if found.decimal == ",":
        frame = _without_groups(frame)
    frame, names, index = _named(frame, found.header)
    return frame, names, (*found.notes, *index)


def _content(path: Path, room: int) -> bytes:
    """All bytes of a file; one that memory may not hold is not read."""
    with path.open("rb") as file:
        refuse_too_large(os.fstat(file.fileno()).st_size, room)
        return file.read()


def _unpacked(raw: bytes, room: int) -> bytes:
    """What a compressed text file holds; one that memory may not hold is not unpacked to its end."""
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
        text = file.read(room + 1)
    refuse_too_large(len(text), room, "unpacked, the file")
    return text


def _columns_of_codes(found: Found, frame: pd.DataFrame, options: dict[str, Any]) -> list[str]:
    """The columns of whole numbers of which some begin with zeros, as 00123: names that pandas takes for amounts."""
    separator = re.escape(found.separator.encode())
    zeros = rb"(?:^|[\n\"' ]|%b)0[0-9]+[\"' ]*(?:%b|\r?\n|$)" % (separator, separator)
    if not re.search(zeros, found.text):
        return []
    whole = [str(name) for name, column in frame.items() if _could_be_codes(column)]
    if not whole:
        return []
    written = pd.read_csv(io.BytesIO(found.text), usecols=whole, dtype=str, **options)
    return [name for name in whole if written[name].str.fullmatch(r"\s*0\d+\s*").any()]


def _could_be_codes(column: pd.Series[Any]) -> bool:
    """Whether all that is there are whole numbers; with gaps, pandas holds them as floats."""
    if not pd.api.types.is_numeric_dtype(column.dtype) or pd.api.types.is_bool_dtype(column.dtype):
        return False
    given = column.dropna()
    return bool(len(given) and (given == np.floor(given)).all())


def _without_groups(frame: pd.DataFrame) -> pd.DataFrame:
    """In a file with decimal commas, 1.234 is a thousand and more: pandas leaves such columns as text."""
    columns = dict(frame.items())
    for name in frame.columns[[pd.api.types.is_string_dtype(dtype) for dtype in frame.dtypes]]:
        given = frame[name].dropna().str.strip()
        if len(given) and given.str.fullmatch(r"[+-]?(?:\d{1,3}(?:\.\d{3})+|\d+)(?:,\d+)?").all():
            bare = frame[name].str.strip().str.replace(".", "").str.replace(",", ".")
            columns[name] = pd.to_numeric(bare)
    return pd.DataFrame(columns)  # all at once: putting them in one by one would move all others every time


def _named(frame: pd.DataFrame, header: list[str]) -> tuple[pd.DataFrame, list[str], tuple[str, ...]]:
    """Columns without a name are left out where they are empty, or where the first only counts the rows."""
    unnamed = [place for place, name in enumerate(header) if not name and place < frame.shape[1]]
    empty = {place for place in unnamed if frame.iloc[:, place].isna().all()}
    counting = {place for place in unnamed if place == 0 < len(header) - 1 and _counts(frame.iloc[:, 0])}
    if gone := empty | counting:
        frame = frame.iloc[:, [place for place in range(frame.shape[1]) if place not in gone]]
    note = "its first column has no name and only counts the rows, and is left out"
    named = frame.rename(columns=lambda name: str(name).strip())
    return named, [name for name in header if name], (note,) if counting else ()


def _counts(column: pd.Series[Any]) -> bool:
    return bool(pd.api.types.is_integer_dtype(column.dtype) and (column.diff().iloc[1:] == 1).all())


@dataclass(frozen=True)
class TableReference:
    """Reads and encodes a table wherever it is called: a worker on another machine reads its rows from a shared folder.
    A row has this `shape`; the bytes of the file must have this `digest`."""

    path: Path
    digest: str
    format: TableFormat
    schema: Schema
    shape: tuple[int, ...]

    def __call__(self) -> tuple[npt.NDArray[np.float32], Array]:
        if not self.path.is_file():
            raise BazaarError(f"{self.path} is not on a worker's machine: share its folder with every machine")
        table = read_table(self.path, self.format).labelled(self.schema.target, self.schema.task)
        if table.digest != self.digest:
            raise BazaarError(f"{self.path} has changed since the run began: put the old file back, or run anew")
        x, y = self.schema.encode(table.frame, str(self.path))
        return x.reshape(len(x), *self.shape), y
