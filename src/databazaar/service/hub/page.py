"""The report of a job, as its consumer may read it: nothing of providers' tables but their names and pay.

A run's folder keeps the profile of all tables, which the ledger names; it would show categories of a table, and which
rows of a hold-out are in it.
"""

from __future__ import annotations

from databazaar.runs.folder import RunFolder


def write_page(run: RunFolder) -> None:
    """Writes the report, the statement and the figures into the run's folder. What the folder has replayed is not
    replayed again."""
    from databazaar.reports.written import write_report

    write_report(run, others_tables=False)
