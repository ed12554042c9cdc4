"""`bazaar ledger`: for whoever keeps the database that runs are written to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from databazaar.cli.examples import example
from databazaar.errors import BazaarError

app = typer.Typer(
    help="The database that ledgers are kept in, where it is not a file in the run's folder.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

URL = "postgresql+psycopg://owner@host/markets"
Url = Annotated[str, typer.Argument(help="The database's URL, as in [ledger] of market.toml.", show_default=False)]


@app.command(epilog=example(f"bazaar ledger init {URL}"))
def init(url: Url) -> None:
    """Makes the tables. Their owner does this, once."""
    from databazaar.ledger.database import Database

    with Database(url) as database:
        typer.echo(f"the ledger's tables are there, of version {database.prepare()}")


@app.command(epilog=example("bazaar ledger roles --writer bazaar_writer --reader bazaar_reader | psql markets"))
def roles(
    writer: Annotated[str, typer.Option(help="The role that plays runs.")] = "bazaar_writer",
    reader: Annotated[str, typer.Option(help="The role that audits.")] = "bazaar_reader",
) -> None:
    """Prints SQL for two roles of PostgreSQL with the least rights: one plays runs, one audits."""
    from databazaar.ledger.schema import grants

    typer.echo(grants(writer, reader), nl=False)


@app.command(
    epilog=example(
        f"bazaar ledger check {URL} > heads.txt",
        f"bazaar ledger check {URL} --heads heads.txt",
    )
)
def check(
    url: Url,
    heads: Annotated[
        Path | None, typer.Option(help="What this command printed before; all of it must still be there.")
    ] = None,
) -> None:
    """Recomputes the chain of every run in a database, and prints each run's id, entries and head.

    Before a backup and after a restore: whatever was there before must be there now. It asks for no run's folder, and
    so replays no rules: `bazaar audit` does.
    """
    from databazaar.ledger.database import Database, parse_heads

    before = {}
    if heads is not None:
        try:
            before = parse_heads(heads.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise BazaarError(f"{heads} cannot be read: give a file that `bazaar ledger check` printed") from None
    with Database(url) as database:
        for head in database.check(before):
            typer.echo(head)
