"""Who waits for whom: for each offer, the jobs that are to decide, to pay, to start, and that run."""

from __future__ import annotations

from collections import Counter

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from databazaar.client.shapes import Queue
from databazaar.service.caller import Caller
from databazaar.service.database.tables import Contract, Job, Offer, Organisation
from databazaar.service.states import ContractState, JobState

_STARTED = {JobState.RUNNING: "running", JobState.SETTLING: "running"}


def queues(session: Session, caller: Caller) -> list[Queue]:
    """Those of a provider's own offers; for the operator those of all."""
    caller.require("read")
    rows = (
        select(Offer.id, Offer.slug, Organisation.slug, Contract.state, Job.state, func.count(Contract.id))
        .join(Organisation, Organisation.id == Offer.organisation_id)
        .outerjoin(Contract, Contract.offer_id == Offer.id)
        .outerjoin(Job, Job.id == Contract.job_id)
        .group_by(Offer.id, Offer.slug, Organisation.slug, Contract.state, Job.state)
        .order_by(Offer.slug)
    )
    if not caller.sees_all:
        rows = rows.where(Offer.organisation_id == caller.organisation_id)
    counts: dict[tuple[str, str, str], Counter[str]] = {}
    for offer_id, offer, provider, state, job_state, count in session.execute(rows):
        found = counts.setdefault((offer_id, offer, provider), Counter())
        if (place := _place(state, job_state)) is not None:
            found[place] += count
    return [
        Queue(*offer, found["requested"], found["agreed"], found["waiting"], found["running"])
        for offer, found in counts.items()
    ]


def _place(state: str | None, job_state: str | None) -> str | None:
    if state in (ContractState.REQUESTED, ContractState.AGREED):
        return str(state)
    if state == ContractState.ACTIVE and job_state is not None:
        return _STARTED.get(JobState(job_state), "waiting")
    return None
