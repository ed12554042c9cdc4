"""The names of the hub's own files in a job's folder."""

FAILURE = "failure.txt"
"""Why the last runner failed: one sentence that its consumer may read."""
LOG = "runner.log"
"""What runners have printed, and where they failed: for the operator alone."""
LOCK = "runner.lock"
"""Held by whoever works in the folder: a runner, or who settles the job."""
