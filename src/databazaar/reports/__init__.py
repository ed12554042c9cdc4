"""What a person reads after a run: figures, the HTML report and the revenue statement."""

from databazaar.reports.figures import FIGURES, save_png
from databazaar.reports.html import AuditView, render
from databazaar.reports.statement import owner_totals, owners_csv, statement_csv, statement_dict

__all__ = [
    "FIGURES",
    "AuditView",
    "owner_totals",
    "owners_csv",
    "render",
    "save_png",
    "statement_csv",
    "statement_dict",
]
