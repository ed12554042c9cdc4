"""The names of the hub's own files in a job's folder."""

from __future__ import annotations

import os

from databazaar.service.settings import Settings

FAILURE = "failure.txt"
"""Why the last runner failed: one sentence that its consumer may read."""
LOG = "runner.log"
"""What runners have printed, and where they failed: for the operator alone."""
LOCK = "runner.lock"
"""Held by whoever works in the folder: a runner, or who settles the job."""


def without_places(settings: Settings, job_id: str, reason: object) -> str:
    """A reason as a consumer may read it: where the hub has its files is nobody's business."""
    said = str(reason)
    for place in (settings.job_folder(job_id), settings.home):
        said = said.replace(f"{place}{os.sep}", "")
    return said.replace(str(settings.home), "the hub's folder")
