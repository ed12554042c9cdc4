"""The audit: replays every draw, distribution and payment from the ledger alone, without data or model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from databazaar.errors import BazaarError, LedgerError
from databazaar.learning.models import from_bytes, hash_vector
from databazaar.ledger.book import Book
from databazaar.ledger.chain import GENESIS, Entry
from databazaar.ledger.ledger import Snapshot, Terms
from databazaar.randomness import draws_stream
from databazaar.samplers import from_settings

TOLERANCE = 1e-9
"""Replayed probabilities may differ by this share: another machine's exp differs in the last digit."""

NO_ENTRIES = "the ledger has no entries"


@dataclass
class Audit:
    """What an audit found. `first_broken` is the sentence about the first entry that does not hold."""

    entries: int = 0
    rounds: int = 0
    head: str = GENESIS
    closed: bool = False
    first_broken: str | None = None
    model: str | None = None
    distributions: list[NDArray[np.float64]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.first_broken is None

    @property
    def message(self) -> str:
        if self.first_broken is not None:
            return self.first_broken
        end = "settled and closed" if self.closed else "not finished yet; `bazaar resume` goes on with it"
        return f"{self.entries} entries and {self.rounds} rounds replayed, all as recorded; the run is {end}"


def audit_entries(entries: Iterable[Entry], snapshot: Snapshot | None = None) -> Audit:
    """Verifies the chain, the book's rules, and that draws, distributions and stop follow from the terms."""
    audit = Audit()
    try:
        replay = None
        for entry in entries:
            if entry.seq != audit.entries or entry.hash != entry.digest(audit.head):
                raise LedgerError(f"{entry}: its hash does not follow from its content and the entries before it")
            if replay is None:
                replay = _Replay(entry, audit)
            else:
                replay.check(entry)
            audit.head, audit.entries = entry.hash, audit.entries + 1
        if replay is None:
            raise LedgerError(NO_ENTRIES)
        replay.check_end(snapshot)
    except BazaarError as broken:
        audit.first_broken = str(broken)
    except (KeyError, TypeError, ValueError, IndexError) as broken:
        audit.first_broken = f"entry {audit.entries}: cannot be read ({broken!r})"
    return audit


class _Replay:
    def __init__(self, first: Entry, audit: Audit) -> None:
        if first.kind != "open":
            raise LedgerError(f"{first}: the first entry must be the opening")
        self.terms = Terms.from_body(first.body)
        self.book = Book(self.terms.budget, self.terms.prices, self.terms.owners)
        self.sampler = from_settings(self.terms.sampler)
        self.state = self.sampler.init(len(self.terms.providers))
        self.audit = audit
        self.silent = 0
        self.model = self.terms.initial_model
        audit.distributions.append(self.sampler.probabilities(self.state).copy())
        self._next_round()

    def _next_round(self) -> None:
        """Works out whom the next round must ask, and what must follow."""
        rng = draws_stream(self.terms.seed, self.audit.rounds)
        self.draws = self.sampler.draw(self.state, rng, self.terms.per_round)
        self.cost = sum(self.terms.prices[self.terms.ids[i]] for i in self.draws)
        self.reserves = 0
        self.outcomes: list[str] = []

    def check(self, entry: Entry) -> None:
        self.book.apply(entry)
        if entry.kind == "open":
            raise LedgerError(f"{entry}: a ledger is opened once")
        if entry.kind == "close":
            self._check_close(entry)
            return
        if entry.round != self.audit.rounds:
            raise LedgerError(f"{entry}: stands in round {self.audit.rounds}")
        if entry.kind == "round":
            self._check_round(entry)
            return
        expected = self.reserves if entry.kind == "reserve" else len(self.outcomes)
        who = self.terms.ids[self.draws[expected]] if expected < len(self.draws) else None
        if (entry.draw, entry.provider) != (expected, who):
            raise LedgerError(f"{entry}: {entry.provider} was not drawn here, {who or 'nobody'} was")
        if entry.kind == "reserve":
            self.reserves += 1
        else:
            if self.reserves != len(self.draws):
                raise LedgerError(f"{entry}: settled before the whole round was reserved")
            self.outcomes.append(entry.kind)

    def _check_round(self, entry: Entry) -> None:
        gains: list[float | None] = entry.body["gains"]
        p = self.sampler.probabilities(self.state)
        if len(self.outcomes) != len(self.draws) or len(gains) != len(self.draws):
            raise LedgerError(f"{entry}: does not settle every draw")
        if [gain is not None for gain in gains] != [outcome == "post" for outcome in self.outcomes]:
            raise LedgerError(f"{entry}: a gain without payment, or a payment without gain")
        if not np.allclose(entry.body["probabilities"], p[self.draws], rtol=TOLERANCE, atol=0):
            raise LedgerError(f"{entry}: the recorded probabilities do not follow from the gains before")
        self.state = self.sampler.update(self.state, self.draws, np.array([g or 0.0 for g in gains]))
        self.model = entry.body["model"]
        self.silent = 0 if "post" in self.outcomes else self.silent + 1
        self.audit.rounds += 1
        self.audit.distributions.append(self.sampler.probabilities(self.state).copy())
        self.book.assert_sound()
        self._next_round()

    def _check_close(self, entry: Entry) -> None:
        claimed: dict[str, Any] = entry.body
        spent, budget = self.book.spent, self.terms.budget
        if claimed["spent"] != spent or claimed["refunded"] != budget - spent:
            raise LedgerError(f"{entry}: claims spent {claimed['spent']}, but the posts sum to {spent}")
        if self.book.covers(self.cost) and self.silent < self.terms.patience:
            raise LedgerError(f"{entry}: the run stopped although the budget covers another round")
        if (claimed["status"] == "nobody answered") != gave_up(self.silent, self.audit.rounds, self.terms.patience):
            raise LedgerError(f"{entry}: the status {claimed['status']!r} does not follow from the rounds")
        self.audit.closed, self.audit.model = True, claimed["model"]

    def check_end(self, snapshot: Snapshot | None) -> None:
        if snapshot is None:
            return
        if snapshot.next_round != self.audit.rounds:
            raise LedgerError(f"the stored state is that of round {snapshot.next_round}, not {self.audit.rounds}")
        stored = np.frombuffer(snapshot.sampler, dtype=np.float64)
        if stored.shape != self.state.shape or not np.allclose(stored, self.state, rtol=TOLERANCE, atol=TOLERANCE):
            raise LedgerError("the stored state of the sampler does not follow from the ledger")
        if snapshot.params and hash_vector(from_bytes(snapshot.params)) != self.model:
            raise LedgerError("the stored parameters are not those that the last round ended with")


def gave_up(silent: int, rounds: int, patience: int) -> bool:
    """Whether a run ended because nobody answered: too many silent rounds on end, or nothing but silent ones."""
    return silent >= patience or (rounds > 0 and silent == rounds)
