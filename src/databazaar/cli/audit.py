"""`bazaar audit`: a run's ledger replayed, or the receipts that a hub has signed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from databazaar.cli.options import AsJson, Database
from databazaar.cli.screen import say
from databazaar.codes import counted
from databazaar.errors import BazaarError, LedgerError, UncheckableError
from databazaar.files import read_plain
from databazaar.money import Currency

if TYPE_CHECKING:
    from databazaar.ledger import Audit
    from databazaar.runs.folder import RunFolder

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
    run: Annotated[list[Path], typer.Argument(help="The run's folder; with --key, receipts of a hub instead.")],
    head: Annotated[str | None, typer.Option(help="A ledger head that you noted down.")] = None,
    receipts: Annotated[
        list[Path] | None,
        typer.Option(help="A provider's kit, or its receipts.jsonl: was the ledger so? Again for more."),
    ] = None,
    authority: Annotated[
        Path | None, typer.Option(help="The market's ca.pem, if the run names none, or kits another.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(help="A hub's public key, as you have kept it from /v1/key: checks receipts.")
    ] = None,
    journal: Annotated[
        Path | None, typer.Option(help="The hub's journal, exported now: was it rewritten? With --key.")
    ] = None,
    as_json: AsJson = False,
    ledger: Database = None,
) -> None:
    """Replays every draw, distribution and payment from the ledger alone, and compares what people read with it: model,
    summary, statement, page. It writes nothing and asks no network but the database that you name. Exit code 1 where
    something is off, 3 where it cannot be checked here."""
    if key is not None:
        if head or receipts or authority or ledger or as_json:
            raise BazaarError("--key checks receipts of a hub, and takes --journal alone beside it: omit the others")
        _check_receipts(run, key, journal)
        return
    if journal is not None:
        raise BazaarError("--journal belongs to receipts of a hub: give the hub's public key with --key as well")
    if len(run) > 1:
        raise BazaarError("one run is audited at a time: give one folder; receipts of a hub are checked with --key")
    from databazaar.cli import pages
    from databazaar.runs.folder import RunFolder

    folder = RunFolder(run[0], ledger)
    try:
        found, compared, remarks = examine(folder, pages.audit(folder, head), receipts or [], authority)
        found = pages.compared(folder, found)
    except UncheckableError as reason:
        if as_json:
            typer.echo(json.dumps({"ok": None, "message": str(reason)}))
        else:
            say(f"bazaar: {reason}", err=True)
        raise typer.Exit(CANNOT_CHECK) from None
    agrees = found.ok and compared > 0
    message = found.message + (f"; {counted(compared, 'receipt')} of the market agree with it" if agrees else "")
    remarks = [*remarks, *pages.not_compared(folder)]
    if as_json:
        counts = {"ok": found.ok, "entries": found.entries, "rounds": found.rounds, "closed": found.closed}
        environment = {} if found.terms is None else found.terms.environment
        told = {**counts, "ledger_head": found.head, "message": message, "environment": environment}
        typer.echo(json.dumps({**told, "receipts": compared, "remarks": remarks}))
    else:
        say(f"{'ok' if found.ok else 'BROKEN'}: {message}")
        for remark in remarks:
            say(f"  {remark}")
    raise typer.Exit(0 if found.ok else 1)


def examine(
    run: RunFolder, found: Audit, kits: Sequence[Path], authority: Path | None
) -> tuple[Audit, int, Sequence[str]]:
    """Verifies the signed replies that the ledger names, and holds it against receipts. Gives the audit with what they
    add to it, how many receipts were compared, and remarks. What cannot be verified here is an UncheckableError; a
    ledger that is broken already is not looked at."""
    if not found.ok or not (found.replies or kits):
        return found, 0, ()
    try:
        from databazaar.federation import disputes
    except ImportError:
        raise UncheckableError(
            "signatures cannot be verified here, because cryptography is missing: pip install 'databazaar[federated]'"
        ) from None
    evidence = run.evidence
    trusted = disputes.authority_for(authority, evidence.authority(), kits)
    helds = [disputes.read_held(kit, run.id, trusted) for kit in kits]
    receipts = sum(len(held.receipts) for held in helds)
    compared = disputes.compare(run.entries(), helds)
    replies = evidence.replies(len(compared.named))
    broken = compared.broken + disputes.check_replies(compared.named, replies, evidence.certificates(), trusted)
    if broken:
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        return replace(found, first_broken=broken[0] + more), receipts, [*broken[1:], *compared.remarks]
    if kits and not receipts:
        why = "; ".join(compared.remarks) or f"none of its receipts is of the run {run.id}"
        raise UncheckableError(f"there is nothing to hold the ledger against: {why}")
    return found, receipts, compared.remarks


def _check_receipts(files: Sequence[Path], key: Path, journal: Path | None) -> None:
    """Whether the hub has signed these receipts, and with a journal whether it has rewritten the books since."""
    from databazaar.client.journal import read_journal
    from databazaar.client.receipts import keys_of, rewritten, verify

    public = keys_of(_read_json(key))
    kept = []
    for path in files:
        receipt = _read_json(path)
        try:
            body = verify(receipt, public)
        except LedgerError as fault:
            raise LedgerError(f"{path}: {fault}") from None
        paid = Currency(str(body["currency"]), body["decimals"]).format(body["paid"])
        say(
            f"{path}: signed {body['at'][:19]}: {body['provider']} was paid {paid} for "
            f"{body['accesses']} accesses to {body['offer']} in job {body['job']}"
        )
        kept.append(receipt)
    if journal is None:
        say(f"ok: {len(kept)} signed by this hub; with --journal it is checked that no books were rewritten since")
        return
    if found := rewritten(kept, read_journal(journal)):
        raise LedgerError("; ".join(found))
    say(f"ok: {len(kept)} signed by this hub, and {journal} is the journal that they were signed for")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_plain(path))
    except (OSError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UncheckableError(f"{path} cannot be read as JSON: give the file as the hub has sent it")
    return found
