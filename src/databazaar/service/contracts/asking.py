"""Asking for contracts: what an offer's policy rules out or allows is decided at once, the rest is for people."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from databazaar.codes import Code
from databazaar.learning.asked_rows import LEAST_ROWS, visited_rows
from databazaar.service import specification
from databazaar.service.database.columns import now
from databazaar.service.database.tables import Contract, Job, Offer, Organisation
from databazaar.service.lives import contracts_of, enter, enter_contract, tell_parties
from databazaar.service.offers import current_version
from databazaar.service.policy import Policy
from databazaar.service.states import ContractState, JobState

_GONE = "the offer is not open any more: choose another one"
_OTHER_MODE = {
    "own": "the provider gives its updates to the hub's arbiter alone: make a hosted job, or choose another offer",
    "hosted": "the provider gives its updates to consumers' own arbiters alone: make the job with mode own, or choose "
    "another offer",
}


@dataclass(frozen=True)
class Needs:
    """What a job asks of every provider: to help to predict `target` from these columns, where they are known before
    the first ask. `mode` says who runs the arbiter, and so who gets the updates. `fingerprint` is the schema's.
    `defence` is the name of the rules by which pay may be held or taken back."""

    model: str
    oracle: dict[str, Any]
    mode: str = "hosted"
    target: str = ""
    task: str = ""
    columns: list[str] | None = None
    fingerprint: str | None = None
    defence: str = "none"

    def rows(self, table: int | None) -> int | None:
        """How many pass through the model in one ask of a table of so many; None where that is not known before."""
        return visited_rows(self.oracle, table)


def request(session: Session, job: Job, consumer: Organisation, offer: Offer, needs: Needs) -> Contract:
    """Asks for a contract. What the offer's policy rules out is refused at once, and what it allows without a look is
    agreed at once."""
    version, policy = current_version(session, offer), Policy.model_validate(offer.policy)
    contract = Contract(
        job_id=job.id,
        offer_id=offer.id,
        version_id=version.id,
        consumer_id=consumer.id,
        provider_id=offer.organisation_id,
        state=ContractState.REQUESTED,
        price=policy.price,
        terms=offer.policy,
        expires_at=now() + dt.timedelta(days=policy.days_to_decide),
    )
    session.add(contract)
    session.flush()
    provider = session.get_one(Organisation, offer.organisation_id)
    gone = offer.withdrawn_at is not None or provider.suspended_at is not None
    objection = _GONE if gone else _objection(policy, consumer, needs, version.rows)
    if objection is not None:
        enter_contract(session, contract, ContractState.REFUSED, objection)
    elif policy.approval == "automatic":
        enter_contract(session, contract, ContractState.AGREED)
    else:
        tell_parties(session, contract)
    return contract


def _objection(policy: Policy, consumer: Organisation, needs: Needs, table_rows: int | None) -> str | None:
    """What the policy has against a job, if anything."""
    if policy.consumers is not None and consumer.slug not in policy.consumers:
        return "the provider allows other consumers only: ask it, or choose another offer"
    if policy.models is not None and needs.model not in policy.models:
        return f"the provider does not allow model.kind = {needs.model!r}: use {' or '.join(policy.models)}"
    if policy.modes is not None and needs.mode not in policy.modes:
        return _OTHER_MODE[needs.mode]
    rows = needs.rows(table_rows)
    if policy.most_rows is not None and rows is not None and rows > policy.most_rows:
        return (
            f"an ask goes through {rows:,} rows, and the provider allows {policy.most_rows:,}: lower oracle.steps "
            f"or oracle.epochs, or oracle.batch_size to no less than {LEAST_ROWS}"
        )
    return None


def conclude(session: Session, job: Job) -> None:
    """Takes those who have refused out of the job's market. Once nobody is still to decide, the job is agreed, or has
    failed where nobody agreed. The job is locked."""
    contracts = contracts_of(session, job)
    others = {c.offer_id for c in contracts if c.state in (ContractState.REFUSED, ContractState.EXPIRED)}
    if others:
        specification.leave_out(job, list(session.scalars(select(Offer.slug).where(Offer.id.in_(others)))))
    if job.state != JobState.SUBMITTED or any(c.state == ContractState.REQUESTED for c in contracts):
        return
    agreed = sum(contract.state == ContractState.AGREED for contract in contracts)
    if agreed:
        enter(session, job, JobState.AGREED, Code.of("providers-agreed", agreed=agreed, asked=len(contracts)))
        return
    reasons = sorted({contract.reason or contract.state for contract in contracts})
    enter(session, job, JobState.FAILED, Code.of("nobody-agreed", why="; ".join(reasons)))
