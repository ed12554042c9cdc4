"""`bazaar ledger`: the database that runs are written to, for its owner and its auditors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from databazaar.errors import BazaarError

URL = "postgresql+psycopg://owner@host/markets"
EXAMPLES = (
    f"bazaar ledger {URL} --init",
    "bazaar ledger --roles --writer bazaar_writer --reader bazaar_reader | psql markets",
    f"bazaar ledger {URL} > heads.txt",
    f"bazaar ledger {URL} --heads heads.txt",
)


def ledger(
    url: Annotated[str | None, typer.Argument(help="The database's URL, as in [ledger] of market.toml.")] = None,
    init: Annotated[bool, typer.Option("--init", help="Make the tables. Their owner does this, once.")] = False,
    heads: Annotated[
        Path | None, typer.Option(help="What this command printed before; all of it must still be there.")
    ] = None,
    roles: Annotated[
        bool, typer.Option("--roles", help="Print SQL for two roles of PostgreSQL with the least rights, and no more.")
    ] = False,
    writer: Annotated[str, typer.Option(help="With --roles: the role that plays runs.")] = "bazaar_writer",
    reader: Annotated[str, typer.Option(help="With --roles: the role that audits.")] = "bazaar_reader",
) -> None:
    """Recomputes the chain of every run in a database, and prints each run's id, entries and head.

    Before a backup and after a restore: whatever was there before must be there now. It asks for no run's folder, and
    so replays no rules: `bazaar audit` does.
    """
    if roles:
        from databazaar.ledger.schema import grants

        typer.echo(grants(writer, reader), nl=False)
        return
    if url is None:
        raise BazaarError(f"the database is not named: give its URL, such as {URL}")
    from databazaar.ledger.database import check_runs, parse_heads, prepare_tables

    try:
        before = {} if heads is None else parse_heads(heads.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise BazaarError(f"{heads} cannot be read: give a file that `bazaar ledger URL` printed") from None
    if init:
        typer.echo(f"the ledger's tables are there, of version {prepare_tables(url)}")
        return
    for head in check_runs(url, before):
        typer.echo(head)
