"""Whether a job's run has begun. What cannot be read is not taken for a run that never was."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from databazaar.errors import BazaarError, LedgerError
from databazaar.runs.folder import RunFolder
from databazaar.runs.names import LEDGER
from databazaar.service.database.tables import Job, JobEvent
from databazaar.service.home import require_home
from databazaar.service.hub import progress
from databazaar.service.jobs.folder import MARKET
from databazaar.service.settings import Settings
from databazaar.service.states import JobState

HELD = "job-held"
"""How the reason of such a job begins."""


def has_begun(session: Session, settings: Settings, job: Job) -> bool:
    """Whether there is a run to go on with, or to settle. A BazaarError where there should be one that cannot be read,
    or where another job's lies in its place: then nothing is begun anew, and nothing is refunded.

    There should be one where the database says that the job was running, unless the job's folder shows that its
    runners have not come as far: it holds the market, and no progress.
    """
    require_home(session, settings)
    run, folder = settings.run_folder(job.id), settings.job_folder(job.id)
    try:
        if _is_there(run):
            _refuse_unfit(run, job)
            return True
        was_running = select(exists().where(JobEvent.job_id == job.id, JobEvent.state == JobState.RUNNING))
        if not session.scalar(was_running) or (_is_there(folder / MARKET) and not _is_there(folder / progress.FILE)):
            return False
    except OSError as reason:
        raise BazaarError(f"{run} cannot be read ({reason.strerror}): make it readable to the hub") from None
    raise LedgerError(f"{run} is missing, though the job was running: put it back, with its ledger")


def _refuse_unfit(run: Path, job: Job) -> None:
    if RunFolder(run).id != job.id:
        raise LedgerError(f"{run} is not the run of this job but another's: put its own back")
    if not _is_there(run / LEDGER):
        raise LedgerError(f"{run / LEDGER} is missing: put it back")


def _is_there(path: Path) -> bool:
    """Unlike `Path.exists`, which says no where nobody knows, this raises an OSError then."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    return True
