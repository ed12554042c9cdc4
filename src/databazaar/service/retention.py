"""Files that the hub deletes itself: of jobs long over, uploads never used, and what a crash has left."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import select

from databazaar.service.database.columns import now
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import File
from databazaar.service.files import STALE, Use, lock_file, remove_unnamed, uses_of
from databazaar.service.settings import Settings

ABANDONED = dt.timedelta(days=30)
"""So long after it came an upload that nothing has ever used is deleted."""
_KEPT = re.compile(r"([0-9a-f]{64})(\.[a-z.]{1,9})")


def delete_due(database: Database, settings: Settings) -> int:
    """Deletes what its time has come for; how many."""
    with database.read() as session:
        live = list(session.scalars(select(File).where(File.deleted_at.is_(None))))
        uses = {id: uses_of(session, id) for id in {file.organisation_id for file in live}}
    due = [file for file in live if _is_due(file, uses[file.organisation_id].get(file.id, []), settings.keep_days)]
    return sum(_delete(database, settings, file.id) for file in due)


def _is_due(file: File, uses: list[Use], days: int | None) -> bool:
    """Whether it has lain here for long and nothing has ever used it, or jobs alone have, which are long over. What was
    offered once stays until its provider deletes it."""
    if not uses:
        return file.created_at <= now() - ABANDONED
    if days is None:
        return False
    until = now() - dt.timedelta(days=days)
    return all(not use.needed and use.at is not None and use.at <= until for use in uses)


def _delete(database: Database, settings: Settings, file_id: str) -> bool:
    """Looks again, with the file held: somebody may have begun to use it."""
    with database.begin() as session:
        file = lock_file(session, file_id)
        uses = uses_of(session, file.organisation_id).get(file_id, [])
        if file.deleted_at is not None or not _is_due(file, uses, settings.keep_days):
            return False
        file.deleted_at = now()
    remove_unnamed(database, settings, file.digest, file.suffix)
    return True


def remove_orphans(database: Database, settings: Settings) -> int:
    """Removes bytes that no row names: a crash came between a deletion and its end, or cut an upload off. How many.

    Where no row names anything of what lies here, this home is another database's, and all is left as it is.
    """
    there = {name: path for path in _kept_in(settings) if (name := _parsed(path)) is not None}
    with database.read() as session:
        rows = session.execute(select(File.digest, File.suffix, File.deleted_at)).all()
    known = {(digest, suffix) for digest, suffix, _ in rows}
    named = {(digest, suffix) for digest, suffix, deleted in rows if deleted is None}
    if not known & there.keys():
        return 0
    gone = 0
    for name in there.keys() - named:
        if name in known or _is_old(there[name]):
            gone += remove_unnamed(database, settings, *name)
    return gone


def _kept_in(settings: Settings) -> Iterator[Path]:
    return settings.files.glob("[0-9a-f][0-9a-f]/*")


def _parsed(path: Path) -> tuple[str, str] | None:
    found = _KEPT.fullmatch(path.name)
    return (found[1], found[2]) if found is not None else None


def _is_old(path: Path) -> bool:
    return path.stat().st_mtime < time.time() - STALE
