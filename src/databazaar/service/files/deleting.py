"""Deleting a file: first its row says so, then the bytes go, once no other row names them.

Whatever happens between the two, the sweep brings it to its end. What offers, contracts and receipts say of the file
(digest, rows, columns) stays, and so does the row.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from sqlalchemy import exists, select, text
from sqlalchemy.orm import Session

from databazaar.service.caller import Caller
from databazaar.service.database.columns import now
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import File
from databazaar.service.errors import ConflictError
from databazaar.service.files.keeping import BYTES_LOCK, require_uploader
from databazaar.service.files.looking import Use, own_file, uses_of
from databazaar.service.outlines import forget
from databazaar.service.settings import Settings

_REMEDIES = {
    "job": "the job {name!r} uses it: withdraw or stop that job, or wait until it is over",
    "offer": "the offer {name} has it: withdraw that offer, or give it a newer version, and delete the file then",
    "contract": "a contract for {name} needs it: delete it when that job is over",
}


def delete(session: Session, caller: Caller, file_id: str) -> File:
    """Gives up a file that nothing needs any more. Its bytes go with `remove_unnamed`, once this is committed."""
    require_uploader(caller)
    own_file(session, caller, file_id)
    lock_file(session, file_id)
    file = own_file(session, caller, file_id)  # as it is now that nobody else changes it
    for use in uses_of(session, file.organisation_id).get(file.id, ()):
        if use.needed:
            raise ConflictError(_why_not(use))
    file.deleted_at = now()
    session.flush()
    return file


def _why_not(use: Use) -> str:
    return _REMEDIES[use.kind].format(name=use.name)


def lock_file(session: Session, file_id: str) -> File:
    """The file as it is now, for whoever is about to delete it."""
    query = select(File).where(File.id == file_id).with_for_update().execution_options(populate_existing=True)
    return session.scalars(query).one()


def remove_unnamed(database: Database, settings: Settings, digest: str, suffix: str) -> bool:
    """Removes the bytes that no row names any more, with the names that ended jobs have for them. False where it cannot
    be done now, because somebody is uploading: the sweep does it later."""
    path = settings.file(digest, suffix)
    with database.begin() as session:  # on SQLite, from here on nobody else keeps a file
        if not database.is_sqlite and not session.scalar(
            text("SELECT pg_try_advisory_xact_lock(:lock)"), {"lock": BYTES_LOCK}
        ):
            return False
        named = exists().where(File.digest == digest, File.suffix == suffix, File.deleted_at.is_(None))
        if not session.scalar(select(named)):
            _remove(settings, path)
    return True


def _remove(settings: Settings, path: Path) -> None:
    """The kept name goes last: while it is there, something is left to do."""
    with contextlib.suppress(FileNotFoundError):
        kept = path.stat()
        if kept.st_nlink > 1:
            for data in settings.jobs.glob("*/data"):
                for name in data.iterdir():
                    if os.path.samestat(name.lstat(), kept):
                        name.unlink()
        path.unlink()
    forget(path)
