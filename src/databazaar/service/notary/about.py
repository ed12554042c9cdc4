"""What the process that answers for one job must know: its market, and where its providers' data are."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from databazaar.service import files
from databazaar.service.database.tables import Job, Organisation
from databazaar.service.jobs import contracts_of, market_of
from databazaar.service.jobs.own_mode import for_own_arbiter
from databazaar.service.settings import Settings


def about_job(session: Session, settings: Settings, job: Job) -> dict[str, Any]:
    """Of every contract, the version of the data that it pins and the bounds that it sets."""
    market = market_of(session, settings, job)
    terms = {contract.offer_id: contract.terms for contract in contracts_of(session, job)}
    answered = {
        seller.offer.slug: {
            "path": str(files.path_of(settings, seller.file)),
            "models": terms[seller.offer.id]["models"],
            "most_rows": terms[seller.offer.id]["most_rows"],
        }
        for seller in market.sellers
        if seller.file is not None
    }
    return {
        "run": job.id,
        "consumer": session.get_one(Organisation, job.organisation_id).slug,
        "market": for_own_arbiter(market.settings),
        "files": answered,
        "folder": str(settings.job_folder(job.id)),
        "federation": str(settings.federation or ""),
    }
