"""`bazaar show`: the views of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from databazaar.cli.options import AsJson, Database, Run
from databazaar.cli.screen import say
from databazaar.errors import BazaarError, LedgerError

if TYPE_CHECKING:
    from databazaar.runs.folder import RunFolder

EXAMPLES = (
    "bazaar show runs/fraud",
    "bazaar show runs/fraud report --out fraud.html",
    "bazaar show runs/fraud statement",
    "bazaar show runs/fraud statement --csv > everybody.csv",
    "bazaar show runs/fraud statement --provider harbour-bank --json",
    "bazaar show runs/fraud statement --provider harbour-bank --rows > rows.csv",
    "bazaar show runs/fraud statement --out statements",
)


View = Literal["outcome", "report", "statement"]
OPTIONS: dict[View, tuple[str, ...]] = {"outcome": ("--json",), "report": ("--out",)}
"""What is allowed of the options below; a statement has all of them."""


def show(
    folder: Run,
    view: Annotated[View, typer.Argument(help="What to show.")] = "outcome",
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="A statement as CSV.")] = False,
    provider: Annotated[str | None, typer.Option(help="A statement of this provider alone, access by access.")] = None,
    rows: Annotated[
        bool, typer.Option("--rows", help="What each of that provider's rows has brought, as CSV, or as JSON.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The report's HTML file, and nothing else (default: in the run's folder); or a folder for the CSV and "
            "JSON of every provider's statement."
        ),
    ] = None,
    ledger: Database = None,
) -> None:
    """Shows a run: its outcome, its report (one HTML file that opens offline, and the same figures as PNG), or the
    settled revenue statement, which of an unfinished run is that so far."""
    given = {"--json": as_json, "--csv": as_csv, "--provider": provider, "--rows": rows, "--out": out}
    for option, value in given.items():
        if value and option not in OPTIONS.get(view, given):
            raise BazaarError(f"the {view} has no {option}: omit it, or give another view, such as `statement`")
    from databazaar.runs.folder import RunFolder

    run = RunFolder(folder, ledger)
    if view == "report":
        from databazaar.reports.run_page import write_report

        say(write_report(run, out))
    elif view == "outcome":
        from databazaar.cli import play

        run.need_rules()
        play.show(run, play.Output(False, as_json))
    else:
        _statement(run, as_json, as_csv, provider, rows, out)


def _statement(run: RunFolder, as_json: bool, as_csv: bool, provider: str | None, rows: bool, out: Path | None) -> None:
    from databazaar.cli import statements

    if as_json and as_csv:
        raise BazaarError("--json and --csv exclude each other: give one of them")
    if rows and (provider is None or out is not None):
        raise BazaarError("--rows are told to their provider alone: give --provider, and no --out")
    settled, found = run.report_and_audit()
    if not found.ok:
        raise LedgerError(f"no statement can be made, because the audit fails: {found.message}")
    if not settled.closed and (as_csv or out is not None):
        typer.echo(f"bazaar: note: {statements.UNFINISHED}", err=True)  # a CSV has no place for it
    if out is not None:
        say(statements.write_all(settled, out))
    elif provider is not None and rows:
        typer.echo(statements.of_rows(settled, run.row_sums(), provider, as_json), nl=False)
    elif provider is not None:
        typer.echo(statements.one(settled, provider, as_csv), nl=False)
    else:
        typer.echo(statements.everyone(settled, as_json, as_csv), nl=False)
