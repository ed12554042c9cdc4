"""What a person reads after a run: figures, the HTML report and the revenue statement."""

from databazaar.reports.figures import FIGURES, draw_all, save_png
from databazaar.reports.run_page import AuditView, render
from databazaar.reports.statement import by_pay, owner_totals, owners_csv, statement_csv, statement_dict

__all__ = [
    "FIGURES",
    "AuditView",
    "by_pay",
    "draw_all",
    "owner_totals",
    "owners_csv",
    "render",
    "save_png",
    "statement_csv",
    "statement_dict",
]
