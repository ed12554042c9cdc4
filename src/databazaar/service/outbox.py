"""Webhooks: organisations are told what has happened by signed POSTs, from an outbox that a crash does not empty.

An address that somebody else has chosen must lead outside: its name is looked up once, every address that it has is
checked, and the connection goes to the one that was checked. No redirect is followed.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import hmac
import ipaddress
import secrets
import socket
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from databazaar.canonical import canonical
from databazaar.client import shapes
from databazaar.service.caller import Caller, own_row
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Outgoing, Webhook, now
from databazaar.service.errors import ConflictError, DeniedError, InvalidError, MissingError

MOST_WEBHOOKS = 10
LONGEST_URL = 1000
MOST_DELIVERIES = 20
NO_WEBHOOK = "there is no such webhook: look at the list of your webhooks"


def add_webhook(session: Session, caller: Caller, url: str, *, private: bool = False) -> shapes.NewWebhook:
    """A new https webhook and its signing secret, which is shown this once; with `private` also http."""
    _require_writer(caller)
    _check(url, private)
    own = select(func.count()).where(Webhook.organisation_id == caller.organisation_id, Webhook.removed_at.is_(None))
    if (session.scalar(own) or 0) >= MOST_WEBHOOKS:
        raise ConflictError(f"an organisation has at most {MOST_WEBHOOKS} webhooks: remove one first")
    secret = secrets.token_urlsafe(32)
    webhook = Webhook(organisation_id=caller.organisation_id, url=url, secret=secret)
    session.add(webhook)
    session.flush()
    return shapes.NewWebhook(webhook=shapes.Webhook.of(webhook), secret=secret)


def _require_writer(caller: Caller) -> None:
    """A caller that may do more than look: a person who has signed in, or a token with a right to act."""
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
    webhook = _own_webhook(session, caller, webhook_id)
    webhook.removed_at = now()
    return webhook


def webhooks(session: Session, caller: Caller) -> list[Webhook]:
    """One's own webhooks, the oldest first."""
    caller.require("read")
    own = select(Webhook).where(Webhook.organisation_id == caller.organisation_id, Webhook.removed_at.is_(None))
    return list(session.scalars(own.order_by(Webhook.created_at, Webhook.id)))


def deliveries(session: Session, caller: Caller, webhook_id: str) -> list[Outgoing]:
    """What one's own webhook was told last, or is yet to be told; the newest first."""
    _own_webhook(session, caller, webhook_id)
    told = select(Outgoing).where(Outgoing.webhook_id == webhook_id)
    return list(session.scalars(told.order_by(Outgoing.created_at.desc(), Outgoing.id).limit(MOST_DELIVERIES)))


def _own_webhook(session: Session, caller: Caller, webhook_id: str) -> Webhook:
    caller.require("read")
    webhook = own_row(session, caller, Webhook, webhook_id, NO_WEBHOOK)
    if webhook.removed_at is not None:
        raise MissingError(NO_WEBHOOK)
    return webhook


def tell(session: Session, organisation_id: str, event: str, body: dict[str, Any]) -> None:
    """Puts an event into the outbox for every webhook of an organisation, in the transaction that it tells of."""
    own = select(Webhook.id).where(Webhook.organisation_id == organisation_id, Webhook.removed_at.is_(None))
    session.add_all(Outgoing(webhook_id=webhook, event=event, body=body) for webhook in session.scalars(own))


PATIENCE = 10.0
"""Seconds for an attempt in all."""


@dataclass(frozen=True)
class Parcel:
    """One event on its way to one webhook."""

    id: str
    url: str
    secret: str = field(repr=False)
    event: str
    body: bytes


Send = Callable[[Parcel, bool], bool]
"""Sends a parcel, to a private address too if that is allowed; whether it has arrived."""


def signature_of(secret: str, timestamp: str, body: bytes) -> str:
    """What the header Bazaar-Signature says: HMAC-SHA256 over the timestamp, a point and the body."""
    return hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def post(parcel: Parcel, private: bool = False) -> bool:
    """Whether the other side has taken it, with any status from 200 to 299."""
    timestamp = str(int(time.time()))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "databazaar",
        "Bazaar-Event": parcel.event,
        "Bazaar-Delivery": parcel.id,
        "Bazaar-Timestamp": timestamp,
        "Bazaar-Signature": signature_of(parcel.secret, timestamp, parcel.body),
    }
    url = urlsplit(parcel.url)
    try:
        port = url.port or (443 if url.scheme == "https" else 80)
        address = checked_address(url.hostname or "", port, private)
        return asyncio.run(_is_taken(parcel, address, {**headers, "Host": url.netloc}))
    except (OSError, ValueError):
        return False


async def _is_taken(parcel: Parcel, address: str, headers: dict[str, str]) -> bool:
    """Sends it to an address that was checked, and hangs up after `PATIENCE`, however slowly the other side goes on."""
    import httpx

    url = httpx.URL(parcel.url)
    to, opened = url.copy_with(host=address), list[Any]()

    async def note(event: str, told: dict[str, Any]) -> None:
        if event == "connection.connect_tcp.complete":
            opened.append(told["return_value"])

    more, trusted = {"sni_hostname": url.host, "trace": note}, ssl.create_default_context()
    try:
        async with (
            asyncio.timeout(PATIENCE),
            httpx.AsyncClient(verify=trusted, trust_env=False, timeout=PATIENCE) as client,
            client.stream("POST", to, content=parcel.body, headers=headers, extensions=more) as answer,
        ):
            return answer.is_success
    except httpx.HTTPError:
        return False
    finally:
        for connection in opened:  # httpx leaves one open whose TLS handshake is cancelled
            await connection.aclose()


def checked_address(host: str, port: int, private: bool) -> str:
    """The first address of a host, if all that it has are public: an OSError where one is not."""
    found = [entry[4] for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    for address in found:
        if not private and not is_public(str(address[0])):
            raise OSError(f"{host} leads to an address that is not public")
    return str(found[0][0])


def is_public(address: str) -> bool:
    """Whether an address is one of the open internet.

    >>> [is_public(a) for a in ("93.184.216.34", "127.0.0.1", "10.1.2.3", "::ffff:127.0.0.1", "169.254.169.254")]
    [True, False, False, False, False]
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    inner = _inner(ip) if isinstance(ip, ipaddress.IPv6Address) else None
    public = ip.is_global and not (ip.is_multicast or ip.is_reserved or ip.is_unspecified)
    return is_public(str(inner)) if inner is not None else public


def _inner(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The address of the old kind that one of the new kind leads to."""
    if ip in ipaddress.ip_network("64:ff9b::/96"):
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)


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
    """Sends at most `most` due events outside of any transaction; how many arrived. `private` allows local
    addresses."""
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
        body = canonical(content).encode()
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
