"""Entries of the ledger, each sealed with the hash of all that came before it."""

from __future__ import annotations

import hashlib
import json
from json.encoder import encode_basestring
from typing import Any, Literal, NamedTuple, get_args

Kind = Literal["open", "reserve", "post", "void", "release", "return", "round", "close"]
KINDS: tuple[str, ...] = get_args(Kind)
GENESIS = "0" * 64
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


Fields = tuple[int, Kind, int | None, int | None, str | None, int | None, dict[str, Any]]
"""All of an entry but its hash."""


class Spelled(dict[str, Any]):
    """A body whose canonical JSON is known, and which therefore must not be changed: a ledger has just sealed it, or a
    store has read it and compared the two. A copy of it is a plain dict, and so is what came from anybody else."""

    __slots__ = ("text",)

    def __init__(self, body: dict[str, Any], text: str) -> None:
        super().__init__(body)
        self.text = text

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (dict(self),)


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


def spelling(body: dict[str, Any]) -> str:
    """The canonical JSON of a body, where it is known or else written now."""
    if type(body) is Spelled:
        return body.text
    return "{}" if body == {} else canonical(body)


def digest(previous: str, fields: Fields) -> str:
    """The hash of an entry: that of the one before it and of its own canonical JSON."""
    seq, kind, round, draw, provider, amount, body = fields
    if type(seq) is type(round) is int and kind in _OF_ROUNDS:  # canonical, only sooner
        if type(draw) is type(amount) is int and type(provider) is str:
            return access_digest(previous, seq, kind, round, draw, provider, amount, spelling(body))
        if draw is None and provider is None and amount is None:
            whole = f'{previous}\n[{seq},"{kind}",{round},null,null,null,{spelling(body)}]'
            return hashlib.sha256(whole.encode()).hexdigest()
    if type(seq) is int and type(body) is Spelled and kind in KINDS and fields[2:6] == (None,) * 4:  # it may be long
        sealed = hashlib.sha256(f'{previous}\n[{seq},"{kind}",null,null,null,null,'.encode())
        sealed.update(body.text.encode())
        sealed.update(b"]")
        return sealed.hexdigest()
    return hashlib.sha256(f"{previous}\n{canonical(fields)}".encode()).hexdigest()


def access_digest(
    previous: str, seq: int, kind: str, round: int, draw: int, provider: str, amount: int, text: str
) -> str:
    """`digest` of an entry about an access, whose fields are what they are said to be: nothing is asked."""
    whole = f'{previous}\n[{seq},"{kind}",{round},{draw},{encode_basestring(provider)},{amount},{text}]'
    return hashlib.sha256(whole.encode()).hexdigest()


_OF_ROUNDS = frozenset(KINDS) - {"open", "close"}
