"""Organisations and jobs for tests of money, and processes that write to the journal."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import event, text
from sqlalchemy.orm import Session

from databazaar.service import journal
from databazaar.service.caller import Caller
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Job, JournalEntry, Organisation, Table
from databazaar.service.database.upgrade import upgrade

RUN_HEAD = "ab" * 32


def join(session: Session, slug: str, **roles: bool) -> Caller:
    """A new organisation of the market; without roles it consumes and provides."""
    organisation = Organisation(slug=slug, name=slug.title(), **(roles or {"consumes": True, "provides": True}))
    session.add(organisation)
    session.flush()
    return Caller.of(organisation)


def deposit(session: Session, slug: str, amount: int, record: str) -> JournalEntry:
    return journal.post(session, "deposit", f"deposit:{record}", {"outside": -amount, f"cash:{slug}": amount})


def new_job(session: Session, caller: Caller, job_id: str, budget: int = 100) -> Job:
    parts: dict[str, Any] = {"spec": {}, "files": {}, "offers": []}
    job = Job(id=job_id, organisation_id=caller.organisation_id, name="job", budget=budget, **parts)
    session.add(job)
    session.flush()
    return job


def fund(session: Session, slug: str, job_id: str, amount: int) -> JournalEntry:
    moved = {journal.cash(slug): -amount, journal.escrow(job_id): amount}
    return journal.post(session, "fund", f"fund:{job_id}", moved, job_id=job_id)


def close(session: Session, slug: str, job_id: str, escrow: int, paid: Mapping[str, int], fee: int = 0) -> JournalEntry:
    """Pays providers and the fee from the escrow, and the rest back to the consumer."""
    rest = escrow - sum(paid.values()) - fee
    moved = {f"escrow:{job_id}": -escrow, **{f"earned:{name}": amount for name, amount in paid.items()}}
    moved |= {"fees": fee, f"cash:{slug}": rest}
    return journal.post(session, "close", f"close:{job_id}", moved, job_id=job_id, body={"run_head": RUN_HEAD})


def forked(target: Callable[..., None], several: Sequence[tuple[Any, ...]]) -> list[int | None]:
    """Runs processes at once, one for each of the arguments, which begin with the database's address; how they ended.
    Call it in a process without threads."""
    Database(several[0][0]).dispose()  # imports the driver, once for all of them
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=target, args=args) for args in several]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]


def write_many(url: str, writer: int, count: int) -> None:
    """A process that writes: every deposit of its own twice, those that it shares with all others, and transfers
    between accounts that all touch, each in its own order."""
    database = Database(url)
    for number in range(count):
        for _ in range(2):
            with database.begin() as session:
                deposit(session, f"org{writer}", 10, f"own-{writer}-{number}")
        with database.begin() as session:
            deposit(session, "org0", 1, f"shared-{number}")
        other = f"org{(writer + number) % 8}"
        with database.begin() as session:
            moved = {"outside": 1, f"cash:{other}": -1}
            if journal.balance(session, f"cash:{other}"):
                journal.post(session, "withdraw", f"withdraw:{writer}-{number}", moved)
    database.dispose()


def bring_up(url: str) -> None:
    """A hub that upgrades its database when it starts."""
    database = Database(url)
    upgrade(database)
    database.dispose()


def close_and_die(url: str, fatal: int) -> None:
    """A process that closes job `j1` and is killed before its statement `fatal`, of which the commit is one too."""
    database, count = Database(url), 0

    def next_statement(*_: Any) -> None:
        nonlocal count
        count += 1
        if count == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(database.engine, "before_cursor_execute", next_statement)
    event.listen(database.engine, "commit", next_statement)
    with database.begin() as session:
        session.get_one(Job, "j1", with_for_update=True).state = "settled"
        close(session, "acme", "j1", 100, {"bank": 40, "clinic": 20}, fee=3)
    database.dispose()


def emptied(database: Database) -> None:
    """Removes all tables of a hub, as if it had never been set up."""
    with database.engine.begin() as connection:
        Table.metadata.drop_all(connection)
        connection.execute(text("DROP TABLE alembic_version"))
        if not database.is_sqlite:
            connection.execute(text("DROP FUNCTION bazaar_refuse()"))
