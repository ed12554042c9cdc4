"""Entries of the ledger, each sealed with the hash of all that came before it."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal, NamedTuple, get_args

from databazaar.codes import Code

Kind = Literal["open", "reserve", "post", "void", "release", "return", "round", "close"]
KINDS: tuple[str, ...] = get_args(Kind)
GENESIS = "0" * 64
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)

Fields = tuple[int, Kind, int | None, int | None, str | None, int | None, dict[str, Any]]
"""All of an entry but its hash."""


class Entry(NamedTuple):
    """One line of the ledger. Money moves only in reserve, post and void, which are keyed by (round, draw), and in
    release and return, which settle all that posts have held back of a provider: for it, or for the consumer."""

    seq: int
    kind: Kind
    round: int | None
    draw: int | None
    provider: str | None
    amount: int | None
    body: dict[str, Any]
    hash: str = ""

    def sealed(self, previous: str) -> Entry:
        return Entry(*self.fields, hash=self.digest(previous))

    @property
    def reason(self) -> Code | None:
        """Why it is void, where it says so; a ValueError where what it says is no code."""
        return Code.read(self.body["reason"]) if "reason" in self.body else None

    @property
    def fields(self) -> Fields:
        return self[:7]

    def digest(self, previous: str) -> str:
        return digest(previous, self.fields)

    def __str__(self) -> str:
        where = [f"round {self.round}"] if self.round is not None else []
        where += [f"draw {self.draw}"] if self.draw is not None else []
        return f"entry {self.seq} ({', '.join([self.kind, *where])})"


def canonical(value: Any) -> str:
    """JSON with one spelling only: sorted keys, no spaces, floats as their shortest exact decimal, no NaN.

    >>> canonical({"b": 0.1, "a": [1, None]})
    '{"a":[1,null],"b":0.1}'
    """
    return _ENCODER.encode(value)


def digest(previous: str, fields: Fields) -> str:
    """The hash of an entry: that of the one before it and of its own canonical JSON."""
    return hashlib.sha256(f"{previous}\n{canonical(fields)}".encode()).hexdigest()
