"""Money that comes in and goes out: records that the operator confirms. The hub holds no money."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Response
from pydantic import Field
from sqlalchemy.orm import Session

from databazaar.client import shapes
from databazaar.service import cash
from databazaar.service.caller import Caller
from databazaar.service.database.tables import CashRecord
from databazaar.service.http.api.calls import Asking, Call, Doing
from databazaar.service.http.api.shapes import After, Amount, Asked, Limit, Page, Reason, paged
from databazaar.service.settings import Settings

router = APIRouter(prefix="/v1", tags=["money"])
MOST = 100_000


class Move(Asked):
    amount: Amount


class Confirmation(Asked):
    reference: Annotated[str, Field(max_length=200, description="The bank's name for the transfer, say.")] = ""


class CashRefusal(Asked):
    reason: Reason


@router.get("/cash", response_model=Page[shapes.Cash])
def cash_records(
    call: Asking,
    state: Literal["requested", "done", "refused"] | None = None,
    after: After = None,
    limit: Limit = 100,
) -> Page[shapes.Cash]:
    """Deposits and payouts: one's own, or all for the operator."""
    with call.read() as session:
        found = cash.records(session, call.caller, state=state, most=MOST)
        return paged(shapes.Cash, found, after, limit)


@router.post("/deposits", response_model=shapes.Cash, status_code=201)
def deposit(asked: Move, call: Doing) -> Response:
    """Says that money comes in; it is there once the operator, or the adapter, has confirmed it."""
    return _moved(call, asked, cash.request_deposit)


@router.post("/payouts", response_model=shapes.Cash, status_code=201)
def payout(asked: Move, call: Doing) -> Response:
    """Asks for pay to be sent out."""
    return _moved(call, asked, cash.request_payout)


@router.post("/withdrawals", response_model=shapes.Cash, status_code=201)
def withdraw_cash(asked: Move, call: Doing) -> Response:
    """Asks for cash back that is not spent."""
    return _moved(call, asked, cash.request_withdrawal)


@router.post("/cash/{record_id}/confirm", response_model=shapes.Cash)
def confirm_cash(record_id: str, asked: Confirmation, call: Doing) -> Response:
    """The money has moved, outside. For the operator."""
    return call.do(shapes.Cash, lambda session: cash.confirm(session, call.caller, record_id, asked.reference))


@router.post("/cash/{record_id}/refuse", response_model=shapes.Cash)
def refuse_cash(record_id: str, asked: CashRefusal, call: Doing) -> Response:
    """The money has not moved and will not. For the operator."""
    return call.do(shapes.Cash, lambda session: cash.refuse(session, call.caller, record_id, asked.reason))


def _moved(call: Call, asked: Move, request: Callable[[Session, Caller, Settings, int], CashRecord]) -> Response:
    return call.do(shapes.Cash, lambda session: request(session, call.caller, call.settings, asked.amount), 201)
