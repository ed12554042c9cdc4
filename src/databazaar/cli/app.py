"""The commands. Each one checks everything first, then acts, then says what came out."""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from databazaar.cli import federation as federation_commands
from databazaar.cli import jobs as jobs_commands
from databazaar.cli import ledger as ledger_commands
from databazaar.cli import provider as provider_commands
from databazaar.cli import receipts as receipts_commands
from databazaar.cli import serve as serve_commands
from databazaar.cli import using
from databazaar.cli.attack import EXAMPLES as ATTACK_EXAMPLES
from databazaar.cli.attack import attack
from databazaar.cli.bounds import LARGEST_BUDGET, LARGEST_SEED
from databazaar.cli.check import EXAMPLES as CHECK_EXAMPLES
from databazaar.cli.check import check
from databazaar.cli.compare import EXAMPLES, compare
from databazaar.cli.examples import example
from databazaar.cli.failures import sentence_for
from databazaar.cli.init import EXAMPLES as INIT_EXAMPLES
from databazaar.cli.init import init
from databazaar.cli.interrupts import INTERRUPTED, InterruptedByUser, catching_interrupts
from databazaar.cli.plugins import add_commands
from databazaar.cli.quote import EXAMPLES as QUOTE_EXAMPLES
from databazaar.cli.quote import quote
from databazaar.cli.screen import on_screen, say
from databazaar.errors import BazaarError, LedgerError, UncheckableError

app = typer.Typer(
    help="Data markets: a budget goes in; a trained model and a settled revenue statement come out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 fine; 1 the ledger does not hold; 2 bad input; 3 nobody answered, or an audit "
    "cannot check; 130 interrupted.",
)

Out = Annotated[Path | None, typer.Option("--out", help="Folder for the run. Default: a new one under runs/.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, and only the last line.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the outcome as JSON, and nothing else.")]
Run = Annotated[Path, typer.Argument(help="The run's folder.", show_default=False)]
Database = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="URL",
        help="The database that the ledger is in, if it is in one. Default: $DATABAZAAR_LEDGER_URL.",
        show_default=False,
    ),
]
CANNOT_CHECK = 3
"""The exit code of an audit that says nothing about the run: its database is away, say, or a rule's package missing."""


app.add_typer(federation_commands.app, name="federation")
app.add_typer(provider_commands.app, name="provider")
app.add_typer(ledger_commands.app, name="ledger")
app.add_typer(serve_commands.app, name="serve")
app.add_typer(jobs_commands.app, name="jobs")
app.add_typer(receipts_commands.app, name="receipts")


