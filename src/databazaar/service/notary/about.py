"""What the process that answers for one job must know: its market, and where its providers' data are."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from databazaar.service import files, specification
from databazaar.service.database.tables import Job, Organisation
from databazaar.service.jobs.folder import pinned_files
from databazaar.service.settings import Settings


def about_job(session: Session, settings: Settings, job: Job) -> dict[str, Any]:
    """Of every contract, the version of the data that it pins and the bounds that it sets."""
    answered = {
        offer.slug: {
            "path": str(files.path_of(settings, file)),
            "models": contract.terms["models"],
            "most_rows": contract.terms["most_rows"],
        }
        for contract, offer, file in pinned_files(session, job)
    }
    return {
        "run": job.id,
        "consumer": session.get_one(Organisation, job.organisation_id).slug,
        "market": specification.settings_of(job),
        "files": answered,
        "folder": str(settings.job_folder(job.id)),
        "federation": str(settings.federation or ""),
    }
