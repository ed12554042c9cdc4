"""Column types that mean the same on SQLite and on PostgreSQL."""

from __future__ import annotations

import datetime as dt
import uuid

from sqlalchemy import DateTime, Dialect
from sqlalchemy.types import TypeDecorator


class Moment(TypeDecorator[dt.datetime]):
    """A point in time, always with its zone and always UTC; SQLite alone would forget the zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: dt.datetime | None, dialect: Dialect) -> dt.datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a moment needs its time zone")
        return value.astimezone(dt.UTC)

    def process_result_value(self, value: dt.datetime | None, dialect: Dialect) -> dt.datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def new_id() -> str:
    """128 random bits: ids tell nothing, and cannot be guessed."""
    return uuid.uuid4().hex
