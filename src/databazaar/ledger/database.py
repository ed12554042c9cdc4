"""A database of many runs as its keeper sees it: its tables, and the heads of all that it holds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from databazaar.canonical import GENESIS
from databazaar.errors import BazaarError, LedgerError
from databazaar.ledger.schema import ENTRIES, VERSION, prepare, refuse_other
from databazaar.ledger.sql import SqlStore, brief

_LINE = re.compile(r"(\S{1,64}) ([0-9]{1,18}) ([0-9a-f]{64})")


class Head(NamedTuple):
    """How far a run has come: the hash of the last of its entries stands for all of them."""

    run: str
    entries: int
    hash: str

    def __str__(self) -> str:
        return f"{self.run} {self.entries} {self.hash}"


def parse_heads(text: str) -> dict[str, Head]:
    """Heads as they were printed, by their runs. A ValueError is text that is something else."""
    lines = [_LINE.fullmatch(line) for line in text.splitlines() if line.strip()]
    if not all(lines):
        raise ValueError
    heads = [Head(line[1], int(line[2]), line[3]) for line in lines if line]
    return {head.run: head for head in heads}


@contextmanager
def _opened(url: str) -> Iterator[sa.Engine]:
    """The database; what it fails with is a BazaarError."""
    try:
        engine = sa.create_engine(url)
    except (SQLAlchemyError, ImportError, ValueError) as reason:
        raise BazaarError(f"the ledger's database cannot be opened ({brief(reason)}): check its URL") from None
    try:
        yield engine
    except SQLAlchemyError as reason:
        told = f"the ledger's database cannot be used ({brief(reason)}): start it, or check its URL"
        raise BazaarError(told) from None
    finally:
        engine.dispose()


def prepare_tables(url: str) -> int:
    """Makes the tables where there are none; their version."""
    with _opened(url) as engine:
        prepare(engine)
    return VERSION


def runs_in(url: str) -> list[str]:
    """The ids of all runs."""
    with _opened(url) as engine, engine.connect() as connection:
        if not refuse_other(connection):
            raise BazaarError("the database has no ledger's tables: `bazaar ledger URL --init` makes them")
        return list(connection.execute(sa.select(ENTRIES.c.run).distinct().order_by(ENTRIES.c.run)).scalars())


def check_runs(url: str, before: Mapping[str, Head]) -> Iterator[Head]:
    """The head of every run, whose chain is recomputed. All of `before` must still be there, if only as the beginning
    of what is there now; what is not, or a chain that breaks, is a LedgerError."""
    runs = runs_in(url)
    strange = [run for run in runs if not re.fullmatch(r"[!-~]{1,64}", run)]
    if strange:
        raise LedgerError(f"a run is called {strange[0]!a}: no run that databazaar made is")
    lost = [head for run, head in before.items() if run not in set(runs)]
    if lost:
        raise LedgerError(f"run {lost[0].run} is not there any more: it had {lost[0].entries} entries")
    for run in runs:
        yield _checked(url, run, before.get(run))


def _checked(url: str, run: str, before: Head | None) -> Head:
    store = SqlStore(url, run, create=False)
    seq, head = 0, GENESIS
    try:
        for entry in store.entries():
            if entry.seq != seq or entry.hash != entry.digest(head):
                raise LedgerError(f"run {run}: {entry} does not follow from the entries before it: it was changed")
            seq, head = seq + 1, entry.hash
            if before is not None and seq == before.entries and head != before.hash:
                raise LedgerError(f"run {run}: its {seq} entries are not those that were there before")
    finally:
        store.dispose()
    if before is not None and seq < before.entries:
        raise LedgerError(f"run {run} has {seq} entries, and had {before.entries}: it was put back, or cut short")
    return Head(run, seq, head)
