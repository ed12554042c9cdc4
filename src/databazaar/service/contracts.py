"""Contracts: for one job, what a provider lets the consumer have, of which version of its data, and at which price."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import ColumnElement, Row, and_, func, or_, select
from sqlalchemy.orm import Session, aliased

from databazaar.client import shapes
from databazaar.client.shapes import Queue
from databazaar.codes import Code
from databazaar.files import read_plain
from databazaar.learning.asked_rows import LEAST_ROWS, ROWS, visited_rows
from databazaar.service import lifecycle, specification
from databazaar.service.caller import Caller
from databazaar.service.database.tables import Contract, Job, Offer, OfferVersion, Organisation, now
from databazaar.service.errors import ConflictError, MissingError
from databazaar.service.lifecycle import ContractState, JobState
from databazaar.service.names import prose
from databazaar.service.offers import current_version
from databazaar.service.policy import Policy
from databazaar.service.settings import Settings

ASKED = ("model", "learner", "trains_on_rows", "mode", "target", "task", "columns", "defence")
"""What of a job's needs both parties are shown."""
NO_CONTRACT = "there is no such contract: look at the list of your contracts"
_OTHER_MODE = {
    "own": "the provider gives its updates to the hub's arbiter alone: make a hosted job, or choose another offer",
    "hosted": "the provider gives its updates to consumers' own arbiters alone: make the job with mode own, or choose "
    "another offer",
}


@dataclass(frozen=True)
class Needs:
    """What a job asks of every provider: to help to predict `target` from these columns, where they are known before
    the first ask. `oracle` says what an access is: an update, or rows that the `learner` trains on inside the hub.
    `mode` says who runs the arbiter, and so who gets the updates. `fingerprint` is the schema's. `defence` is the name
    of the rules by which pay may be held or taken back."""

    model: str
    oracle: dict[str, Any]
    mode: str = "hosted"
    target: str = ""
    task: str = ""
    columns: list[str] | None = None
    fingerprint: str | None = None
    defence: str = "none"
    learner: str = "averaging"

    @property
    def trains_on_rows(self) -> bool:
        return bool(self.oracle["kind"] == ROWS)


def request(session: Session, job: Job, consumer: Organisation, offer: Offer, needs: Needs) -> Contract:
    """Asks for a contract; the offer's policy refuses or agrees at once where it can."""
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
    objection = _objection(policy, consumer, needs, version.rows)
    if offer.withdrawn_at is not None or provider.suspended_at is not None:
        objection = "the offer is not open any more: choose another one"
    if objection is not None:
        lifecycle.enter_contract(session, contract, ContractState.REFUSED, objection)
    elif policy.approval == "automatic":
        lifecycle.enter_contract(session, contract, ContractState.AGREED)
    else:
        lifecycle.tell_parties(session, contract)
    return contract


def _objection(policy: Policy, consumer: Organisation, needs: Needs, table_rows: int | None) -> str | None:
    """What the policy has against a job, if anything."""
    if policy.consumers is not None and consumer.slug not in policy.consumers:
        return "the provider allows other consumers only: ask it, or choose another offer"
    if policy.models is not None and needs.model not in policy.models:
        return f"the provider does not allow model.kind = {needs.model!r}: use {' or '.join(policy.models)}"
    if policy.learners is not None and needs.learner not in policy.learners:
        return f"the provider does not allow learner.kind = {needs.learner!r}: use {' or '.join(policy.learners)}"
    if policy.modes is not None and needs.mode not in policy.modes:
        return _OTHER_MODE[needs.mode]
    rows = visited_rows(needs.oracle, table_rows)
    if policy.most_rows is not None and rows is not None and rows > policy.most_rows:
        oracle = "oracle.steps or oracle.epochs, or oracle.batch_size"
        lower = "learner.rows" if needs.trains_on_rows else oracle
        return (
            f"an ask goes through {rows:,} rows, and the provider allows {policy.most_rows:,}: lower {lower} to no "
            f"less than {LEAST_ROWS}"
        )
    return None


def conclude(session: Session, job: Job) -> None:
    """Takes refused offers out of a locked job's market; agrees or fails the job once all providers have decided."""
    contracts = lifecycle.contracts_of(session, job)
    others = {c.offer_id for c in contracts if c.state in (ContractState.REFUSED, ContractState.EXPIRED)}
    if others:
        specification.leave_out(job, list(session.scalars(select(Offer.slug).where(Offer.id.in_(others)))))
    if job.state != JobState.SUBMITTED or any(c.state == ContractState.REQUESTED for c in contracts):
        return
    agreed = sum(contract.state == ContractState.AGREED for contract in contracts)
    if agreed:
        lifecycle.enter(session, job, JobState.AGREED, Code.of("providers-agreed", agreed=agreed, asked=len(contracts)))
        return
    reasons = sorted({contract.reason or contract.state for contract in contracts})
    lifecycle.enter(session, job, JobState.FAILED, Code.of("nobody-agreed", why="; ".join(reasons)))


LONGEST_REASON = 500


