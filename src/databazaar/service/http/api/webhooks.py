"""Where an organisation wants to be told what happens. What is sent there is signed."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import Field
from sqlalchemy.orm import Session

from databazaar.service import outbox
from databazaar.service.http.api.calls import Asking, Doing
from databazaar.service.http.api.shapes import After, Asked, Limit, Page, Shown, paged

router = APIRouter(prefix="/v1", tags=["webhooks"])


class WebhookShown(Shown):
    id: str
    url: str
    created_at: dt.datetime


class NewWebhook(Shown):
    """`secret` is shown this once. Bazaar-Signature is the HMAC-SHA256 under it of Bazaar-Timestamp, a point and the
    body, in hexadecimal digits."""

    webhook: WebhookShown
    secret: str


class DeliveryShown(Shown):
    """An event that a webhook was told, or is to be told: for about a day, until it answers with 2xx."""

    id: str
    event: str
    body: dict[str, Any]
    attempts: int
    created_at: dt.datetime
    delivered_at: dt.datetime | None
    given_up_at: dt.datetime | None


class Deliveries(Shown):
    items: list[DeliveryShown]


class AddWebhook(Asked):
    url: Annotated[str, Field(min_length=8, max_length=1000)]


@router.get("/webhooks", response_model=Page[WebhookShown])
def webhooks(call: Asking, after: After = None, limit: Limit = 100) -> Page[WebhookShown]:
    """One's own webhooks."""
    with call.read() as session:
        found = outbox.webhooks(session, call.caller)
        return paged(found, after, limit, WebhookShown.model_validate, lambda row: row.id)


@router.post("/webhooks", response_model=NewWebhook, status_code=201)
def add_webhook(asked: AddWebhook, call: Doing) -> Response:
    """Adds a webhook, and shows the secret that signs what is sent there."""

    def deed(session: Session) -> NewWebhook:
        private = call.settings.private_webhooks
        webhook, secret = outbox.add_webhook(session, call.caller, asked.url, private=private)
        return NewWebhook(webhook=WebhookShown.model_validate(webhook), secret=secret)

    return call.do(deed, 201, secret=True)


@router.get("/webhooks/{webhook_id}/deliveries", response_model=Deliveries)
def deliveries(webhook_id: str, call: Asking) -> Deliveries:
    """What the webhook was told last, or is yet to be told; the newest first."""
    with call.read() as session:
        found = outbox.deliveries(session, call.caller, webhook_id)
        return Deliveries(items=[DeliveryShown.model_validate(one) for one in found])


@router.post("/webhooks/{webhook_id}/remove", response_model=WebhookShown)
def remove_webhook(webhook_id: str, call: Doing) -> Response:
    """Nothing more is sent there."""
    return call.do(lambda session: WebhookShown.model_validate(outbox.remove_webhook(session, call.caller, webhook_id)))
