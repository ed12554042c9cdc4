"""The ledger of one run: writes entries through the book into a store, one transaction at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Protocol

from databazaar.errors import BazaarError, LedgerError
from databazaar.ledger.book import Book
from databazaar.ledger.chain import GENESIS, Entry, Kind, canonical, digest
from databazaar.money import Currency

FORMAT = 1


Draft = tuple[Kind, int | None, int | None, str | None, int | None, dict[str, Any]]
"""An entry that has no number and no hash yet."""


@dataclass(frozen=True)
class Terms:
    """What is agreed before the first round, and all that an audit needs to replay the run."""

    seed: int
    sampler: dict[str, Any]
    budget: int
    per_round: int
    patience: int
    currency: Currency
    providers: tuple[tuple[str, str, int], ...]
    bounded_utility: bool
    initial_model: str
    format: int = FORMAT

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> Terms:
        try:
            if body["format"] != FORMAT:
                raise LedgerError(f"entry 0 (open): ledger format {body['format']} needs another version of databazaar")
            currency = Currency(**body["currency"])
            providers = tuple((str(i), str(owner), int(price)) for i, owner, price in body["providers"])
            return cls(**{**body, "currency": currency, "providers": providers})
        except (KeyError, TypeError, ValueError) as reason:
            raise LedgerError(f"entry 0 (open): the terms cannot be read ({reason!r})") from None

    def body(self) -> dict[str, Any]:
        return {**asdict(self), "providers": [list(p) for p in self.providers]}

    @cached_property
    def ids(self) -> list[str]:
        return [provider for provider, _, _ in self.providers]

    @cached_property
    def prices(self) -> dict[str, int]:
        return {provider: price for provider, _, price in self.providers}

    @cached_property
    def owners(self) -> dict[str, str]:
        return {provider: owner for provider, owner, _ in self.providers}


@dataclass(frozen=True)
class Settlement:
    """How a round ended, draw by draw. `failures[k]` is None where draw k is paid; `gains[k]` is then a number."""

    gains: Sequence[float | None]
    failures: Sequence[str | None]
    probabilities: Sequence[float]
    utility: float
    loss: float | None
    model: str = ""


@dataclass(frozen=True)
class Snapshot:
    """What the next round starts from: the sampler's state and the parameters. Replaced every round.

    The parameters are safetensors; they are dropped when the run is closed and its model is saved.
    """

    next_round: int
    sampler: bytes
    params: bytes


class Store(Protocol):
    """Where entries are kept. `append` writes all of it or nothing. A durable store outlives the process."""

    durable: bool

    def append(self, entries: Sequence[Entry], snapshot: Snapshot | None) -> None: ...

    def entries(self) -> Iterator[Entry]: ...

    def snapshot(self) -> Snapshot | None: ...


class MemoryStore:
    """Entries in a list: for runs that need no folder."""

    durable = False

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._snapshot: Snapshot | None = None

    def append(self, entries: Sequence[Entry], snapshot: Snapshot | None) -> None:
        self._entries.extend(entries)
        self._snapshot = snapshot or self._snapshot

    def entries(self) -> Iterator[Entry]:
        return iter(self._entries)

    def snapshot(self) -> Snapshot | None:
        return self._snapshot


class Ledger:
    """The only way to the money of a run. Opening one that has entries continues it, if the terms are the same.

    Experiments in which nobody resumes or audits anything can do without records: the book is kept by the same rules,
    but entries and models are not hashed, and entries are forgotten.
    """

    def __init__(self, terms: Terms, store: Store | None = None, *, records: bool = True) -> None:
        self.terms = terms
        self.records = records
        self.store = store or MemoryStore()
        self.book = Book(terms.budget, terms.prices, terms.owners)
        self.head = GENESIS
        self._seq = 0
        self._settled: tuple[list[Entry], Snapshot | None] = [], None
        for entry in self.store.entries():
            self._take(entry)
        if self._seq == 0:
            self._commit([self._draft("open", body=terms.body())])

    def _take(self, entry: Entry) -> None:
        if entry.seq != self._seq or entry.hash != entry.digest(self.head):
            raise LedgerError(f"{entry}: the chain is broken here; `bazaar audit` tells more")
        if entry.seq == 0 and canonical(entry.body) != canonical(self.terms.body()):
            raise BazaarError(
                "this run was begun with other terms (seed, sampler, budget, providers, prices or model): "
                "take a new folder, or the settings it was begun with"
            )
        self.book.apply(entry)
        self.head, self._seq = entry.hash, self._seq + 1

    def _draft(
        self,
        kind: Kind,
        body: dict[str, Any] | None = None,
        round: int | None = None,
        draw: int | None = None,
        provider: str | None = None,
    ) -> Draft:
        amount = self.book.prices[provider] if provider is not None else None
        return kind, round, draw, provider, amount, body or {}

    def _seal(self, drafts: Sequence[Draft]) -> list[Entry]:
        sealed = []
        for draft in drafts:
            fields = self._seq, *draft
            entry = Entry(*fields, digest(self.head, fields) if self.records else "")
            self.book.apply(entry)
            self._seq += 1
            if self.records:
                self.head = entry.hash
                sealed.append(entry)
        self.book.assert_sound()
        return sealed

    def _commit(self, drafts: Sequence[Draft]) -> None:
        """Stores the round that was settled last and these entries in one transaction; the invariants hold."""
        entries, snapshot = self._settled
        self.store.append([*entries, *self._seal(drafts)], snapshot)
        self._settled = [], None

    def reserve(self, round: int, draws: Sequence[int]) -> bool:
        """Sets aside what the round's draws cost, before anybody is asked. False where the budget is too small.

        The round before, settled by now, is committed in the same transaction. A round that was reserved before
        a crash is found reserved, and nothing is set aside twice.
        """
        ids = [self.terms.ids[i] for i in draws]
        held = {key: who for key, (who, _) in self.book.reserved.items()}
        if held:
            if held != {(round, draw): who for draw, who in enumerate(ids)}:
                raise LedgerError(f"round {round} is reserved with other draws than these: the ledger was changed")
            return True
        if not self.book.covers(sum(self.book.prices[who] for who in ids)):
            return False
        self._commit([self._draft("reserve", None, round, draw, who) for draw, who in enumerate(ids)])
        return True

    def settle(self, round: int, draws: Sequence[int], result: Settlement, snapshot: Snapshot) -> None:
        """Pays valid replies and voids failed ones. Durable, with the snapshot, when the next round is reserved."""
        entries = [
            self._draft("post", None, round, draw, self.terms.ids[i])
            if why is None
            else self._draft("void", {"reason": _writable(why)}, round, draw, self.terms.ids[i])
            for draw, (i, why) in enumerate(zip(draws, result.failures, strict=True))
        ]
        body = {
            "gains": list(result.gains),
            "probabilities": list(result.probabilities),
            "utility": result.utility,
            "loss": result.loss,
            "model": result.model,
        }
        self._settled = self._seal([*entries, self._draft("round", body, round)]), snapshot

    def close(self, status: str, message: str, model: str, utility: float, loss: float | None) -> None:
        """Settles the whole run: what was not spent goes back to the consumer."""
        body = {
            "status": status,
            "message": message,
            "model": model,
            "utility": utility,
            "loss": loss,
            "spent": self.book.spent,
            "refunded": self.book.budget - self.book.spent,
        }
        self._commit([self._draft("close", body)])


def _writable(text: str) -> str:
    """Text from a provider's side that UTF-8 can hold: a lone surrogate is written as its escape."""
    return text.encode("utf-8", "backslashreplace").decode()
