"""Who waits for whom."""

from __future__ import annotations

from fastapi import APIRouter

from databazaar.service import queues
from databazaar.service.http.api.calls import Asking
from databazaar.service.http.api.shapes import After, Limit, Page, Shown, paged

router = APIRouter(prefix="/v1", tags=["offers"])


class QueueShown(Shown):
    """Jobs of one offer by how far they are: `requested` of its provider, `agreed` and not funded, `waiting` for a
    place to run, `running`."""

    offer_id: str
    offer: str
    provider: str
    requested: int
    agreed: int
    waiting: int
    running: int


@router.get("/queues", response_model=Page[QueueShown])
def offer_queues(call: Asking, after: After = None, limit: Limit = 100) -> Page[QueueShown]:
    """The queues of a provider's own offers; of all for the operator."""
    with call.read() as session:
        found = queues.queues(session, call.caller)
        return paged(found, after, limit, QueueShown.model_validate, lambda row: row.offer_id)
