"""The commands. Each one checks everything first, then acts, then says what came out."""

from __future__ import annotations

import errno
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from databazaar.cli import audit, check, compare, federation, init, jobs, ledger, provider, serve, show
from databazaar.cli import model_use as using
from databazaar.cli.interrupts import INTERRUPTED, InterruptedByUser, interrupt, on_signal
from databazaar.cli.options import AsJson, Database, Device, Engine, Out, Quiet, Run, Seed, changes, example
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


def demo(
    out: Out = None,
    budget: Annotated[
        int | None, typer.Option(min=5, max=10**9, help="Accesses to buy.", show_default="1000; with --federated 400")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of the data and of the market.")] = 0,
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
        from databazaar.cli.federation_demo import play_demo

        play_demo(out, budget or 400, seed, output)
    else:
        play.play(demo_job(budget or 1000, seed), out, "demo", output)


def run(
    market: Annotated[Path, typer.Argument(help="The market.toml to run, or the folder of an unfinished run.")],
    out: Out = None,
    seed: Seed = None,
    engine: Engine = None,
    device: Device = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    ledger: Database = None,
) -> None:
    """Runs a market on your own CSV or Parquet files. An unfinished run is continued, to the same result as if it had
    not been stopped."""
    from databazaar.cli import play
    from databazaar.config.jobs import market_job
    from databazaar.runs.folder import RunFolder

    output = play.Output(quiet, as_json)
    if market.is_dir():
        for option, given in (("out", out), ("seed", seed), ("engine", engine), ("device", device)):
            if given is not None:
                raise BazaarError(f"{market} is a run's folder, and its run is continued as it began: omit --{option}")
        play.resume(RunFolder(market, ledger), output)
    else:
        job = market_job(market, changes(seed, engine, device), profiled=True)
        play.play(job, out, job.title, output, ledger)


def close(folder: Run, quiet: Quiet = False, as_json: AsJson = False, ledger: Database = None) -> None:
    """Ends a run that was stopped: what is settled is paid, the rest goes back, and the model is yours."""
    from databazaar.cli import play
    from databazaar.runs.folder import RunFolder

    play.close(RunFolder(folder, ledger), play.Output(quiet, as_json))


COMMANDS: dict[Callable[..., None], tuple[str, ...]] = {
    demo: (
        "bazaar demo",
        "bazaar demo --budget 3000 --out runs/fraud",
        "bazaar audit runs/fraud",
        "bazaar demo --federated",
    ),
    init.init: init.EXAMPLES,
    check.check: check.CHECK_EXAMPLES,
    check.quote: check.QUOTE_EXAMPLES,
    run: ("bazaar run market.toml", "bazaar run market.toml --out runs/fraud --seed 7 --json", "bazaar run runs/fraud"),
    close: ("bazaar close runs/fraud",),
    show.show: show.EXAMPLES,
    audit.audit: audit.EXAMPLES,
    ledger.ledger: ledger.EXAMPLES,
    using.predict: using.PREDICT_EXAMPLES,
    using.evaluate: using.EVALUATE_EXAMPLES,
    using.export: using.EXPORT_EXAMPLES,
    compare.compare: compare.EXAMPLES,
}
"""The commands in the order of the help, with their examples."""
for command, examples in COMMANDS.items():
    app.command(epilog=example(*examples))(command)
add_commands(app)
for group in (federation, provider, serve, jobs):
    app.add_typer(group.app, name=group.__name__.rpartition(".")[2])


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


_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room, then go on"),
    errno.EFBIG: "make room or raise the limit on the size of files, then go on",
    errno.EIO: "check the disk, then go on",
    errno.EROFS: "choose a place that can be written to",
    **dict.fromkeys((errno.EACCES, errno.EPERM), "ask for the right to, or choose another place"),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "close some programs or raise the limit on open files, then go on"),
    errno.ENOMEM: "close some programs, then go on",
}
"""Errors of the machine and not of the program; a file that is not there, for one, is not among them."""
EXTRAS = {
    **dict.fromkeys(("grpc", "cryptography"), "federated"),
    **dict.fromkeys(("fastapi", "uvicorn", "alembic", "python_multipart", "argon2", "authlib", "httpx"), "service"),
}
"""Which extra brings a package that a command has missed."""


def sentence_for(failure: OSError | ImportError) -> str | None:
    """None where the error is the program's own.

    >>> sentence_for(OSError(errno.ENOSPC, "No space left on device", "run/figures/spend.png"))
    'run/figures/spend.png: No space left on device: make room, then go on'
    >>> sentence_for(FileNotFoundError(errno.ENOENT, "No such file or directory", "x"))
    >>> sentence_for(ModuleNotFoundError(name="argon2.low_level"))
    "argon2 is not installed: pip install 'databazaar[service]'"
    """
    if isinstance(failure, ImportError):
        package = (failure.name or "").partition(".")[0]
        return f"{package} is not installed: pip install 'databazaar[{EXTRAS[package]}]'" if package in EXTRAS else None
    remedy = _REMEDIES.get(failure.errno or 0)
    where = f"{failure.filename}: " if failure.filename is not None else ""
    return None if remedy is None else f"{where}{failure.strerror}: {remedy}"


def main() -> None:
    """Runs the command; what a user can mend is one sentence on standard error, never a traceback."""
    warnings.showwarning = lambda message, *_, **__: say(f"bazaar: note: {message}", err=True)
    with on_screen(), on_signal(signal.SIGINT, interrupt):
        try:
            app()
        except BazaarError as error:
            say(f"bazaar: {error}", err=True)
            sys.exit(error.exit_code)
        except (OSError, ImportError) as failure:
            sentence = sentence_for(failure)
            if sentence is None:
                raise
            say(f"bazaar: {sentence}", err=True)
            sys.exit(BazaarError.exit_code)
        except InterruptedByUser:
            say("bazaar: interrupted", err=True)
            sys.exit(INTERRUPTED)
