"""How a round is sealed and written into SQLite: in one transaction, and out of everybody's way before and after."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from databazaar import Arbiter, LedgerError
from databazaar.canonical import GENESIS
from databazaar.ledger import Entry, Ledger, Snapshot
from databazaar.ledger.chain import Fields
from databazaar.ledger.sql import SqlStore
from databazaar.market.loop import play
from databazaar.vectors import HashedArray
from small_markets import MakeMarket


def snapshot(round: int) -> Snapshot:
    return Snapshot.of(round, {"scores": np.array([0.5 * round])}, HashedArray(np.full(3, round, dtype=np.float32)))


def entries(first: int, count: int, head: str) -> list[Entry]:
    made: list[Entry] = []
    for seq in range(first, first + count):
        made.append(Entry(seq, "void", 0, seq, "p", 1, {"reason": "none"}).sealed(made[-1].hash if made else head))
    return made


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What SQLite was told to write, by the first words; rows, and what triggers say of them, count once."""
    heard: list[str] = []

    def hear(text: str) -> None:
        verb = text.split()[0]
        if verb not in ("SELECT", "PRAGMA") and (verb != "INSERT" or heard[-1:] != ["INSERT"]):
            heard.append(verb)

    def watch(connection: sqlite3.Connection, _record: Any) -> None:
        connection.set_trace_callback(hear)

    made = sa.create_engine

    def create(*args: Any, **more: Any) -> sa.Engine:
        engine = made(*args, **more)
        sa.event.listen(engine, "connect", watch)
        return engine

    monkeypatch.setattr(sa, "create_engine", create)
    return heard


def test_a_round_is_one_transaction(make_vector_market: MakeMarket, tmp_path: Path, said: list[str]) -> None:
    arbiter = Arbiter(*make_vector_market(), engine="loop")
    ledger = Ledger(arbiter.rules, SqlStore.file(tmp_path / "l.sqlite", "run"))
    said.clear()
    play(arbiter.begin(ledger), arbiter.engine)
    ledger.store.dispose()
    reserved, round = ["BEGIN", "INSERT", "COMMIT"], ["BEGIN", "INSERT", "UPDATE", "COMMIT"]
    first = ["BEGIN", "INSERT", "UPDATE", "INSERT", "COMMIT"]  # nothing was there yet to be replaced
    assert ledger.book.rounds > 2
    assert said == [*reserved, *first, *round * (ledger.book.rounds - 1)]


def test_between_two_transactions_nobody_is_kept_waiting(tmp_path: Path) -> None:
    store, first = SqlStore.file(tmp_path / "l.sqlite", "run"), entries(0, 2, GENESIS)
    store.append(first, snapshot(1))
    other = sqlite3.connect(tmp_path / "l.sqlite", timeout=0)
    other.execute("BEGIN IMMEDIATE")
    assert other.execute("SELECT count(*) FROM bazaar_entries").fetchone() == (2,)
    other.execute("ROLLBACK")
    other.close()
    store.append(entries(2, 1, first[-1].hash), snapshot(2))
    assert [entry.seq for entry in store.entries()] == [0, 1, 2]
    store.dispose()


def test_of_a_transaction_that_fails_nothing_stays_and_the_next_one_is_whole(tmp_path: Path) -> None:
    store, first = SqlStore.file(tmp_path / "l.sqlite", "run"), entries(0, 2, GENESIS)
    store.append(first, snapshot(1))
    more = entries(2, 2, first[-1].hash)
    with pytest.raises(LedgerError, match=r"entry 2 .*another process has written this entry"):
        store.append([more[0], first[1]], snapshot(2))
    with pytest.raises(OverflowError):
        store.append([more[0], more[1]._replace(amount=2**70)], snapshot(2))
    kept = store.snapshot()
    assert kept is not None and kept.next_round == 1 and len(list(store.entries())) == 2
    store.append(more, snapshot(2))
    kept = store.snapshot()
    assert kept is not None and kept.next_round == 2 and list(store.entries()) == [*first, *more]
    store.dispose()


@given(
    seq=st.integers(0, 10**9),
    round=st.integers(0, 10**9),
    provider=st.text(),
    amount=st.integers(0, 10**12),
    body=st.sampled_from([{}, {"held": 3}, {"reason": 'said "no"\n'}]),
)
def test_the_hash_of_an_access_is_that_of_its_canonical_json(
    seq: int, round: int, provider: str, amount: int, body: dict[str, Any]
) -> None:
    fields: Fields = (seq, "post", round, 2, provider, amount, body)
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    assert Entry(*fields).digest(GENESIS) == hashlib.sha256(f"{GENESIS}\n{text}".encode()).hexdigest()
