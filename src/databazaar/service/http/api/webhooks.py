"""Where an organisation wants to be told what happens. What is sent there is signed."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from databazaar.client import shapes
from databazaar.client.conversion import from_row
from databazaar.service import outbox
from databazaar.service.http.api.calls import Asking, Doing
from databazaar.service.http.api.shapes import After, Asked, Limit, Page, paged

router = APIRouter(prefix="/v1", tags=["webhooks"])


class Deliveries(BaseModel):
    items: list[shapes.Delivery]


class AddWebhook(Asked):
    url: Annotated[str, Field(min_length=8, max_length=1000)]


@router.get("/webhooks", response_model=Page[shapes.Webhook])
def webhooks(call: Asking, after: After = None, limit: Limit = 100) -> Page[shapes.Webhook]:
    """One's own webhooks."""
    with call.read() as session:
        found = outbox.webhooks(session, call.caller)
        return paged(shapes.Webhook, found, after, limit)


@router.post("/webhooks", response_model=shapes.NewWebhook, status_code=201)
def add_webhook(asked: AddWebhook, call: Doing) -> Response:
    """Adds a webhook, and shows the secret that signs what is sent there."""

    def deed(session: Session) -> shapes.NewWebhook:
        private = call.settings.private_webhooks
        webhook, secret = outbox.add_webhook(session, call.caller, asked.url, private=private)
        return shapes.NewWebhook(webhook=from_row(shapes.Webhook, webhook), secret=secret)

    return call.do(shapes.NewWebhook, deed, 201, secret=True)


@router.get("/webhooks/{webhook_id}/deliveries", response_model=Deliveries)
def deliveries(webhook_id: str, call: Asking) -> Deliveries:
    """What the webhook was told last, or is yet to be told; the newest first."""
    with call.read() as session:
        found = outbox.deliveries(session, call.caller, webhook_id)
        return Deliveries(items=[from_row(shapes.Delivery, one) for one in found])


@router.post("/webhooks/{webhook_id}/remove", response_model=shapes.Webhook)
def remove_webhook(webhook_id: str, call: Doing) -> Response:
    """Nothing more is sent there."""
    return call.do(shapes.Webhook, lambda session: outbox.remove_webhook(session, call.caller, webhook_id))
