"""Ledgers of many rounds, made up: gains are random, some replies fail, no model is trained. All else is what a run
writes.

.venv/bin/python benchmarks/long_ledgers.py FOLDER ROUNDS PROVIDERS PER_ROUND SAMPLER
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from databazaar.codes import Code
from databazaar.ledger import Drawn, Entry, Ledger, RuleBook, Settlement, Snapshot, Store, Terms
from databazaar.ledger.sql import SqlStore
from databazaar.money import Currency
from databazaar.roster import ProviderTerms, Roster
from databazaar.runs.folder import RunFolder
from databazaar.runs.model_folder import Outline
from databazaar.vectors import hash_array, pack

BULK = 20_000
FAILS = 0.02


class BulkStore(Store):
    """Writes many rounds in one transaction: nobody needs this ledger after a crash."""

    durable = False

    def __init__(self, store: SqlStore) -> None:
        self.store, self.waiting = store, list[Entry]()

    def append(self, entries: Sequence[Entry], snapshot: Snapshot | None) -> None:
        self.waiting += entries
        if len(self.waiting) >= BULK:
            self.flush(None)

    def flush(self, snapshot: Snapshot | None) -> None:
        self.store.append(self.waiting, snapshot)
        self.waiting = []

    def entries(self) -> Iterator[Entry]:
        return iter(())

    def snapshot(self) -> Snapshot | None:
        return None

    def finish(self) -> None:
        pass

    def dispose(self) -> None:
        pass


@dataclass
class Model:
    """A vector of one number: the steps that were taken."""

    steps: int = 0

    @property
    def vector(self) -> np.ndarray:
        return np.array([float(self.steps)])

    @property
    def model_hash(self) -> str:
        return hash_array(self.vector)

    @property
    def utility(self) -> float:
        return 1.0 - 0.5 / (1.0 + self.steps / 1000)

    @property
    def loss(self) -> float:
        return -float(np.log(self.utility))

    def snapshot(self) -> Snapshot:
        raise NotImplementedError


def make(folder: Path, rounds: int, providers: int, per_round: int, sampler: str) -> None:
    rng = np.random.default_rng(0)
    prices = rng.integers(1, 4, providers).tolist()
    offers = tuple(ProviderTerms(f"provider-{i}", f"owner {i // 2}", price) for i, price in enumerate(prices))
    settings: dict[str, object] = {"kind": sampler}
    if sampler == "osmd":
        settings = {"kind": sampler, "eta": 0.05, "alpha": 0.2}
    rules = {
        "sampler": settings,
        "aggregator": {"kind": "mean"},
        "payment": {"kind": "price-per-access"},
        "stops": [{"kind": "patience", "rounds": 1000}, {"kind": "target-utility", "utility": Model(rounds).utility}],
    }
    budget = 3 * per_round * rounds * 2
    model = Model()
    terms = Terms(0, budget, per_round, Currency(), Roster(offers), rules, True, model.model_hash)
    book = RuleBook.of(terms)
    run = RunFolder.create(folder)
    bulk = BulkStore(run.store())
    ledger, state = Ledger(book, bulk), book.start()
    means = rng.normal(0.0, 1e-4, providers)
    stopped = book.stopped(ledger.book)
    while stopped is None:
        drawn = book.draw(state, ledger.book)
        round = ledger.book.rounds
        ledger.reserve(round, drawn)
        result, after = _played(model, drawn, book, means, rng)
        ledger.settle(round, drawn, result, after)
        state, model = book.learn(state, drawn, result.gains), after
        stopped = book.stopped(ledger.book)
    ledger.close(stopped, model)
    bulk.flush(Snapshot(ledger.book.rounds, pack({"sampler": state, "best": np.zeros(0)}), pack({"w": model.vector})))
    run.finish(model.vector, Outline(), model.vector)
    run.dispose()


def _played(
    model: Model, drawn: Drawn, book: RuleBook, means: np.ndarray, rng: np.random.Generator
) -> tuple[Settlement, Model]:
    gains: list[float | None] = []
    given: dict[int, float | None] = {}
    for i in drawn.draws.tolist():
        if i not in given:
            given[i] = None if rng.random() < FAILS else float(means[i] + 1e-4 * rng.normal())
        gains.append(given[i])
    moved = any(gain is not None for gain in gains)
    after = Model(model.steps + moved)
    failures = [Code("no-answer") if gain is None else None for gain in gains]
    chances = drawn.probabilities.tolist()
    paid = book.pay(drawn, gains)
    return Settlement(gains, failures, chances, paid, model.utility, model.loss, after.utility, after.loss), after


if __name__ == "__main__":
    folder, rounds, providers, per_round, sampler = sys.argv[1:]
    make(Path(folder), int(rounds), int(providers), int(per_round), sampler)
