"""Which rows a piece of work locks, told on any database: SQLite leaves the words out that PostgreSQL locks rows by."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Select, event, make_url
from sqlalchemy.orm import ORMExecuteState, Session

POSTGRESQL = make_url("postgresql://").get_dialect()()


@contextmanager
def row_locks(session: Session) -> Iterator[list[str]]:
    """The tables of the rows that are selected for an update here, in their order."""
    found: list[str] = []

    def note(state: ORMExecuteState) -> None:
        asked = state.statement
        if isinstance(asked, Select) and "FOR UPDATE" in str(asked.compile(dialect=POSTGRESQL)):
            assert state.bind_mapper is not None
            found.append(str(state.bind_mapper.local_table))

    event.listen(session, "do_orm_execute", note)
    try:
        yield found
    finally:
        event.remove(session, "do_orm_execute", note)
