"""What an audit comes to: whether the ledger holds, and all that it went through on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from databazaar.canonical import GENESIS
from databazaar.ledger.book import Book
from databazaar.ledger.record import Record
from databazaar.ledger.rounds import Scores
from databazaar.ledger.terms import Terms
from databazaar.samplers.protocol import State


@dataclass(frozen=True)
class BestModel:
    """The model of the highest utility, by its hash: what the consumer gets. `round` rounds had been played then."""

    round: int
    utility: float
    loss: float | None
    model: str


@dataclass
class Audit:
    """What an audit found. `first_broken` is the sentence about the first entry that does not hold.

    `replies` is how many accesses were settled by a signed reply, which the entry names.

    What it went through on the way is there too: the terms, the book, the `scores` of the last round, the `state` that
    the rules have come to, and where it was asked for a `record`, that.
    """

    entries: int = 0
    rounds: int = 0
    head: str = GENESIS
    opening: str = GENESIS
    first_broken: str | None = None
    model: str | None = None
    best: BestModel | None = None
    terms: Terms | None = None
    book: Book | None = None
    closing: dict[str, Any] | None = None
    replies: int = 0
    scores: Scores | None = None
    state: State | None = None
    record: Record | None = None

    @property
    def ok(self) -> bool:
        return self.first_broken is None

    @property
    def delivered(self) -> str | None:
        """The hash of the model that the consumer gets: the best one, where the ledger tells which that is."""
        return self.best.model if self.best is not None else self.model

    @property
    def closed(self) -> bool:
        return self.closing is not None

    @property
    def message(self) -> str:
        if self.first_broken is not None:
            return self.first_broken
        end = "settled and closed" if self.closed else "not finished yet, and can be resumed"
        rounds = f"{self.rounds} round{'' if self.rounds == 1 else 's'}"
        return f"{self.entries} entries and {rounds} replayed, all as recorded; the run is {end}"
