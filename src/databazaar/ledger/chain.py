"""Entries of the ledger, each sealed with the hash of all that came before it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from typing import Any, Literal, get_args

Kind = Literal["open", "reserve", "post", "void", "release", "return", "round", "close"]
KINDS: tuple[str, ...] = get_args(Kind)
GENESIS = "0" * 64
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


Fields = tuple[int, Kind, int | None, int | None, str | None, int | None, dict[str, Any]]
"""All of an entry but its hash."""


@dataclass(frozen=True)
class Entry:
    """One line of the ledger. Money moves only in reserve, post and void, which are keyed by (round, draw), and in
    release and return, which settle all that posts have held back of a provider: for it, or for the consumer.

    `text` is the body's canonical JSON where a ledger has just sealed it, or a store has read it and compared it with
    the body: it need not be written again. An entry that is made or changed anywhere else has none.
    """

    seq: int
    kind: Kind
    round: int | None
    draw: int | None
    provider: str | None
    amount: int | None
    body: dict[str, Any]
    hash: str = ""
    text: str | None = field(default=None, init=False, compare=False, repr=False)

    @classmethod
    def stored(
        cls,
        text: str,
        seq: int,
        kind: Kind,
        round: int | None,
        draw: int | None,
        provider: str | None,
        amount: int | None,
        body: dict[str, Any],
        hash: str,
    ) -> Entry:
        """An entry as a store has read it or is given it, whose body is spelled like this. It is what `Entry` makes,
        only sooner: to set nine attributes of a frozen object one by one was a tenth of a round's bookkeeping."""
        entry = object.__new__(cls)
        fields = {
            "seq": seq,
            "kind": kind,
            "round": round,
            "draw": draw,
            "provider": provider,
            "amount": amount,
            "body": body,
            "hash": hash,
            "text": text,
        }
        object.__setattr__(entry, "__dict__", fields)
        return entry

    def sealed(self, previous: str) -> Entry:
        return Entry(*self.fields, hash=self.digest(previous))

    @property
    def fields(self) -> Fields:
        return self.seq, self.kind, self.round, self.draw, self.provider, self.amount, self.body

    def digest(self, previous: str) -> str:
        return digest(previous, self.fields, self.text)

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


def digest(previous: str, fields: Fields, text: str | None = None) -> str:
    """The hash of an entry: that of the one before it and of its own canonical JSON. `text` is the body's, if known."""
    seq, kind, round, draw, provider, amount, body = fields
    if type(seq) is type(round) is int and kind in _OF_ROUNDS:  # canonical, only sooner
        if text is None:
            text = canonical(body) if body or type(body) is not dict else "{}"
        if type(draw) is type(amount) is int and type(provider) is str:
            return access_digest(previous, seq, kind, round, draw, provider, amount, text)
        if draw is None and provider is None and amount is None:
            return hashlib.sha256(f'{previous}\n[{seq},"{kind}",{round},null,null,null,{text}]'.encode()).hexdigest()
    if text is not None and type(seq) is int and kind in KINDS and fields[2:6] == (None,) * 4:  # an opening may be long
        sealed = hashlib.sha256(f'{previous}\n[{seq},"{kind}",null,null,null,null,'.encode())
        sealed.update(text.encode())
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
