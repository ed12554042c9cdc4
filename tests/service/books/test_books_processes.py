"""Many processes write to one journal, and some are killed: nothing is lost, nothing is half, nothing twice."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor

import pytest
from sqlalchemy import select

from databazaar.service import journal
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Job, JournalEntry
from databazaar.service.database.upgrade import require_current
from small_books import bring_up, close_and_die, deposit, emptied, forked, fund, join, new_job, write_many

pytestmark = pytest.mark.process

WRITERS, ROUNDS = 8, 6


@pytest.fixture(scope="module")
def parent() -> Iterator[Executor]:
    """A process that has imported everything, and forks those that a test wants."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield pool


def address(database: Database) -> str:
    return database.engine.url.render_as_string(hide_password=False)


def test_hubs_that_upgrade_at_once_queue(database: Database, parent: Executor) -> None:
    emptied(database)
    assert parent.submit(forked, bring_up, [(address(database),)] * 4).result(120) == [0] * 4
    require_current(database)


def test_eight_writers_at_once(database: Database, parent: Executor) -> None:
    with database.begin() as session:
        for number in range(WRITERS):
            join(session, f"org{number}")
    writers = [(address(database), number, ROUNDS) for number in range(WRITERS)]
    assert parent.submit(forked, write_many, writers).result(240) == [0] * WRITERS
    with database.read() as session:
        found = journal.audit(session)
        assert found.ok, found.message
        keys = list(session.scalars(select(JournalEntry.key)))
        assert sum(key.startswith("deposit:own-") for key in keys) == WRITERS * ROUNDS
        assert sum(key.startswith("deposit:shared-") for key in keys) == ROUNDS
        out = sum(key.startswith("withdraw:") for key in keys)
        assert len(keys) == len(set(keys)) == WRITERS * ROUNDS + ROUNDS + out
        held = sum(journal.balance(session, f"cash:org{number}") for number in range(WRITERS))
        assert held == WRITERS * ROUNDS * 10 + ROUNDS - out == -journal.balance(session, "outside")


def test_kill_9_before_every_statement_of_a_close(database: Database, parent: Executor) -> None:
    with database.begin() as session:
        acme = join(session, "acme")
        for slug in ("bank", "clinic"):
            join(session, slug)
        deposit(session, "acme", 150, "1")
        new_job(session, acme, "j1")
        fund(session, "acme", "j1", 100)
    deaths = 0
    while (ended := parent.submit(forked, close_and_die, [(address(database), deaths + 1)]).result(60)) != [0]:
        assert ended == [-signal.SIGKILL]
        deaths += 1
        assert state_of(database) == ("draft", 50, 100, 0, 0, 0), f"killed before statement {deaths}"
    assert deaths > 6
    for _ in range(2):  # applied by the last, and not again by who repeats it
        assert state_of(database) == ("settled", 87, 0, 40, 20, 3)
        assert parent.submit(forked, close_and_die, [(address(database), -1)]).result(60) == [0]


def state_of(database: Database) -> tuple[str, int, int, int, int, int]:
    with database.read() as session:
        found = journal.audit(session)
        assert found.ok, found.message
        cash, escrow, bank, clinic, fees = (
            journal.balance(session, name)
            for name in ("cash:acme", "escrow:j1", "earned:bank", "earned:clinic", "fees")
        )
        return session.get_one(Job, "j1").state, cash, escrow, bank, clinic, fees
