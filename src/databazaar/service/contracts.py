"""Contracts: for one job, what a provider lets the consumer have, of which version of its data, and at which price."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.orm import Session, aliased

from databazaar.service.caller import Caller
from databazaar.service.database.columns import now
from databazaar.service.database.tables import Contract, Job, Offer, OfferVersion, Organisation
from databazaar.service.errors import ConflictError, MissingError
from databazaar.service.lives import contracts_of, enter, enter_contract, locked_job, tell_parties
from databazaar.service.offers import current_version
from databazaar.service.policy import Policy
from databazaar.service.states import ContractState, JobState
from databazaar.service.wording import prose

LONGEST_REASON = 500


@dataclass(frozen=True)
class Needs:
    """What a job asks of every provider. `rows` are those that pass through the model in one ask of a table of so many
    rows; None where that is not known before the ask."""

    model: str
    oracle: dict[str, Any]

    def rows(self, table: int | None) -> int | None:
        oracle = self.oracle
        if oracle["kind"] == "full-gradient":
            return table
        if oracle["kind"] == "stochastic-gradient":
            most, epochs = oracle["batch_size"], 1
        else:
            most, epochs = oracle["steps"] * oracle["batch_size"], oracle["epochs"]
        return int(most if table is None else min(most, epochs * table))


@dataclass(frozen=True)
class ContractView:
    """A contract as its two parties see it: of the consumer its name, and of the job its name and the model's kind."""

    id: str
    state: str
    reason: str
    job_id: str
    job_name: str
    model: str
    consumer: str
    consumer_name: str
    provider: str
    provider_name: str
    offer_id: str
    offer: str
    offer_name: str
    version: int
    digest: str | None
    price: int
    terms: dict[str, Any]
    accesses: int | None
    paid: int | None
    epsilon: float | None
    requested_at: dt.datetime
    expires_at: dt.datetime
    decided_at: dt.datetime | None
    ended_at: dt.datetime | None


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
    objection = _objection(policy, offer, consumer, needs, version.rows)
    if objection is not None:
        enter_contract(session, contract, ContractState.REFUSED, objection)
    elif policy.approval == "automatic":
        enter_contract(session, contract, ContractState.AGREED)
    else:
        tell_parties(session, contract)
    return contract


def _objection(
    policy: Policy, offer: Offer, consumer: Organisation, needs: Needs, table_rows: int | None
) -> str | None:
    """What the policy has against a job, if anything."""
    if offer.withdrawn_at is not None:
        return "the offer was withdrawn: choose another one"
    if policy.consumers is not None and consumer.slug not in policy.consumers:
        return "the provider allows other consumers only: ask it, or choose another offer"
    if policy.models is not None and needs.model not in policy.models:
        return (
            f"the provider does not allow model.kind = {needs.model!r}: use {' or '.join(policy.models)}"
        )
    rows = needs.rows(table_rows)
    if policy.most_rows is not None and rows is not None and rows > policy.most_rows:
        return (
            f"an ask goes through {rows:,} rows, and the provider allows {policy.most_rows:,}: lower oracle.steps, "
            "oracle.epochs or oracle.batch_size"
        )
    return None


def conclude(session: Session, job: Job) -> None:
    """Once nobody is still to decide, the job is agreed, or has failed where nobody agreed. The job is locked."""
    contracts = contracts_of(session, job)
    if job.state != JobState.SUBMITTED or any(c.state == ContractState.REQUESTED for c in contracts):
        return
    agreed = sum(contract.state == ContractState.AGREED for contract in contracts)
    if agreed:
        enter(session, job, JobState.AGREED, f"{agreed} of {len(contracts)} providers agreed")
        return
    reasons = sorted({contract.reason or contract.state for contract in contracts})
    enter(session, job, JobState.FAILED, f"nobody agreed: {'; '.join(reasons)}")


def decide(session: Session, caller: Caller, contract_id: str, agree: bool, reason: str = "") -> Contract:
    """The provider's yes or no. Of two people who decide at once the first has decided."""
    caller.require_provider()
    reason = prose(reason, "reason", LONGEST_REASON)
    found = session.get(Contract, contract_id)
    if found is None or found.provider_id != caller.organisation_id:
        raise MissingError("there is no such contract: look at the list of your contracts")
    job = locked_job(session, found.job_id)
    contract = _locked(session, contract_id)
    if contract.state != ContractState.REQUESTED:
        raise ConflictError(f"this contract is {contract.state} already: nothing is left to decide")
    if contract.expires_at <= now():
        raise ConflictError("the time to decide this contract is over: the consumer may ask anew")
    state = ContractState.AGREED if agree else ContractState.REFUSED
    enter_contract(session, contract, state, reason or ("" if agree else "the provider said no"))
    conclude(session, job)
    return contract


