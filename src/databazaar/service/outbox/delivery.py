"""The outbox is emptied: at least once for each event, later and later where nobody answers, and for a day at most."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import select
from sqlalchemy.orm import Session

from databazaar.service.database.columns import now
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Outgoing, Webhook
from databazaar.service.outbox.sending import Parcel, Send, post

DELAYS = (10, 30, 60, 300, 900, 1800, 3600, 7200, *(10_800,) * 6)
"""Seconds between attempts; after the last of them, about a day after the event, it is given up."""
HELD = dt.timedelta(minutes=5)
"""For so long one hub has a parcel to itself: longer than any attempt takes."""


def deliver_due(
    database: Database,
    send: Send = post,
    *,
    private: bool = False,
    most: int = 10,
    clock: Callable[[], dt.datetime] = now,
) -> int:
    """Sends what is due, at most so many at once, and says how many arrived. No transaction is open meanwhile.

    `private` allows addresses of this machine and its network.
    """
    with database.begin() as session:
        parcels = _claimed(session, most, clock())
    if not parcels:
        return 0
    with ThreadPoolExecutor(len(parcels)) as pool:
        taken = list(pool.map(lambda parcel: send(parcel, private), parcels))
    with database.begin() as session:
        for parcel, delivered in zip(parcels, taken, strict=True):
            _note(session, parcel.id, delivered, clock())
    return sum(taken)


def _claimed(session: Session, most: int, moment: dt.datetime) -> list[Parcel]:
    """What is due, kept from others for a while."""
    due = (
        select(Outgoing, Webhook)
        .join(Webhook, Webhook.id == Outgoing.webhook_id)
        .where(Outgoing.delivered_at.is_(None), Outgoing.given_up_at.is_(None), Outgoing.next_at <= moment)
        .where(Webhook.removed_at.is_(None))
        .order_by(Outgoing.next_at, Outgoing.id)
        .limit(most)
        .with_for_update(of=Outgoing, skip_locked=True)
    )
    parcels = []
    for outgoing, webhook in session.execute(due):
        outgoing.next_at = moment + HELD
        content = {"id": outgoing.id, "event": outgoing.event, **outgoing.body}
        body = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
        parcels.append(Parcel(outgoing.id, webhook.url, webhook.secret, outgoing.event, body))
    return parcels


def _note(session: Session, outgoing_id: str, delivered: bool, moment: dt.datetime) -> None:
    outgoing = session.get_one(Outgoing, outgoing_id)
    outgoing.attempts += 1
    if delivered:
        outgoing.delivered_at = moment
    elif outgoing.attempts > len(DELAYS):
        outgoing.given_up_at = moment
    else:
        outgoing.next_at = moment + dt.timedelta(seconds=DELAYS[outgoing.attempts - 1])
