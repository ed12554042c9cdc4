"""What people read of a run, written into its folder: the page, the statement and the figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from databazaar.errors import LedgerError
from databazaar.files import write_whole
from databazaar.ledger import Audit
from databazaar.reports.figures import draw_all, save_png
from databazaar.reports.run_page import AuditView, render
from databazaar.reports.statement import statement_csv, statement_dict
from databazaar.runs.folder import RunFolder
from databazaar.runs.names import CSV, JSON, PAGE
from databazaar.runs.report import Report

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure


def write_report(folder: RunFolder, out: Path | None = None, *, others_tables: bool = True) -> Path:
    """The HTML report, the figures as PNG, and the statement as CSV and JSON; of an unfinished run, so far. With `out`,
    the page alone is written there, and nothing into the run's folder. Without `others_tables` the page says nothing of
    what providers' tables are like: they may not be the reader's to know.

    Where the audit fails the page says so, and the statement that is there is left alone.
    """
    report, found = folder.report_and_audit()
    drawn = draw_all(report)
    page = page_of(folder, report, found, folder.title, drawn, others_tables)
    if out is not None:
        write_whole(out, page.encode())
    else:
        save_png(drawn, folder.path / "figures", within=folder.path)
        for name, text in statements_of(report).items() if found.ok else ():
            write_whole(folder.path / name, text.encode(), within=folder.path)
        write_whole(folder.path / PAGE, page.encode(), within=folder.path)
    written = out or folder.path / PAGE
    if not found.ok:
        raise LedgerError(f"{written} says that the audit fails, and no statement is made: {found.message}")
    return written


def statements_of(report: Report) -> dict[str, str]:
    """The statement by the names of its files."""
    return {CSV: statement_csv(report), JSON: json.dumps(statement_dict(report), indent=2)}


def page_of(
    folder: RunFolder,
    report: Report,
    found: Audit,
    title: str,
    drawn: Mapping[str, Figure] | None = None,
    others_tables: bool = True,
) -> str:
    """The page of a run whose report and audit are these."""
    view, profile = AuditView(found.ok, found.entries, found.message), folder.profile()
    if profile is not None and not others_tables:
        profile = profile.model_copy(update={"providers": ()})
    return render(report, title=title, audit=view, profile=profile, drawn=drawn)
