"""What a person reads after a run: figures, the HTML report and the revenue statement.

Names are imported when they are first used: whoever only makes pages or writes numbers starts without matplotlib.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_MODULES = {
    "FIGURES": "figures",
    "draw_all": "figures",
    "save_png": "figures",
    "AuditView": "run_page",
    "render": "run_page",
    "by_pay": "statement",
    "owner_totals": "statement",
    "owners_csv": "statement",
    "statement_csv": "statement",
    "statement_dict": "statement",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(f"databazaar.reports.{_MODULES[name]}"), name)
    return found
