"""An organisation's webhooks: added with a secret that is shown once, watched, removed."""

from __future__ import annotations

from fastapi import APIRouter, Response

from databazaar.service import outbox
from databazaar.service.http.pages.forms import Form
from databazaar.service.http.pages.visits import Posted, Visit, Visiting

router = APIRouter(include_in_schema=False, prefix="/webhooks")


@router.get("")
def webhooks_page(visit: Visiting) -> Response:
    return _page(visit, Form())


def _page(visit: Visit, form: Form, status: int = 200) -> Response:
    with visit.read() as session:
        own = outbox.webhooks(session, visit.caller)
        told = {one.id: outbox.deliveries(session, visit.caller, one.id) for one in own}
    return visit.render("webhooks", "Webhooks", status, form=form, webhooks=own, told=told)


@router.post("")
def add(visit: Visiting, posted: Posted) -> Response:
    form, secret = Form(posted), ""
    url = form.needed("url", "write where your program listens")
    with form.trying(url="url"):
        if not form.faulty:
            with visit.begin() as session:
                private = visit.settings.private_webhooks
                _, secret = outbox.add_webhook(session, visit.caller, url, private=private)
    if form.faulty:
        return _page(visit, form, 422)
    told = "The webhook is added. Keep the secret that signs what is sent there: it is not shown again."
    return visit.see("/webhooks", told, secret=secret)


@router.post("/{webhook_id}/remove")
def remove(visit: Visiting, _: Posted, webhook_id: str) -> Response:
    with visit.begin() as session:
        url = outbox.remove_webhook(session, visit.caller, webhook_id).url
    return visit.see("/webhooks", f"Nothing more is sent to {url}.", kind="info")
