"""`bazaar audit`: a run's ledger replayed, or the receipts that a hub has signed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from databazaar.cli.options import AsJson, Database
from databazaar.cli.screen import say
from databazaar.errors import BazaarError, UncheckableError

EXAMPLES = (
    "bazaar audit runs/fraud",
    "bazaar audit runs/fraud --head 3f0c… --json",
    "bazaar audit runs/fraud --receipts kit",
    "bazaar audit runs/fraud --receipts a/receipts.jsonl --receipts b/receipts.jsonl --authority ca.pem",
    "bazaar audit receipt-*.json --key hub-key.json --journal journal.jsonl",
)
CANNOT_CHECK = 3
"""The exit code of an audit that says nothing about the run: its database is away, say, or a rule's package missing."""


def audit(
    run: Annotated[
        list[Path], typer.Argument(help="The run's folder; with --key, receipts of a hub instead.", show_default=False)
    ],
    head: Annotated[str | None, typer.Option(help="A ledger head that you noted down.", show_default=False)] = None,
    receipts: Annotated[
        list[Path] | None,
        typer.Option(
            help="A provider's kit, or its receipts.jsonl: was the ledger so? Again for more.", show_default=False
        ),
    ] = None,
    authority: Annotated[
        Path | None,
        typer.Option(help="The market's ca.pem, if the run names none, or kits another.", show_default=False),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(help="A hub's public key, as you have kept it from /v1/key: checks receipts.", show_default=False),
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(help="The hub's journal, exported now: was it rewritten? With --key.", show_default=False),
    ] = None,
    as_json: AsJson = False,
    ledger: Database = None,
) -> None:
    """Replays every draw, distribution and payment from the ledger alone, and compares what people read with it: model,
    summary, statement, page. It writes nothing and asks no network but the database that you name. Exit code 1 where
    something is off, 3 where it cannot be checked here."""
    if key is not None:
        from databazaar.cli.receipts import check

        if head or receipts or authority or ledger or as_json:
            raise BazaarError("--key checks receipts of a hub, and takes --journal alone beside it: omit the others")
        check(run, key, journal)
        return
    if journal is not None:
        raise BazaarError("--journal belongs to receipts of a hub: give the hub's public key with --key as well")
    if len(run) > 1:
        raise BazaarError("one run is audited at a time: give one folder; receipts of a hub are checked with --key")
    _audit_run(run[0], head, receipts or [], authority, as_json, ledger)


def _audit_run(
    folder: Path, head: str | None, receipts: list[Path], authority: Path | None, as_json: bool, ledger: str | None
) -> None:
    from databazaar.cli import pages
    from databazaar.cli.evidence import examine
    from databazaar.runs.folder import RunFolder

    run = RunFolder(folder, ledger)
    try:
        examined = examine(run, pages.audit(run, head), receipts, authority)
        examined = replace(examined, audit=pages.compared(run, examined.audit))
    except UncheckableError as reason:
        if as_json:
            typer.echo(json.dumps({"ok": None, "message": str(reason)}))
        else:
            say(f"bazaar: {reason}", err=True)
        raise typer.Exit(CANNOT_CHECK) from None
    found, remarks = examined.audit, [*examined.remarks, *pages.not_compared(run)]
    if as_json:
        counts = {"ok": found.ok, "entries": found.entries, "rounds": found.rounds, "closed": found.closed}
        environment = {} if found.terms is None else found.terms.environment
        told = {**counts, "ledger_head": found.head, "message": examined.message, "environment": environment}
        typer.echo(json.dumps({**told, "receipts": examined.receipts, "remarks": remarks}))
    else:
        say(f"{'ok' if found.ok else 'BROKEN'}: {examined.message}")
        for remark in remarks:
            say(f"  {remark}")
    raise typer.Exit(0 if found.ok else 1)
