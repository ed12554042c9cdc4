"""Contracts: for one job, what a provider lets the consumer have, of which version of its data, and at which price."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session, aliased

from databazaar.client import shapes
from databazaar.client.conversion import from_row
from databazaar.client.shapes import Queue
from databazaar.codes import Code
from databazaar.files import read_plain, write_whole
from databazaar.learning.asked_rows import LEAST_ROWS, visited_rows
from databazaar.service import specification
from databazaar.service.caller import Caller
from databazaar.service.database.columns import now
from databazaar.service.database.tables import Contract, Job, Offer, OfferVersion, Organisation
from databazaar.service.errors import ConflictError, MissingError
from databazaar.service.lifecycle import contracts_of, enter, enter_contract, locked_job, tell_parties
from databazaar.service.names import prose
from databazaar.service.offers import current_version
from databazaar.service.policy import Policy
from databazaar.service.settings import Settings
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
    """Takes refused offers out of a locked job's market; agrees or fails the job once all providers have decided."""
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


LONGEST_REASON = 500


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
    for contract_id, job_id in session.execute(due.order_by(Contract.job_id, Contract.id)).all():
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


def requests(session: Session, caller: Caller, state: str | None = "requested") -> list[shapes.Contract]:
    """What a provider was asked for, the oldest first: what it is to decide, or all where `state` is None."""
    caller.require("read")
    query = _views().where(Contract.provider_id == caller.organisation_id)
    query = query if state is None else query.where(Contract.state == state)
    return [_view(caller, *row) for row in session.execute(query)]


def own_contracts(session: Session, caller: Caller, job_id: str | None = None) -> list[shapes.Contract]:
    """Those that the caller has made, as a consumer or as a provider, the oldest first."""
    caller.require("read")
    own = caller.organisation_id
    query = _views().where((Contract.provider_id == own) | (Contract.consumer_id == own))
    query = query if job_id is None else query.where(Contract.job_id == job_id)
    return [_view(caller, *row) for row in session.execute(query)]


def own_contract(session: Session, caller: Caller, contract_id: str) -> shapes.Contract:
    caller.require("read")
    row = session.execute(_views().where(Contract.id == contract_id)).first()
    if row is None or caller.organisation_id not in (row[0].consumer_id, row[0].provider_id):
        raise MissingError("there is no such contract: look at the list of your contracts")
    return _view(caller, *row)


def earnings(session: Session, caller: Caller) -> list[shapes.Contract]:
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
) -> shapes.Contract:
    theirs, needs = caller.organisation_id == contract.provider_id, Needs(**job.needs)
    return from_row(
        shapes.Contract,
        contract,
        job_name=job.name,
        model=needs.model,
        mode=needs.mode,
        target=needs.target,
        task=needs.task,
        columns=needs.columns,
        rows=needs.rows(version.rows),
        defence=needs.defence,
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


def keep_schema(settings: Settings, job_id: str, schema: bytes) -> None:
    """Puts it into the job's folder, as a provider's kit takes it."""
    folder = settings.job_folder(job_id)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(folder / SCHEMA, schema, mode=0o600)


def schema_of(session: Session, caller: Caller, settings: Settings, contract_id: str) -> bytes:
    """The schema.json by which a site will be asked; for its provider and the job's consumer."""
    contract = own_contract(session, caller, contract_id)
    if contract.fingerprint is None:
        raise ConflictError(
            "this contract has no schema to look at: one with a site has, where the hub has the hold-out"
        )
    folder = settings.job_folder(contract.job_id)
    return read_plain(folder / SCHEMA, folder, LARGEST)


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