def decide(session: Session, caller: Caller, contract_id: str, agree: bool, reason: str = "") -> Contract:
    """The provider's yes or no. Of two people who decide at once the first has decided."""
    caller.require_provider()
    reason = prose(reason, "reason", LONGEST_REASON)
    found = session.get(Contract, contract_id)
    if found is None or found.provider_id != caller.organisation_id:
        raise MissingError(NO_CONTRACT)
    job = lifecycle.locked_job(session, found.job_id)
    contract = session.get_one(Contract, contract_id, with_for_update=True, populate_existing=True)
    if contract.state != ContractState.REQUESTED:
        raise ConflictError(f"this contract is {contract.state} already: nothing is left to decide")
    if contract.expires_at <= now():
        raise ConflictError("the time to decide this contract is over: the consumer may ask anew")
    state = ContractState.AGREED if agree else ContractState.REFUSED
    lifecycle.enter_contract(session, contract, state, reason or ("" if agree else "the provider said no"))
    conclude(session, job)
    return contract


def expire_due(session: Session) -> int:
    """Ends requests that nobody has decided in time; how many there were."""
    due = select(Contract.id, Contract.job_id).where(
        Contract.state == ContractState.REQUESTED, Contract.expires_at <= now()
    )
    expired = 0
    for contract_id, job_id in session.execute(due.order_by(Contract.job_id, Contract.id)).all():
        job = lifecycle.locked_job(session, job_id)
        contract = session.get_one(Contract, contract_id, with_for_update=True, populate_existing=True)
        if contract.state == ContractState.REQUESTED:
            lifecycle.enter_contract(session, contract, ContractState.EXPIRED, "the provider did not decide in time")
            conclude(session, job)
            expired += 1
    return expired


def own_contracts(
    session: Session,
    caller: Caller,
    job_id: str | None = None,
    state: ContractState | None = None,
    party: Literal["consumer", "provider"] | None = None,
) -> list[shapes.Contract]:
    """The caller's contracts, the oldest first: of one job, in one state, or those that it has made as a consumer or
    as a provider. What a provider is to decide is `requested`; accesses, pay and ε are there once one has `ended`."""
    which = [_party(caller)]
    if party is not None:
        which.append(getattr(Contract, f"{party}_id") == caller.organisation_id)
    if job_id is not None:
        which.append(Contract.job_id == job_id)
    if state is not None:
        which.append(Contract.state == state)
    return _found(session, caller, and_(*which))


def own_contract(session: Session, caller: Caller, contract_id: str) -> shapes.Contract:
    """One contract of the caller's."""
    found = _found(session, caller, _party(caller) & (Contract.id == contract_id))
    if not found:
        raise MissingError(NO_CONTRACT)
    return found[0]


def _party(caller: Caller) -> ColumnElement[bool]:
    return or_(Contract.provider_id == caller.organisation_id, Contract.consumer_id == caller.organisation_id)


def _found(session: Session, caller: Caller, which: ColumnElement[bool]) -> list[shapes.Contract]:
    """The oldest first."""
    caller.require("read")
    consumer, provider = aliased(Organisation), aliased(Organisation)
    query = (
        select(Contract, Job, Offer, OfferVersion, consumer, provider)
        .join(Job, Job.id == Contract.job_id)
        .join(Offer, Offer.id == Contract.offer_id)
        .join(OfferVersion, OfferVersion.id == Contract.version_id)
        .join(consumer, consumer.id == Contract.consumer_id)
        .join(provider, provider.id == Contract.provider_id)
        .where(which)
        .order_by(Contract.requested_at, Contract.id)
    )
    return [_view(caller, row) for row in session.execute(query)]


def _view(caller: Caller, row: Row[Contract, Job, Offer, OfferVersion, Organisation, Organisation]) -> shapes.Contract:
    contract, job, offer, version, consumer, provider = row
    theirs, needs = caller.organisation_id == contract.provider_id, Needs(**job.needs)
    return shapes.Contract.of(
        contract,
        job_name=job.name,
        job_state=job.state if contract.state == ContractState.ACTIVE or not theirs else None,
        rows=visited_rows(needs.oracle, version.rows),
        **{name: getattr(needs, name) for name in ASKED},
        fingerprint=needs.fingerprint if offer.kind == "site" else None,
        consumer=consumer.slug,
        consumer_name=consumer.name,
        provider=provider.slug,
        provider_name=provider.name,
        offer=offer.slug,
        offer_name=offer.name,
        kind=offer.kind,
        version=version.number,
        digest=version.digest if theirs else None,
        terms={name: value for name, value in contract.terms.items() if theirs or name != "consumers"},
    )


SCHEMA = "schema.json"
LARGEST = 2**26


def schema_of(session: Session, caller: Caller, settings: Settings, contract_id: str) -> bytes:
    """The schema.json by which a site will be asked; for its provider and the job's consumer."""
    contract = own_contract(session, caller, contract_id)
    if contract.fingerprint is None:
        raise ConflictError(
            "this contract has no schema to look at: one with a site has, where the hub has the hold-out"
        )
    folder = settings.job_folder(contract.job_id)
    return read_plain(folder / SCHEMA, folder, LARGEST)


def queues(session: Session, caller: Caller) -> list[Queue]:
    """The queues of a provider's own offers; of all for the operator."""
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
    counts: dict[tuple[str, str, str], Counter[str | None]] = {}
    for offer_id, offer, provider, state, job_state, count in session.execute(rows):
        found = counts.setdefault((offer_id, offer, provider), Counter())
        if state == ContractState.ACTIVE:
            state = "running" if job_state in (JobState.RUNNING, JobState.SETTLING) else "waiting"
        found[state] += count
    states = ("requested", "agreed", "waiting", "running")
    return [
        Queue(offer_id=offer_id, offer=offer, provider=provider, **{state: found[state] for state in states})
        for (offer_id, offer, provider), found in counts.items()
    ]
