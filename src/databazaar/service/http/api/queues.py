"""Who waits for whom."""

from __future__ import annotations

from fastapi import APIRouter

from databazaar.client import shapes
from databazaar.service import contracts
from databazaar.service.http.api.calls import Asking
from databazaar.service.http.api.shapes import After, Limit, Page, paged

router = APIRouter(prefix="/v1", tags=["offers"])


@router.get("/queues", response_model=Page[shapes.Queue])
def offer_queues(call: Asking, after: After = None, limit: Limit = 100) -> Page[shapes.Queue]:
    """The queues of a provider's own offers; of all for the operator."""
    with call.read() as session:
        found = contracts.queues(session, call.caller)
        return paged(shapes.Queue, found, after, limit, "offer_id")