def expire_due(session: Session) -> int:
    """Ends requests that nobody has decided in time; how many there were."""
    due = select(Contract.id, Contract.job_id).where(
        Contract.state == ContractState.REQUESTED, Contract.expires_at <= now()
    )
    expired = 0
    for contract_id, job_id in session.execute(due.order_by(Contract.job_id, Contract.id)).tuples().all():
        job = locked_job(session, job_id)
        contract = _locked(session, contract_id)
        if contract.state == ContractState.REQUESTED:
            enter_contract(session, contract, ContractState.EXPIRED, "the provider did not decide in time")
            conclude(session, job)
            expired += 1
    return expired


def _locked(session: Session, contract_id: str) -> Contract:
    query = select(Contract).where(Contract.id == contract_id).with_for_update()
    return session.scalars(query.execution_options(populate_existing=True)).one()


def requests(session: Session, caller: Caller, state: str | None = "requested") -> list[ContractView]:
    """What a provider was asked for, the oldest first: what it is to decide, or all where `state` is None."""
    caller.require("read")
    query = _views().where(Contract.provider_id == caller.organisation_id)
    query = query if state is None else query.where(Contract.state == state)
    return [_view(caller, *row) for row in session.execute(query).tuples()]


def own_contracts(session: Session, caller: Caller, job_id: str | None = None) -> list[ContractView]:
    """Those that the caller has made, as a consumer or as a provider, the oldest first."""
    caller.require("read")
    own = caller.organisation_id
    query = _views().where((Contract.provider_id == own) | (Contract.consumer_id == own))
    query = query if job_id is None else query.where(Contract.job_id == job_id)
    return [_view(caller, *row) for row in session.execute(query).tuples()]


def own_contract(session: Session, caller: Caller, contract_id: str) -> ContractView:
    caller.require("read")
    row = session.execute(_views().where(Contract.id == contract_id)).tuples().first()
    if row is None or caller.organisation_id not in (row[0].consumer_id, row[0].provider_id):
        raise MissingError("there is no such contract: look at the list of your contracts")
    return _view(caller, *row)


def earnings(session: Session, caller: Caller) -> list[ContractView]:
    """What a provider's contracts came to, the newest first: accesses, pay and ε of those that have ended."""
    return [view for view in reversed(requests(session, caller, None)) if view.paid is not None]


def _views() -> Select[Contract, Job, Offer, OfferVersion, Organisation, Organisation]:
    consumer, provider = aliased(Organisation), aliased(Organisation)
    return (
        select(Contract, Job, Offer, OfferVersion, consumer, provider)
        .join(Job, Job.id == Contract.job_id)
        .join(Offer, Offer.id == Contract.offer_id)
        .join(OfferVersion, OfferVersion.id == Contract.version_id)
        .join(consumer, consumer.id == Contract.consumer_id)
        .join(provider, provider.id == Contract.provider_id)
        .order_by(Contract.requested_at, Contract.id)
    )


def _view(
    caller: Caller,
    contract: Contract,
    job: Job,
    offer: Offer,
    version: OfferVersion,
    consumer: Organisation,
    provider: Organisation,
) -> ContractView:
    theirs = caller.organisation_id == contract.provider_id
    return ContractView(
        id=contract.id,
        state=contract.state,
        reason=contract.reason,
        job_id=job.id,
        job_name=job.name,
        model=job.spec.get("model", {}).get("kind", "mlp"),
        consumer=consumer.slug,
        consumer_name=consumer.name,
        provider=provider.slug,
        provider_name=provider.name,
        offer_id=offer.id,
        offer=offer.slug,
        offer_name=offer.name,
        version=version.number,
        digest=version.digest if theirs else None,
        price=contract.price,
        terms={name: value for name, value in contract.terms.items() if theirs or name != "consumers"},
        accesses=contract.accesses,
        paid=contract.paid,
        epsilon=contract.epsilon,
        requested_at=contract.requested_at,
        expires_at=contract.expires_at,
        decided_at=contract.decided_at,
        ended_at=contract.ended_at,
    )
