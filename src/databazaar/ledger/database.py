"""A database of many runs as its keeper sees it: its tables, and the heads of all that it holds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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


class Database:
    """A database by its URL. Use it in a `with` statement."""

    def __init__(self, url: str) -> None:
        self._url = url
        try:
            self._engine = sa.create_engine(url)
        except (SQLAlchemyError, ImportError, ValueError) as reason:
            raise BazaarError(f"the ledger's database cannot be opened ({brief(reason)}): check its URL") from None

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.dispose()

    def prepare(self) -> int:
        """Makes the tables where there are none; their version."""
        try:
            prepare(self._engine)
        except SQLAlchemyError as reason:
            raise self._unusable(reason) from None
        return VERSION

    def runs(self) -> list[str]:
        """The ids of all runs."""
        try:
            with self._engine.connect() as connection:
                if not refuse_other(connection):
                    raise BazaarError("the database has no ledger's tables: `bazaar ledger URL --init` makes them")
                return list(connection.execute(sa.select(ENTRIES.c.run).distinct().order_by(ENTRIES.c.run)).scalars())
        except SQLAlchemyError as reason:
            raise self._unusable(reason) from None

    def _unusable(self, reason: Exception) -> BazaarError:
        return BazaarError(f"the ledger's database cannot be used ({brief(reason)}): start it, or check its URL")

    def check(self, before: Mapping[str, Head] | None = None) -> Iterator[Head]:
        """The head of every run, whose chain is recomputed. All of `before` must still be there, if only as the
        beginning of what is there now; what is not, or a chain that breaks, is a LedgerError."""
        before = before or {}
        runs = self.runs()
        strange = [run for run in runs if not re.fullmatch(r"[!-~]{1,64}", run)]
        if strange:
            raise LedgerError(f"a run is called {strange[0]!a}: no run that databazaar made is")
        lost = [head for run, head in before.items() if run not in set(runs)]
        if lost:
            raise LedgerError(f"run {lost[0].run} is not there any more: it had {lost[0].entries} entries")
        for run in runs:
            yield self._checked(run, before.get(run))

    def _checked(self, run: str, before: Head | None) -> Head:
        store = SqlStore(self._url, run, create=False)
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
