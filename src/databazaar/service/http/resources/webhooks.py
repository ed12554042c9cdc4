"""Where an organisation is told what happens. What is sent there is signed."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from databazaar.client import shapes
from databazaar.client.conversion import from_row
from databazaar.service import outbox
from databazaar.service.database.tables import Webhook
from databazaar.service.http.context import Call
from databazaar.service.http.pages import PageContext
from databazaar.service.http.routes import Routes

routes = Routes("webhooks")


class Deliveries(BaseModel):
    items: list[shapes.Delivery]


@routes.page("/webhooks", "webhooks", "Webhooks", forms=("form",), menu=("Your organisation", "Webhooks", 5))
def webhooks_page(page: PageContext, session: Session) -> dict[str, Any]:
    own = outbox.webhooks(session, page.caller)
    return {"webhooks": own, "told": {one.id: outbox.deliveries(session, page.caller, one.id) for one in own}}


@routes.listing("/webhooks", shapes.Webhook)
def webhooks(call: Call, session: Session) -> list[Webhook]:
    """One's own webhooks."""
    return outbox.webhooks(session, call.caller)


@routes.form(
    "/webhooks",
    "/webhooks",
    "The webhook is added. Keep the secret that signs what is sent there: it is not shown again.",
    page=webhooks_page,
    read=lambda page, form: {"url": form.needed("url", "write where your program listens")},
    secret="secret",  # noqa: S106
)
@routes.write("/webhooks", shapes.NewWebhook, 201, secret=True)
def add_webhook(
    call: Call, session: Session, *, url: Annotated[str, Field(min_length=8, max_length=1000)]
) -> shapes.NewWebhook:
    """Adds a webhook, and shows the secret that signs what is sent there."""
    made, secret = outbox.add_webhook(session, call.caller, url, private=call.settings.private_webhooks)
    return shapes.NewWebhook(webhook=from_row(shapes.Webhook, made), secret=secret)


@routes.read("/webhooks/{webhook_id}/deliveries", Deliveries)
def deliveries(call: Call, session: Session, webhook_id: str) -> Deliveries:
    """What the webhook was told last, or is yet to be told; the newest first."""
    found = outbox.deliveries(session, call.caller, webhook_id)
    return Deliveries(items=[from_row(shapes.Delivery, one) for one in found])


@routes.form("/webhooks/{webhook_id}/remove", "/webhooks", "Nothing more is sent to {made.url}.", kind="info")
@routes.write("/webhooks/{webhook_id}/remove", shapes.Webhook)
def remove_webhook(call: Call, session: Session, webhook_id: str) -> Webhook:
    """Nothing more is sent there."""
    return outbox.remove_webhook(session, call.caller, webhook_id)
