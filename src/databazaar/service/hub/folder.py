"""The folder of a job: the names of its files, its market.toml, and whether its run has begun."""

from __future__ import annotations

import os
from pathlib import Path

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from databazaar.errors import BazaarError, LedgerError
from databazaar.files import write_whole
from databazaar.runs.folder import RunFolder
from databazaar.runs.notes import LEDGER
from databazaar.service import specification
from databazaar.service.database.tables import Contract, File, Job, JobEvent, Offer, OfferVersion
from databazaar.service.home import require_home
from databazaar.service.hub import progress
from databazaar.service.lifecycle import ContractState, JobState
from databazaar.service.settings import Settings
from databazaar.service.specification import consumer_files, name_of

FAILURE = "failure.json"
"""Why the last runner failed: a code, whose sentence its consumer may read."""
LOG = "runner.log"
"""What runners have printed, and where they failed: for the operator alone."""
LOCK = "runner.lock"
"""Held by the process that works in the folder: a runner or the settlement."""


def without_places(settings: Settings, job_id: str, reason: object) -> str:
    """A reason as a consumer may read it: where the hub has its files is nobody's business."""
    said = str(reason)
    for place in (settings.job_folder(job_id), settings.home):
        said = said.replace(f"{place}{os.sep}", "")
    return said.replace(str(settings.home), "the hub's folder")


MARKET = "market.toml"


def write_market(session: Session, settings: Settings, job: Job) -> Path:
    """Writes a job's market.toml as it was kept, and links its files under names that hold no path of this machine."""
    text, folder = specification.text_of(job), settings.job_folder(job.id)
    for made in (folder.parent, folder, folder / "data"):
        made.mkdir(mode=0o700, parents=True, exist_ok=True)
    named = [
        *consumer_files(session, job).items(),
        *((offer.slug, file) for _, offer, file in pinned_files(session, job)),
    ]
    for name, file in named:
        _link(settings.file(file.digest, file.suffix), folder / name_of(name, file))
    path = folder / MARKET
    write_whole(path, text.encode(), mode=0o600)
    return path


def pinned_files(session: Session, job: Job) -> list[tuple[Contract, Offer, File]]:
    """Each agreed contract of the job with its offer and the file that it pins; sites have no file."""
    agreed = (ContractState.AGREED, ContractState.ACTIVE, ContractState.ENDED)
    found = (
        select(Contract, Offer, File)
        .join(Offer, Offer.id == Contract.offer_id)
        .join(OfferVersion, OfferVersion.id == Contract.version_id)
        .join(File, File.id == OfferVersion.file_id)
        .where(Contract.job_id == job.id, Contract.state.in_(agreed))
    )
    return [(contract, offer, file) for contract, offer, file in session.execute(found)]


def _link(kept: Path, name: Path) -> None:
    """A second name for a kept file, in place of whatever else has that name."""
    if os.path.lexists(name):
        if os.path.samestat(name.lstat(), kept.stat()):
            return
        name.unlink()
    os.link(kept, name)


HELD = "job-held"
"""How the reason of such a job begins."""


def has_begun(session: Session, settings: Settings, job: Job) -> bool:
    """Whether there is a run to continue or to settle. A run that should be there (the database says it ran, and the
    folder does not show that no runner came as far) but is missing, unreadable or another job's is an error, so that
    nothing is begun anew or refunded."""
    require_home(session, settings)
    run, folder = settings.run_folder(job.id), settings.job_folder(job.id)
    try:
        if _is_there(run):
            if RunFolder(run).id != job.id:
                raise LedgerError(f"{run} is not the run of this job but another's: put its own back")
            if not _is_there(run / LEDGER):
                raise LedgerError(f"{run / LEDGER} is missing: put it back")
            return True
        was_running = select(exists().where(JobEvent.job_id == job.id, JobEvent.state == JobState.RUNNING))
        if not session.scalar(was_running) or (_is_there(folder / MARKET) and not _is_there(folder / progress.FILE)):
            return False
    except OSError as reason:
        raise BazaarError(f"{run} cannot be read ({reason.strerror}): make it readable to the hub") from None
    raise LedgerError(f"{run} is missing, though the job was running: put it back, with its ledger")


def _is_there(path: Path) -> bool:
    """Unlike `Path.exists`, which says no where nobody knows, this raises an OSError then."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    return True


def write_page(run: RunFolder) -> None:
    """Writes the report, the statement and the figures into the run's folder."""
    from databazaar.reports.run_page import write_report

    write_report(run, others_tables=False)


def write_page_in(path: Path) -> None:
    """The same for the run in this folder; for a process of its own, because figures take memory."""
    write_page(RunFolder(path))
