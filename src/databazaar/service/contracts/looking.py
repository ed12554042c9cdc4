"""Looking at contracts: each of the two parties at what concerns it."""

from __future__ import annotations

from sqlalchemy import Select, select
from sqlalchemy.orm import Session, aliased

from databazaar.client import shapes
from databazaar.client.conversion import from_row
from databazaar.service.caller import Caller
from databazaar.service.contracts.asking import Needs
from databazaar.service.database.tables import Contract, Job, Offer, OfferVersion, Organisation
from databazaar.service.errors import MissingError


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
