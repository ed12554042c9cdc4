"""The operator's pages: the market as it is, who takes part, all jobs, and what waits where."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

from fastapi import APIRouter, Response
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from databazaar.service import credentials, jobs, journal, members
from databazaar.service.caller import Caller
from databazaar.service.contracts import queues as queues_of
from databazaar.service.database.tables import (
    Account,
    CashRecord,
    Contract,
    Job,
    JournalHead,
    Organisation,
    Person,
)
from databazaar.service.http.pages.forms import Form
from databazaar.service.http.pages.job_view import stuck, told_of
from databazaar.service.http.pages.visits import Posted, Visit, Visiting
from databazaar.service.hub.settlement import refund_unsound
from databazaar.service.states import ContractState, JobState

router = APIRouter(include_in_schema=False, prefix="/operator")
LIVE = (JobState.FUNDED, JobState.QUEUED, JobState.RUNNING, JobState.SETTLING)
AUDITED_AT_ONCE = 20_000
"""A longer journal is audited when the operator asks for it."""
MOST_JOBS = 500


@router.get("")
def overview(visit: Visiting) -> Response:
    return _overview(visit, Form())


def _overview(visit: Visit, form: Form, status: int = 200) -> Response:
    visit.caller.require_operator()
    with visit.read() as session:
        states = dict(session.execute(select(Job.state, func.count()).group_by(Job.state)).all())
        by_state = [(str(state), states[state]) for state in JobState if states.get(state)]
        entries = session.get_one(JournalHead, 1).seq + 1
        looked = not visit.by_htmx and entries <= AUDITED_AT_ONCE
        return visit.render(
            "operator/overview",
            "Operating the market",
            status,
            form=form,
            fee_percent=f"{visit.fee_basis_points / 100:.2f}",
            by_state=by_state,
            most_in_state=max(states.values(), default=1),
            live_jobs=sum(states.get(state, 0) for state in LIVE),
            escrow=_sum_of(session, "escrow:"),
            held=_sum_of(session, "cash:") + _sum_of(session, "earned:"),
            fees=journal.balance(session, "fees"),
            requests=_count(session, Contract.state == ContractState.REQUESTED),
            to_confirm=_count(session, CashRecord.state == "requested"),
            audit=journal.audit(session) if looked else None,
            entries=entries,
        )


def _sum_of(session: Session, prefix: str) -> int:
    return int(session.scalar(select(func.sum(Account.balance)).where(Account.name.startswith(prefix))) or 0)


def _count(session: Session, condition: Any) -> int:
    return session.scalar(select(func.count()).where(condition)) or 0


@router.post("/fee")
def set_fee(visit: Visiting, posted: Posted) -> Response:
    visit.caller.require_operator()
    form = Form(posted)
    try:
        points = Decimal(form.text("percent").strip().replace(",", ".")) * 100
        if not points.is_finite() or points != points.to_integral_value() or not 0 <= points <= 10_000:
            raise InvalidOperation
    except InvalidOperation:
        form.blame("percent", "write per cent between 0 and 100 with two decimals at the most, such as 1.25")
        return _overview(visit, form, 422)
    with visit.begin() as session:
        members.set_fee(session, visit.caller, int(points))
    return visit.see("/operator", f"The fee is {points / 100:.2f} % from now on.")


@router.get("/organisations")
def organisations_page(visit: Visiting) -> Response:
    return _organisations(visit, Form())


def _organisations(visit: Visit, form: Form, status: int = 200) -> Response:
    visit.caller.require_operator()
    with visit.read() as session:
        found = members.organisations(session, visit.caller)
        first: dict[str, str] = {}
        for person in session.scalars(select(Person).order_by(Person.created_at.desc())):
            first[person.organisation_id] = person.id
    lines = [
        {
            "id": one.id,
            "name": one.name,
            "slug": one.slug,
            "operates": one.operates,
            "created_at": one.created_at,
            "suspended_at": one.suspended_at,
            "person_id": first.get(one.id),
            "roles": ", ".join(_roles(one)),
        }
        for one in found
    ]
    return visit.render("operator/organisations", "Organisations", status, form=form, organisations=lines)


def _roles(one: Organisation) -> list[str]:
    held = (("operator", one.operates), ("consumer", one.consumes), ("provider", one.provides))
    return [role for role, has in held if has]


@router.post("/organisations")
def invite(visit: Visiting, posted: Posted) -> Response:
    form, secret = Form(posted), ""
    roles = form.all("roles")
    with form.trying(slug="slug", email="e-mail", name="name", roles="consumes"), visit.begin() as session:
        secret = members.invite(
            session,
            visit.caller,
            name=form.text("name"),
            slug=form.text("slug").strip(),
            email=form.text("email"),
            consumes="consumes" in roles,
            provides="provides" in roles,
        ).secret
    if form.faulty:
        return _organisations(visit, form, 422)
    name, email = form.text("name").strip(), form.text("email").strip()
    return _shown_link(visit, f"{name} is invited: pass this link on to {email}.", secret)


def _shown_link(visit: Visit, words: str, secret: str) -> Response:
    link = f"{visit.settings.address.rstrip('/')}/join#{secret}"
    return visit.see("/operator/organisations", words, secret=link)


@router.post("/people/{person_id}/link")
def new_link(visit: Visiting, _: Posted, person_id: str) -> Response:
    visit.caller.require_operator()
    with visit.begin() as session:
        secret = credentials.issue_link(session, visit.caller, person_id)
        email = session.get_one(Person, person_id).email
    return _shown_link(visit, f"A new one-time link for {email}; earlier ones hold no longer.", secret)


@router.post("/organisations/{organisation_id}/suspend")
def suspend(visit: Visiting, _: Posted, organisation_id: str) -> Response:
    with visit.refusals() as refused, visit.begin() as session:
        name = members.suspend(session, visit.caller, organisation_id).name
    if refused:
        return visit.see("/operator/organisations", refused[0], kind="bad")
    told = f"{name} is suspended: nobody of it signs in, and its tokens are revoked."
    return visit.see("/operator/organisations", told)


@router.post("/organisations/{organisation_id}/restore")
def restore(visit: Visiting, _: Posted, organisation_id: str) -> Response:
    with visit.begin() as session:
        name = members.restore(session, visit.caller, organisation_id).name
    return visit.see("/operator/organisations", f"{name} takes part again: its people sign in as before.")


@router.get("/jobs")
def all_jobs(visit: Visiting, state: str = "") -> Response:
    visit.caller.require_operator()
    chosen = state if state in set(JobState) else ""
    with visit.read() as session:
        query = select(Job).order_by(Job.changed_at.desc()).limit(MOST_JOBS)
        found = session.scalars(query.where(Job.state == chosen) if chosen else query).all()
        names = names_of(session, visit.caller)
    here = f"/operator/jobs?state={chosen}" if chosen else "/operator/jobs"
    return visit.render(
        "operator/jobs",
        "Jobs of the market",
        jobs=found,
        names=names,
        chosen=chosen,
        here=here,
        told_of=told_of,
        stuck=stuck,
    )


@router.post("/jobs/{job_id}/refund")
def refund(visit: Visiting, _: Posted, job_id: str) -> Response:
    """For a job that its ledger cannot settle: the operator has looked, and the consumer gets all of it back."""
    with visit.refusals() as refused, visit.begin() as session:
        refund_unsound(session, visit.caller, job_id)
    if refused:
        return visit.see("/operator/jobs", refused[0], kind="bad")
    return visit.see("/operator/jobs", "Refunded: the whole escrow is the consumer’s cash again.")


@router.post("/jobs/{job_id}/stop")
def stop(visit: Visiting, _: Posted, job_id: str) -> Response:
    """For a job that must not go on: what it owes is paid, and its consumer gets the rest back."""
    visit.caller.require_operator()
    with visit.refusals() as refused, visit.begin() as session:
        jobs.stop(session, visit.caller, visit.settings, job_id)
    words = "It is stopped: it ends after the round under way, or in it where that takes too long."
    return visit.see("/operator/jobs", refused[0] if refused else words, kind="bad" if refused else "good")


@router.get("/queues")
def queues(visit: Visiting) -> Response:
    visit.caller.require_operator()
    with visit.read() as session:
        waiting = session.scalars(select(Job).where(Job.state.in_(LIVE)).order_by(Job.created_at)).all()
        lines = queues_of(session, visit.caller)
    return visit.render("operator/queues", "Queues", jobs=waiting, queues=lines)


def names_of(session: Session, caller: Caller) -> dict[str, str]:
    """The organisations' names by their ids."""
    return {one.id: one.name for one in members.organisations(session, caller)}
