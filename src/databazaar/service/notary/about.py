"""What the process that answers for one job must know: its market, and where its providers' data are."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from databazaar.service.database.tables import Contract, Job, Offer, OfferVersion
from databazaar.service.settings import Settings
from databazaar.service.states import ContractState


def about_job(session: Session, settings: Settings, job: Job, consumer: str, market: dict[str, Any]) -> dict[str, Any]:
    """Of every contract in force, the version of the data that it pins and the bounds that it sets."""
    query = (
        select(Contract, Offer, OfferVersion)
        .join(Offer, Offer.id == Contract.offer_id)
        .join(OfferVersion, OfferVersion.id == Contract.version_id)
        .where(Contract.job_id == job.id, Contract.state == ContractState.ACTIVE)
    )
    files = {
        offer.slug: {
            "path": str(settings.file(version.digest)),
            "models": contract.terms["models"],
            "most_rows": contract.terms["most_rows"],
        }
        for contract, offer, version in session.execute(query).tuples()
        if offer.kind == "file" and version.digest is not None
    }
    return {
        "run": job.id,
        "consumer": consumer,
        "market": market,
        "files": files,
        "folder": str(settings.job_folder(job.id)),
        "federation": str(settings.federation or ""),
    }
