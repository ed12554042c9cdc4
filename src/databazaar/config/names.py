"""Names that market.toml can hold, made from the names of files."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from databazaar.data.tables import SUFFIXES

LONGEST_ID = 60
LONGEST_NAME = 200


def table_suffix(path: Path) -> str | None:
    """How the name says that a file is a table: ".csv.gz" for north.csv.gz."""
    return next((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), None)


def stem_of(path: Path) -> str:
    """The name without what says that it is a table.

    >>> stem_of(Path("data/north.2024.csv.gz"))
    'north.2024'
    """
    return path.name[: -len(suffix)] if (suffix := table_suffix(path)) else path.stem


def provider_ids(paths: Iterable[Path]) -> list[str]:
    """An id for each file: its name in small letters, with a number where two would be alike.

    >>> provider_ids([Path("Bank North.csv"), Path("bank-north.parquet"), Path("?.csv")])
    ['bank-north', 'bank-north-2', 'provider']
    """
    ids: list[str] = []
    taken: set[str] = set()
    for path in paths:
        plain = unicodedata.normalize("NFKC", stem_of(path)).casefold()
        plain = re.sub(r"[^\w.-]+", "-", plain)[:LONGEST_ID].strip("-._") or "provider"
        choices = itertools.chain([plain], (f"{plain}-{number}" for number in itertools.count(2)))
        ids.append(next(choice for choice in choices if choice not in taken))
        taken.add(ids[-1])
    return ids


def writable(name: str) -> bool:
    """Whether market.toml can hold a name: visible, without spaces around it, not too long."""
    return name == name.strip() and bool(name) and name.isprintable() and len(name) <= LONGEST_NAME
