"""The operator's pages: the market as it is, all jobs, and what waits where."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from databazaar.client import shapes
from databazaar.service import contracts, journal, members
from databazaar.service.caller import Caller
from databazaar.service.database.tables import Account, CashRecord, Contract, Job, JournalHead
from databazaar.service.http.forms import Form
from databazaar.service.http.job_page import LIVE, stuck, told_of
from databazaar.service.http.pages import PageContext
from databazaar.service.http.routes import Routes
from databazaar.service.hub.settlement import refund_unsound
from databazaar.service.lifecycle import ContractState, JobState

routes = Routes("members")
AUDITED_AT_ONCE = 20_000
"""A longer journal is audited when the operator asks for it."""
MOST_JOBS = 500


@routes.page("/operator", "operator/overview", "Overview", role="operator", menu=("Operating", 1))
def overview_page(page: PageContext, session: Session) -> dict[str, Any]:
    states = dict(session.execute(select(Job.state, func.count()).group_by(Job.state)).all())
    entries = session.get_one(JournalHead, 1).seq + 1
    looked = not page.by_htmx and entries <= AUDITED_AT_ONCE

    def sum_of(prefix: str) -> int:
        return int(session.scalar(select(func.sum(Account.balance)).where(Account.name.startswith(prefix))) or 0)

    def count(condition: Any) -> int:
        return session.scalar(select(func.count()).where(condition)) or 0

    return {
        "fee_percent": f"{page.market.fee_basis_points / 100:.2f}",
        "by_state": [(str(state), states[state]) for state in JobState if states.get(state)],
        "most_in_state": max(states.values(), default=1),
        "live_jobs": sum(states.get(state, 0) for state in LIVE),
        "escrow": sum_of("escrow:"),
        "held": sum_of("cash:") + sum_of("earned:"),
        "fees": journal.balance(session, "fees"),
        "requests": count(Contract.state == ContractState.REQUESTED),
        "to_confirm": count(CashRecord.state == "requested"),
        "audit": journal.audit(session) if looked else None,
        "entries": entries,
    }


@routes.page("/operator/jobs", "operator/jobs", "Jobs of the market", role="operator", menu=("Operating", 3))
def jobs_page(page: PageContext, session: Session, state: str = "") -> dict[str, Any]:
    chosen = state if state in set(JobState) else ""
    query = select(Job).order_by(Job.changed_at.desc()).limit(MOST_JOBS)
    return {
        "jobs": session.scalars(query.where(Job.state == chosen) if chosen else query).all(),
        "names": names_of(session, page.caller),
        "chosen": chosen,
        "here": f"/operator/jobs?state={chosen}" if chosen else "/operator/jobs",
        "told_of": told_of,
        "stuck": stuck,
    }


@routes.page("/operator/queues", "operator/queues", "Queues", role="operator", menu=("Operating", 4))
def queues_page(page: PageContext, session: Session) -> dict[str, Any]:
    waiting = session.scalars(select(Job).where(Job.state.in_(LIVE)).order_by(Job.created_at)).all()
    return {"jobs": waiting, "queues": contracts.queues(session, page.caller)}


def _percent(page: PageContext, form: Form) -> dict[str, Any]:
    try:
        points = Decimal(form.text("percent").strip().replace(",", ".")) * 100
        if not points.is_finite() or points != points.to_integral_value() or not 0 <= points <= 10_000:
            raise InvalidOperation
    except InvalidOperation:
        form.blame("percent", "write per cent between 0 and 100 with two decimals at the most, such as 1.25")
        return {}
    return {"basis_points": int(points)}


routes.write("/market/fee", shapes.Market)(members.set_fee)
routes.form(
    "/operator/fee",
    lambda page, made: f"The fee is {made.fee_basis_points / 100:.2f} % from now on.",
    page=overview_page,
    read=_percent,
)(members.set_fee)


routes.form(
    "/operator/jobs/{job_id}/refund", "Refunded: the whole escrow is the consumer’s cash again.", "/operator/jobs"
)(refund_unsound)


def names_of(session: Session, caller: Caller) -> dict[str, str]:
    """The organisations' names by their ids."""
    return {one.id: one.name for one in members.organisations(session, caller)}
