"""What has to be done now and then: requests expire, webhooks are told, and what is no longer needed goes."""

from __future__ import annotations

import datetime as dt
import logging
import threading

from sqlalchemy import delete, or_
from sqlalchemy.exc import SQLAlchemyError

from databazaar.service import contracts, outbox, retention
from databazaar.service.database.columns import now
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Answered, Outgoing, Token
from databazaar.service.settings import Settings

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
    deleted = retention.delete_due(database, settings)
    left = retention.remove_orphans(database, settings)
    if deleted or left:
        log.info("%d files were deleted, and %d more were left over", deleted, left)


class Sweeper:
    """Sweeps in a thread of its own, so that a webhook that does not answer keeps no job waiting."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings, self._database = settings, database
        self._thread = threading.Thread(target=self._work, name="sweeper", daemon=True)
        self._stopping = threading.Event()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Waits for a delivery that is under way, for ten seconds at the most."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10.0)

    def _work(self) -> None:
        until_sweep = until_files = 0.0
        while not self._stopping.is_set():
            try:
                if until_sweep <= 0.0:
                    sweep(self._database)
                    until_sweep = RARELY
                if until_files <= 0.0:
                    until_files = SELDOM  # a disk that fails keeps no webhook waiting
                    sweep_files(self._settings, self._database)
                outbox.deliver_due(self._database, private=self._settings.private_webhooks)
            except SQLAlchemyError as error:
                log.warning("the database does not answer, and is asked again: %s", type(error).__name__)
            except Exception:
                log.exception("the sweeper failed, and goes on")
            until_sweep, until_files = until_sweep - EVERY, until_files - EVERY
            self._stopping.wait(EVERY)
