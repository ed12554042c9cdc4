"""The ledger of one run: writes entries through the book into a store, one transaction at a time."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

from databazaar.canonical import GENESIS, canonical
from databazaar.errors import BazaarError, LedgerError
from databazaar.ledger.accounts import Accounts, Draft, RoundState, Settlement
from databazaar.ledger.book import NOT_SETTLED
from databazaar.ledger.chain import Entry
from databazaar.ledger.rulebook import BY_CONSUMER, Drawn, RuleBook, Stopped, status_of
from databazaar.ledger.store import MemoryStore, Snapshot, Store
from databazaar.ledger.terms import NOT_AGREED


class Ledger(Accounts):
    """The only way to the money of a run. Opening one that has entries continues it, if the terms are the same.

    `on_written` is told the entries of each transaction once it is made: from then on they are never lost.
    """

    def __init__(self, rules: RuleBook, store: Store | None = None) -> None:
        super().__init__(rules)
        self.store = store or MemoryStore()
        self.head = self.opening = GENESIS
        self.on_written: Callable[[Sequence[Entry]], None] | None = None
        self._seq = 0
        self._settled: tuple[list[Entry], Snapshot | None] = [], None
        for entry in self.store.entries():
            self._take(entry)
        if self._seq == 0:
            self._write([("open", None, None, None, None, self.terms.body())])
            self.opening = self.head

    def _take(self, entry: Entry) -> None:
        if entry.seq != self._seq or entry.hash != entry.digest(self.head):
            raise LedgerError(f"{entry}: the chain is broken here; `bazaar audit` tells more")
        if entry.seq == 0 and (others := differing(self.terms.body(), entry.body)):
            if others == ["frozen"]:
                raise BazaarError(
                    "this run was begun with other frozen weights (what of a model is not trained): give the model "
                    "that it was begun with, or take a new folder"
                )
            raise BazaarError(
                "this run was begun with other terms (seed, rules, budget, providers, prices, model, names or data): "
                "take a new folder, or the settings it was begun with"
            )
        self.book.apply(entry)
        self.opening = self.opening if entry.seq else entry.hash
        self.head, self._seq = entry.hash, self._seq + 1

    def _seal(self, drafts: Sequence[Draft]) -> list[Entry]:
        """The drafts as entries, which the book has taken."""
        entries = list[Entry]()
        for draft in drafts:
            entry = Entry(self._seq, *draft).sealed(self.head)
            self.book.apply(entry)
            self.head, self._seq = entry.hash, self._seq + 1
            entries.append(entry)
        return entries

    def _write(self, drafts: Sequence[Draft]) -> None:
        """Stores the round that was settled last and these entries in one transaction; the invariants hold."""
        settled, snapshot = self._settled
        entries = [*settled, *self._seal(drafts)]
        self.book.assert_sound()
        self.store.append(entries, snapshot)
        self._settled = [], None
        if self.on_written is not None:
            self.on_written(entries)

    def settle(self, round: int, drawn: Drawn, result: Settlement, standing: RoundState) -> None:
        """As the book does; durable, with the snapshot, when the next round is reserved or the run is closed."""
        snapshot = standing.snapshot() if self.store.durable else None
        drafts = self._settling(round, drawn, result, standing.model_hash)
        self._settled = self._seal(drafts), snapshot

    def settle_held_back(self, returned: Sequence[int]) -> None:
        """As the book does; durable when the run is closed."""
        self._write_later(self._held_back_at_close(returned))

    def _write_later(self, drafts: Sequence[Draft]) -> None:
        """Entries of the transaction that is written next."""
        settled, snapshot = self._settled
        self._settled = [*settled, *self._seal(drafts)], snapshot

    def close(self, stopped: Stopped, standing: RoundState) -> None:
        self._close(stopped, standing.model_hash, standing.utility, standing.loss)

    def close_for_consumer(self, model: str, utility: float, loss: float | None, returned: Sequence[int] = ()) -> None:
        """Ends a run between two rounds: reservations are voided, and held-back pay is settled as at every close."""
        voids: list[Draft] = [
            ("void", round, draw, who, amount, dict(NOT_SETTLED))
            for (round, draw), (who, amount) in self.book.reserved.items()
        ]
        self._write_later([*voids, *self._held_back_at_close(returned)])
        self._close(BY_CONSUMER, model, utility, loss)

    def _close(self, stopped: Stopped, model: str, utility: float, loss: float | None) -> None:
        body = {
            "status": status_of(stopped, self.book),
            "stop": stopped.body(),
            "model": model,
            "utility": utility,
            "loss": loss,
            "spent": self.book.spent,
            "refunded": self.book.budget - self.book.spent,
        }
        self._write([("close", None, None, None, None, body)])


def differing(body: dict[str, Any], kept: dict[str, Any], but: Container[str] = ()) -> list[str]:
    """What these terms agree on otherwise than the opening entry that was `kept`; all `but` these are compared."""
    one, other = _agreed(body), _agreed(kept)
    names = [name for name in {**one, **other} if name not in but]
    return [name for name in names if one.get(name) != other.get(name)]


def _agreed(body: dict[str, Any]) -> dict[str, str]:
    """The terms without the packages that rules come from, and without where the run is played: neither is agreed."""
    body = {name: value for name, value in body.items() if name not in NOT_AGREED}
    rules = body.get("rules", {})
    named = {**rules, "stops": list(rules.get("stops", []))}
    plain = {
        name: [{k: v for k, v in one.items() if k != "from"} for one in (rule if isinstance(rule, list) else [rule])]
        for name, rule in named.items()
    }
    return {name: canonical(value) for name, value in {**body, "rules": plain}.items()}
