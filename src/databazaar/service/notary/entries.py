"""Entries as they travel: one list each, with exactly the types that a ledger writes and a database keeps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import Field

from databazaar.ledger import Entry
from databazaar.ledger.chain import Kind
from databazaar.service.errors import InvalidError

_Number = Annotated[int, Field(ge=0, lt=2**63)]
_Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Name = Annotated[str, Field(max_length=200)]
_Fields = tuple[_Number, Kind, _Number | None, _Number | None, _Name | None, _Number | None, dict[str, Any], _Hash]
Line = Annotated[_Fields, Field(strict=False)]
"""seq, kind, round, draw, provider, amount, body, hash."""


def entries_of(lines: Iterable[Line]) -> list[Entry]:
    """
    >>> entries_of([(4, "round", 0, None, None, None, {}, "0" * 64)])[0].kind
    'round'
    >>> entries_of([(4, "round", 0, 1, None, None, {}, "0" * 64)])
    Traceback (most recent call last):
    databazaar.service.errors.InvalidError: entry 4 (round, round 0, draw 1): has not what an entry of its kind has
    """
    entries = [Entry(*line) for line in lines]
    for entry in entries:
        if not entry.well_formed:
            raise InvalidError(f"{entry}: has not what an entry of its kind has")
    return entries
