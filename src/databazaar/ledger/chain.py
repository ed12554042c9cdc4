"""Entries of the ledger, each sealed with the hash of all that came before it."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

from databazaar.canonical import canonical, chained
from databazaar.codes import Code

Kind = Literal["open", "reserve", "post", "void", "release", "return", "round", "close"]
KINDS: tuple[str, ...] = get_args(Kind)
_FIELDS: dict[Kind, tuple[bool | None, ...]] = {
    **dict.fromkeys(("open", "close"), (False, False, False, False)),
    **dict.fromkeys(("reserve", "post", "void"), (True, True, True, True)),
    **dict.fromkeys(("release", "return"), (None, False, True, True)),
    "round": (True, False, False, False),
}
"""Which of round, draw, provider and amount an entry has, by its kind; None leaves it open."""

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
    def opens(self) -> bool:
        return self.kind == "open"

    @property
    def reserves(self) -> bool:
        return self.kind == "reserve"

    @property
    def settles(self) -> bool:
        """Whether it settles an access: a post, or a void."""
        return self.kind in ("post", "void")

    @property
    def posts(self) -> bool:
        return self.kind == "post"

    @property
    def frees(self) -> bool:
        """Whether it settles pay that was held back."""
        return self.kind in ("release", "return")

    @property
    def releases(self) -> bool:
        return self.kind == "release"

    @property
    def ends_round(self) -> bool:
        return self.kind == "round"

    @property
    def closes(self) -> bool:
        return self.kind == "close"

    @property
    def well_formed(self) -> bool:
        """Whether it has the fields that an entry of its kind has, and no others."""
        found = (self.round, self.draw, self.provider, self.amount)
        pairs = zip(_FIELDS[self.kind], found, strict=True)
        return all(has is None or has == (value is not None) for has, value in pairs)

    @property
    def reason(self) -> Code | None:
        """Why it is void, where it says so; a ValueError where what it says is no code."""
        return Code.read(self.body["reason"]) if "reason" in self.body else None

    @property
    def fields(self) -> Fields:
        return self[:7]

    def digest(self, previous: str) -> str:
        """The hash of the entry: that of the one before it and of its own canonical JSON."""
        return chained(previous, canonical(self.fields))

    def __str__(self) -> str:
        where = [f"round {self.round}"] if self.round is not None else []
        where += [f"draw {self.draw}"] if self.draw is not None else []
        return f"entry {self.seq} ({', '.join([self.kind, *where])})"
