"""The process that settles one job: an audit takes its time, and the hub has people to serve meanwhile."""

from __future__ import annotations

import os
import sys
import traceback

from databazaar.files import alone
from databazaar.runs.folder import RunFolder
from databazaar.runs.names import PAGE
from databazaar.service.database.connection import Database
from databazaar.service.hub.folders import LOCK
from databazaar.service.hub.page import write_page
from databazaar.service.hub.runner import OUR_FAULT, become_a_child
from databazaar.service.hub.settling import UnsoundError, settle
from databazaar.service.settings import Settings

BEHIND = 5
"""How nice a settler is: rounds that are being played go before."""


def run(settings: Settings, job_id: str) -> None:
    """Ends the process with 0 once the job is settled, and else with what makes the hub try it again."""
    folder = settings.job_folder(job_id)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        become_a_child(folder)
    except OSError:  # what keeps it from its folder keeps it from the ledger, and the job says so
        sys.exit(attempt(settings, job_id))
    os.nice(BEHIND)
    with alone(folder / LOCK):  # a runner may still be dying
        sys.exit(attempt(settings, job_id))


def attempt(settings: Settings, job_id: str) -> int:
    """Settles the job; the exit code."""
    database = Database(settings.database_url, pool=1)
    try:
        settle(database, settings, job_id, _report)
    except UnsoundError as broken:
        print(broken, file=sys.stderr, flush=True)  # noqa: T201
        return broken.exit_code
    except Exception:
        traceback.print_exc()
        return OUR_FAULT
    finally:
        database.dispose()
    return 0


def _report(run: RunFolder) -> None:
    """The page of a run that no runner has finished. Money does not wait for it where it cannot be made."""
    try:
        if not (run.path / PAGE).exists():
            write_page(run)
    except Exception:
        traceback.print_exc()
