"""Users' CSV and Parquet files as tables, with the common faults of such files refused by name."""

from __future__ import annotations

import warnings
import zlib
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from databazaar.data.columns import listed
from databazaar.data.schema import Array, CategoricalColumn, NumericColumn, Schema
from databazaar.errors import BazaarError

__all__ = ["Array", "CategoricalColumn", "NumericColumn", "Schema", "read_table"]

_SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t"}
_SUFFIXES = (*_SEPARATORS, ".parquet")


def read_table(path: Path) -> pd.DataFrame:
    """The table in a CSV, TSV or Parquet file, with at least one row and distinct column names."""
    suffix = next((known for known in _SUFFIXES if path.name.lower().endswith(known)), None)
    if suffix is None:
        raise BazaarError(
            f"{path}: the file type {path.suffix!r} is not known: save the table as {', '.join(_SUFFIXES)}"
        )
    if not path.is_file():
        kind = "is not a file" if path.exists() else "does not exist"
        raise BazaarError(
            f"{path}: the file {kind}: correct the path (in market.toml it is relative to that file's folder)"
        )
    try:
        if suffix == ".parquet":
            frame, names = _read_parquet(path)
        else:
            frame, names = _read_text(path, _SEPARATORS[suffix])
    except pd.errors.EmptyDataError:
        raise BazaarError(f"{path}: the file is empty: write a header line and at least one row") from None
    except (
        OSError,
        EOFError,
        ValueError,
        KeyError,
        NotImplementedError,
        zlib.error,
        pd.errors.ParserWarning,
    ) as error:
        reason = " ".join(str(error).split()).removesuffix(".")[:160]
        raise BazaarError(
            f"{path}: the file cannot be read as {suffix} ({reason}): correct it or save it again"
        ) from None
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise BazaarError(f"{path}: the column {repeated[0]!r} appears more than once: rename or drop one of them")
    if not len(frame):
        raise BazaarError(
            f"{path}: the file has the columns {listed(names)} but no rows: add data or leave the file out"
        )
    return frame


def _read_text(path: Path, separator: str) -> tuple[pd.DataFrame, list[str]]:
    """The table and its header as written: pandas itself renames repeated columns."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        header = pd.read_csv(
            path, sep=separator, header=None, nrows=1, dtype=str, keep_default_na=False, encoding="utf-8-sig"
        )
        frame = pd.read_csv(path, sep=separator, index_col=False, low_memory=False, encoding="utf-8-sig")
    return frame, [str(name) for name in header.iloc[0]]


def _read_parquet(path: Path) -> tuple[pd.DataFrame, list[str]]:
    names = [str(name) for name in pq.read_schema(path).names]
    return (pd.read_parquet(path) if len(set(names)) == len(names) else pd.DataFrame()), names
