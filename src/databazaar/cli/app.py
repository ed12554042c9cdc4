"""The commands. Each one checks everything first, then acts, then says what came out."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from databazaar.cli import audit, check, compare, init, ledger, quote, show
from databazaar.cli import federation as federation_commands
from databazaar.cli import jobs as jobs_commands
from databazaar.cli import model_use as using
from databazaar.cli import provider as provider_commands
from databazaar.cli import serve as serve_commands
from databazaar.cli.bounds import LARGEST_BUDGET, LARGEST_SEED
from databazaar.cli.examples import example
from databazaar.cli.failures import sentence_for
from databazaar.cli.interrupts import INTERRUPTED, InterruptedByUser, catching_interrupts
from databazaar.cli.options import AsJson, Database, Out, Quiet, Run
from databazaar.cli.plugins import add_commands
from databazaar.cli.screen import on_screen, say
from databazaar.errors import BazaarError

app = typer.Typer(
    help="Data markets: a budget goes in; a trained model and a settled revenue statement come out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 fine; 1 the ledger does not hold; 2 bad input; 3 nobody answered, or an audit "
    "cannot check; 130 interrupted.",
)


def _add(command: Callable[..., None], examples: tuple[str, ...]) -> None:
    app.command(epilog=example(*examples))(command)


app.add_typer(federation_commands.app, name="federation")
app.add_typer(provider_commands.app, name="provider")
app.add_typer(serve_commands.app, name="serve")
app.add_typer(jobs_commands.app, name="jobs")


@app.command(
    epilog=example(
        "bazaar demo",
        "bazaar demo --budget 3000 --out runs/fraud",
        "bazaar audit runs/fraud",
        "bazaar demo --federated",
    )
)
def demo(
    out: Out = None,
    budget: Annotated[
        int | None,
        typer.Option(min=5, max=LARGEST_BUDGET, help="Accesses to buy.", show_default="1000; with --federated 400"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of the data and of the market.")] = 0,
    federated: Annotated[
        bool, typer.Option("--federated", help="A server and four banks as processes of their own, with certificates.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """One bank buys a fraud model from nine others: the paper's story, offline, in under a minute."""
    from databazaar.cli import play
    from databazaar.config.jobs import demo_job

    output = play.Output(quiet, as_json)
    if federated:
        federation_commands.need_packages()
        from databazaar.cli.federation_demo import play_demo

        play_demo(out, budget or 400, seed, output)
    else:
        play.play(demo_job(budget or 1000, seed), out, "demo", output)


_add(init.init, init.EXAMPLES)
_add(check.check, check.EXAMPLES)
_add(quote.quote, quote.EXAMPLES)


@app.command(
    epilog=example(
        "bazaar run market.toml", "bazaar run market.toml --out runs/fraud --seed 7 --json", "bazaar run runs/fraud"
    )
)
def run(
    market: Annotated[
        Path, typer.Argument(help="The market.toml to run, or the folder of an unfinished run.", show_default=False)
    ],
    out: Out = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Instead of market.seed.", show_default=False)] = None,
    engine: Annotated[str | None, typer.Option(help="Instead of engine.kind.", show_default=False)] = None,
    device: Annotated[str | None, typer.Option(help="Instead of engine.device.", show_default=False)] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    ledger: Database = None,
) -> None:
    """Runs a market on your own CSV or Parquet files. An unfinished run is continued, to the same result as if it had
    not been stopped."""
    from databazaar.cli import play

    output = play.Output(quiet, as_json)
    changes: dict[str, dict[str, Any]] = {"market": {"seed": seed}, "engine": {"kind": engine, "device": device}}
    if market.is_dir():
        for option, given in (("out", out), ("seed", seed), ("engine", engine), ("device", device)):
            if given is not None:
                raise BazaarError(f"{market} is a run's folder, and its run is continued as it began: omit --{option}")
        play.resume(market, ledger, output)
        return
    from databazaar.config.jobs import market_job

    job = market_job(market, changes, profiled=True)
    play.play(job, out, job.title, output, ledger)


@app.command(epilog=example("bazaar close runs/fraud"))
def close(folder: Run, quiet: Quiet = False, as_json: AsJson = False, ledger: Database = None) -> None:
    """Ends a run that was stopped: what is settled is paid, the rest goes back, and the model is yours."""
    from databazaar.cli import play
    from databazaar.runs.folder import RunFolder

    run_folder = RunFolder(folder, ledger)
    run_folder.need_rules()
    play.close(run_folder, play.Output(quiet, as_json))


_add(show.show, show.EXAMPLES)
_add(audit.audit, audit.EXAMPLES)
_add(ledger.ledger, ledger.EXAMPLES)
_add(using.predict, using.PREDICT_EXAMPLES)
_add(using.evaluate, using.EVALUATE_EXAMPLES)
_add(using.export, using.EXPORT_EXAMPLES)
_add(compare.compare, compare.EXAMPLES)
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
