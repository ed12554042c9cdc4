"""The report of a job, as its consumer may read it: nothing of providers' tables but their names and pay.

A run's folder keeps the profile of all tables, which the ledger names; it would show categories of a table, and which
rows of a hold-out are in it.
"""

from __future__ import annotations

import sys
from pathlib import Path


def write_page(run_folder: Path) -> None:
    """Writes the report, the statement and the figures into the run's folder."""
    from databazaar.reports.written import write_report
    from databazaar.runs.folder import RunFolder

    write_report(RunFolder(run_folder), others_tables=False)


if __name__ == "__main__":
    write_page(Path(sys.argv[1]))
