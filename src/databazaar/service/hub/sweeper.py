"""What the hub does now and then: requests expire, webhooks are told, and what is no longer needed is deleted."""

from __future__ import annotations

import datetime as dt
import logging
import re
import threading
import time
from collections.abc import Callable

from sqlalchemy import delete, or_, select
from sqlalchemy.exc import SQLAlchemyError

from databazaar.service import contracts, outbox
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Answered, File, Outgoing, Token, now
from databazaar.service.files import STALE, Use, remove_unnamed, uses_of
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
    """Whether nothing has used the file for long, or only jobs that are long over; what was offered stays."""
    if not uses:
        return file.created_at <= now() - ABANDONED
    if days is None:
        return False
    until = now() - dt.timedelta(days=days)
    return all(not use.needed and use.at is not None and use.at <= until for use in uses)


def _delete(database: Database, settings: Settings, file_id: str) -> bool:
    """Looks again, with the file held: somebody may have begun to use it."""
    with database.begin() as session:
        file = session.get_one(File, file_id, with_for_update=True)
        uses = uses_of(session, file.organisation_id).get(file_id, [])
        if file.deleted_at is not None or not _is_due(file, uses, settings.keep_days):
            return False
        file.deleted_at = now()
    remove_unnamed(database, settings, file.digest, file.suffix)
    return True


def remove_orphans(database: Database, settings: Settings) -> int:
    """Removes bytes that no row names, as a crash leaves them; how many. Where no row names any file here, the home
    belongs to another database, and everything stays."""
    kept = ((path, _KEPT.fullmatch(path.name)) for path in settings.files.glob("[0-9a-f][0-9a-f]/*"))
    there = {name.groups(): path for path, name in kept if name is not None}
    with database.read() as session:
        rows = session.execute(select(File.digest, File.suffix, File.deleted_at)).all()
    known = {(digest, suffix) for digest, suffix, _ in rows}
    named = {(digest, suffix) for digest, suffix, deleted in rows if deleted is None}
    if not known & there.keys():
        return 0
    gone = 0
    for name in there.keys() - named:
        if name in known or there[name].stat().st_mtime < time.time() - STALE:
            gone += remove_unnamed(database, settings, *name)
    return gone


EVERY, RARELY, SELDOM = 2.0, 60.0, 3600.0
"""Seconds between looks at the outbox, at what expires, and at files."""
ANSWERS_FOR = dt.timedelta(days=7)
"""For so long the same Idempotency-Key gets the same answer."""
TOKENS_FOR = dt.timedelta(days=7)
"""So long after its end a session or a sign-in link is forgotten; API tokens are kept, and shown as expired."""
TOLD_FOR = dt.timedelta(days=30)
"""For so long a webhook's page says what it was told."""
log = logging.getLogger(__name__)


def sweep(database: Database) -> None:
    """Expires requests, and removes old answers, sessions, and what webhooks were told long ago."""
    with database.begin() as session:
        contracts.expire_due(session)
    with database.begin() as session:
        session.execute(delete(Answered).where(Answered.created_at < now() - ANSWERS_FOR))
        past = now() - TOKENS_FOR
        over = or_(Token.expires_at < past, Token.revoked_at < past)
        session.execute(delete(Token).where(Token.kind.in_(("session", "link")), over))
        told = or_(Outgoing.delivered_at.is_not(None), Outgoing.given_up_at.is_not(None))
        session.execute(delete(Outgoing).where(told, Outgoing.created_at < now() - TOLD_FOR))


def sweep_files(settings: Settings, database: Database) -> None:
    """Deletes files whose time has come, and what a crash has left of others."""
    deleted = delete_due(database, settings)
    left = remove_orphans(database, settings)
    if deleted or left:
        log.info("%d files were deleted, and %d more were left over", deleted, left)


class Repeated:
    """Does some work every so many seconds in a thread of its own, also after it has failed."""

    def __init__(self, name: str, seconds: float, work: Callable[[], object]) -> None:
        self._name, self._seconds, self._work = name, seconds, work
        self._thread = threading.Thread(target=self._repeat, name=name, daemon=True)
        self._stopping = threading.Event()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Waits for work that is under way, for ten seconds at the most."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10.0)

    def _repeat(self) -> None:
        while not self._stopping.is_set():
            try:
                self._work()
            except SQLAlchemyError as error:
                log.warning("%s: the database does not answer: %s", self._name, type(error).__name__)
            except Exception:
                log.exception("%s failed, and goes on", self._name)
            self._stopping.wait(self._seconds)


def sweepers(settings: Settings, database: Database) -> list[Repeated]:
    """What a hub repeats; a webhook that does not answer, or a disk that fails, keeps nothing else waiting."""
    return [
        Repeated("outbox", EVERY, lambda: outbox.deliver_due(database, private=settings.private_webhooks)),
        Repeated("sweeper", RARELY, lambda: sweep(database)),
        Repeated("files", SELDOM, lambda: sweep_files(settings, database)),
    ]
