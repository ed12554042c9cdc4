"""Where an organisation wants to be told, and what it is to be told."""

from __future__ import annotations

import secrets
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from databazaar.service.caller import Caller
from databazaar.service.database.columns import now
from databazaar.service.database.tables import Outgoing, Webhook
from databazaar.service.errors import ConflictError, DeniedError, InvalidError, MissingError

MOST_WEBHOOKS = 10
LONGEST_URL = 1000
MOST_DELIVERIES = 20


def add_webhook(session: Session, caller: Caller, url: str, *, private: bool = False) -> tuple[Webhook, str]:
    """A new webhook, and the secret that signs what is sent there, which is shown this once.

    Only https, unless the hub is set up to reach `private` addresses.
    """
    _require_writer(caller)
    _check(url, private)
    own = select(func.count()).where(Webhook.organisation_id == caller.organisation_id, Webhook.removed_at.is_(None))
    if (session.scalar(own) or 0) >= MOST_WEBHOOKS:
        raise ConflictError(f"an organisation has at most {MOST_WEBHOOKS} webhooks: remove one first")
    secret = secrets.token_urlsafe(32)
    webhook = Webhook(organisation_id=caller.organisation_id, url=url, secret=secret)
    session.add(webhook)
    session.flush()
    return webhook, secret


def _require_writer(caller: Caller) -> None:
    """Whoever may do more than look: a person who has signed in, or a token with a right to act."""
    if not caller.scopes - {"read"}:
        raise DeniedError("this needs a right to act, such as jobs or offers: use a token that has one")


def _check(url: str, private: bool) -> None:
    try:
        parts = urlsplit(url)
        fits = bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    schemes = ("https", "http") if private else ("https",)
    printable = url.isascii() and url.isprintable() and " " not in url and len(url) <= LONGEST_URL
    if not (fits and printable and parts.scheme in schemes):
        raise InvalidError(f"url must be an address that begins with {schemes[0]}://: write it in full", place="url")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise InvalidError("url must hold no name, password or fragment: what is sent is signed instead", place="url")


def remove_webhook(session: Session, caller: Caller, webhook_id: str) -> Webhook:
    """Nothing more is sent there, what waits included."""
    _require_writer(caller)
    webhook = own_webhook(session, caller, webhook_id)
    webhook.removed_at = now()
    session.flush()
    return webhook


def webhooks(session: Session, caller: Caller) -> list[Webhook]:
    """One's own, the oldest first."""
    caller.require("read")
    own = select(Webhook).where(Webhook.organisation_id == caller.organisation_id, Webhook.removed_at.is_(None))
    return list(session.scalars(own.order_by(Webhook.created_at, Webhook.id)))


def deliveries(session: Session, caller: Caller, webhook_id: str, most: int = MOST_DELIVERIES) -> list[Outgoing]:
    """What one's own webhook was told last, or is yet to be told; the newest first."""
    own_webhook(session, caller, webhook_id)
    told = select(Outgoing).where(Outgoing.webhook_id == webhook_id)
    return list(session.scalars(told.order_by(Outgoing.created_at.desc(), Outgoing.id).limit(most)))


def own_webhook(session: Session, caller: Caller, webhook_id: str) -> Webhook:
    caller.require("read")
    webhook = session.get(Webhook, webhook_id)
    if webhook is None or webhook.organisation_id != caller.organisation_id or webhook.removed_at is not None:
        raise MissingError("there is no such webhook: look at the list of your webhooks")
    return webhook


def tell(session: Session, organisation_id: str, event: str, body: dict[str, Any]) -> None:
    """Puts an event into the outbox for every webhook of an organisation, in the transaction that it tells of."""
    own = select(Webhook.id).where(Webhook.organisation_id == organisation_id, Webhook.removed_at.is_(None))
    session.add_all(Outgoing(webhook_id=webhook, event=event, body=body) for webhook in session.scalars(own))