@app.command(epilog=example("bazaar demo", "bazaar demo --budget 3000 --out runs/fraud", "bazaar audit runs/fraud"))
def demo(
    out: Out = None,
    budget: Annotated[int, typer.Option(min=5, max=LARGEST_BUDGET, help="Accesses to buy.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of the data and of the market.")] = 0,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """One bank buys a fraud model from nine others: the paper's story, offline, in under a minute."""
    from databazaar.cli import play
    from databazaar.config.jobs import demo_job

    play.play(demo_job(budget, seed), out, "demo", play.Output(quiet, as_json))


app.command(epilog=example(*INIT_EXAMPLES))(init)
app.command(epilog=example(*CHECK_EXAMPLES))(check)
app.command(epilog=example(*QUOTE_EXAMPLES))(quote)


@app.command(epilog=example("bazaar run market.toml", "bazaar run market.toml --out runs/fraud --seed 7 --json"))
def run(
    market: Annotated[Path, typer.Argument(help="The market.toml to run.", show_default=False)],
    out: Out = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Instead of market.seed.", show_default=False)] = None,
    engine: Annotated[str | None, typer.Option(help="Instead of engine.kind.", show_default=False)] = None,
    device: Annotated[str | None, typer.Option(help="Instead of engine.device.", show_default=False)] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Runs a market on your own CSV or Parquet files."""
    from databazaar.cli import play
    from databazaar.config.jobs import market_job

    changes: dict[str, dict[str, Any]] = {"market": {"seed": seed}, "engine": {"kind": engine, "device": device}}
    job = market_job(market, changes, profiled=True)
    play.play(job, out, job.title, play.Output(quiet, as_json))


@app.command(epilog=example("bazaar resume runs/fraud"))
def resume(folder: Run, quiet: Quiet = False, as_json: AsJson = False, ledger: Database = None) -> None:
    """Goes on with a run that was stopped, to the same result as if it had not been."""
    from databazaar.cli import play
    from databazaar.config.jobs import from_recipe
    from databazaar.runs.folder import RunFolder

    run_folder = RunFolder(folder, ledger)
    terms = run_folder.need_rules()
    begun_in = {} if terms is None else terms.environment
    play.resume(from_recipe(run_folder.recipe), run_folder, play.Output(quiet, as_json), begun_in)


@app.command(epilog=example("bazaar close runs/fraud"))
def close(folder: Run, quiet: Quiet = False, as_json: AsJson = False, ledger: Database = None) -> None:
    """Ends a run that was stopped: what is settled is paid, the rest goes back, and the model is yours."""
    from databazaar.cli import play
    from databazaar.runs.folder import RunFolder

    run_folder = RunFolder(folder, ledger)
    run_folder.need_rules()
    play.close(run_folder, play.Output(quiet, as_json))


@app.command(epilog=example("bazaar report runs/fraud", "bazaar report runs/fraud --out fraud.html"))
def report(
    folder: Run,
    out: Annotated[
        Path | None, typer.Option("--out", help="The HTML file, and nothing else. Default: in the run's folder.")
    ] = None,
    ledger: Database = None,
) -> None:
    """Writes the report again: one HTML file that opens offline, and the same figures as PNG."""
    from databazaar.reports.written import write_report
    from databazaar.runs.folder import RunFolder

    say(write_report(RunFolder(folder, ledger), out))


@app.command(
    epilog=example(
        "bazaar statement runs/fraud",
        "bazaar statement runs/fraud --csv > payouts.csv",
        "bazaar statement runs/million --csv --all > everybody.csv",
        "bazaar statement runs/fraud --provider harbour-bank --json",
        "bazaar statement runs/fraud --out statements",
    )
)
def statement(
    folder: Run,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="As CSV.")] = False,
    provider: Annotated[str | None, typer.Option(help="Only this one, access by access.", show_default=False)] = None,
    out: Annotated[Path | None, typer.Option(help="Write every provider's CSV and JSON to this folder.")] = None,
    everybody: Annotated[
        bool, typer.Option("--all", help="A line for everybody, also in a large market; else some are in groups.")
    ] = False,
    ledger: Database = None,
) -> None:
    """Who was paid what: the settled revenue statement, or that of an unfinished run so far."""
    from databazaar.cli import statements
    from databazaar.runs.folder import RunFolder

    if as_json and as_csv:
        raise BazaarError("--json and --csv exclude each other: give one of them")
    settled, found = RunFolder(folder, ledger).report_and_audit()
    if not found.ok:
        raise LedgerError(f"no statement can be made, because the audit fails: {found.message}")
    if not settled.closed and (as_csv or out is not None):
        typer.echo(f"bazaar: note: {statements.UNFINISHED}", err=True)  # a CSV has no place for it
    if out is not None:
        say(statements.write_all(settled, out, everybody))
    elif provider is not None:
        typer.echo(statements.one(settled, provider, as_csv), nl=False)
    else:
        typer.echo(statements.everyone(settled, as_json, as_csv, everybody), nl=False)


@app.command(
    epilog=example(
        "bazaar audit runs/fraud",
        "bazaar audit runs/fraud --head 3f0c… --json",
        "bazaar audit runs/fraud --receipts kit",
        "bazaar audit runs/fraud --receipts a/receipts.jsonl --receipts b/receipts.jsonl --authority ca.pem",
    )
)
def audit(
    folder: Run,
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
    as_json: AsJson = False,
    ledger: Database = None,
) -> None:
    """Replays every draw, distribution and payment from the ledger alone, and compares what people read with it: model,
    summary, statement, page. It writes nothing and asks no network but the database that you name. Exit code 1 where
    something is off, 3 where it cannot be checked here."""
    from databazaar.cli import pages
    from databazaar.cli.evidence import examine
    from databazaar.runs.folder import RunFolder

    run = RunFolder(folder, ledger)
    try:
        examined = examine(run, pages.audit(run, head), receipts or [], authority)
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


app.command(epilog=example(*using.PREDICT_EXAMPLES))(using.predict)
app.command(epilog=example(*using.EVALUATE_EXAMPLES))(using.evaluate)
app.command(epilog=example(*using.EXPORT_EXAMPLES))(using.export)
app.command(epilog=example(*EXAMPLES))(compare)
app.command(epilog=example(*ATTACK_EXAMPLES))(attack)
add_commands(app)


def _version(asked: bool) -> None:
    if asked:
        from databazaar import __version__

        typer.echo(f"databazaar {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="The version.")] = False,
) -> None:
    pass


def main() -> None:
    """Runs the command; what a user can mend is one sentence on standard error, never a traceback."""
    warnings.showwarning = lambda message, *_, **__: say(f"bazaar: note: {message}", err=True)
    with on_screen(), catching_interrupts():
        try:
            app()
        except BazaarError as error:
            say(f"bazaar: {error}", err=True)
            sys.exit(error.exit_code)
        except OSError as failure:
            sentence = sentence_for(failure)
            if sentence is None:
                raise
            say(f"bazaar: {sentence}", err=True)
            sys.exit(BazaarError.exit_code)
        except InterruptedByUser:
            say("bazaar: interrupted", err=True)
            sys.exit(INTERRUPTED)
