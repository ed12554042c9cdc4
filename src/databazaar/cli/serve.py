"""`bazaar serve`: the hub of a market that organisations operate, and what its operator does at the machine itself."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from databazaar.cli.options import AsJson, example
from databazaar.cli.screen import say
from databazaar.errors import BazaarError

if TYPE_CHECKING:
    from databazaar.service.database.connection import Database
    from databazaar.service.settings import Settings

app = typer.Typer(
    help="A hub: one market with several consumers and shared providers, in the browser and over HTTP. Without a "
    "command it serves.",
    rich_markup_mode=None,
)
HERE = "http://127.0.0.1:8000"
BROKEN = 1
Home = Annotated[Path, typer.Option(help="The hub's folder: uploaded files, jobs, keys; its owner's alone.")]
_DATABASE = "postgresql://USER@HOST/NAME. Default: $BAZAAR_DATABASE, or SQLite in the hub's folder."
Url = Annotated[
    str | None, typer.Option("--database", metavar="URL", envvar="BAZAAR_DATABASE", show_envvar=False, help=_DATABASE)
]
Address = Annotated[str | None, typer.Option(help=f"What people type. Default: {HERE}, with your port.")]


@app.callback(
    invoke_without_command=True,
    epilog=example(
        "bazaar serve --demo",
        "bazaar serve operator ann@example.org --market Harbour --currency EUR",
        "bazaar serve --address https://market.example.org --tls-cert cert.pem --tls-key key.pem --port 443",
        "bazaar serve --database postgresql://hub@db/hub --address https://market.example.org --proxy 10.0.0.2",
    ),
)
def serve(
    context: typer.Context,
    home: Home = Path("hub"),
    database: Url = None,
    host: Annotated[str, typer.Option(help="The address of this machine to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen at.")] = 8000,
    address: Address = None,
    tls_cert: Annotated[Path | None, typer.Option(help="The certificate, for TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key.")] = None,
    proxy: Annotated[str | None, typer.Option(help="A proxy that brings TLS: its address, which is believed.")] = None,
    federation: Annotated[Path | None, typer.Option(help="The operator's folder of a federation, for sites.")] = None,
    runners: Annotated[int | None, typer.Option(help="Jobs at once. Default: one for each core.", min=0)] = None,
    quota: Annotated[float, typer.Option(min=0, help="GiB of files that an organisation may keep.")] = 10.0,
    table_memory: Annotated[
        float, typer.Option(min=0.25, help="GiB that one uploaded table may take while it is read; 3 are at once.")
    ] = 2.0,
    connections: Annotated[int, typer.Option(min=10, help="Connections at once; 200 from one address.")] = 1000,
    keep_days: Annotated[
        int | None,
        typer.Option(help="Days after which the files of a job that is over are deleted. Default: never.", min=0),
    ] = None,
    most_visits: Annotated[
        int, typer.Option(min=32, help="Row visits that a job may ask of one provider in one round.")
    ] = 50_000_000,
    cash: Annotated[str, typer.Option(help="Who confirms deposits and payouts: manual, or test.")] = "manual",
    oidc_issuer: Annotated[str | None, typer.Option(help="An identity provider to sign in at.")] = None,
    oidc_client: Annotated[
        str | None, typer.Option(help="The hub's name there; its secret: $BAZAAR_OIDC_SECRET.")
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="A market with everybody in it, in a new folder.")] = False,
) -> None:
    """Serves the market: pages for people, /v1 for programs, and the jobs themselves. It needs no other server."""
    if context.invoked_subcommand is not None:
        return
    from databazaar.cli import server as serving
    from databazaar.service.settings import Settings

    with ExitStack() as stack:
        listening = stack.enter_context(serving.listener(host, port))
        shown = (address or f"http://127.0.0.1:{listening.getsockname()[1]}").rstrip("/")
        serving.check_tls(tls_cert, tls_key)
        serving.refuse_plain(shown, tls_cert is not None, proxy)
        serving.refuse_unfit(cash, federation, proxy)
        serving.refuse_issuer(oidc_issuer, oidc_client)
        if demo and home == Path("hub"):
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="databazaar-demo-")))
        settings = Settings(
            home=home.absolute(),
            database=database or "",
            address=shown,
            secure=shown.startswith("https://"),
            federation=None if federation is None else federation.absolute(),
            cash=cash,
            quota=int(quota * 2**30),
            table_memory=int(table_memory * 2**30),
            connections=connections,
            keep_days=keep_days,
            most_visits=most_visits,
            oidc_issuer=oidc_issuer or "",
            oidc_client=oidc_client or "",
            oidc_secret=os.environ.get("BAZAAR_OIDC_SECRET", ""),
            runners=max(1, os.cpu_count() or 1) if runners is None else runners,
        )
        opened = stack.enter_context(_opened(settings))
        serving.serve(settings, opened, listening, (tls_cert, tls_key), proxy, demo)


@app.command(epilog=example("bazaar serve upgrade --database postgresql://owner@db/hub"))
def upgrade(home: Home = Path("hub"), database: Url = None) -> None:
    """Makes the hub's tables, or brings those of an older version up to date. Make a copy of the database before."""
    with _opened(_settings(home, database), check=False) as opened:
        from databazaar.service.database import upgrade as upgrading

        say(f"the hub's tables are at version {upgrading.upgrade(opened)}")


@app.command(epilog=example("bazaar serve operator ann@example.org --market 'Harbour market' --currency EUR"))
def operator(
    email: Annotated[str, typer.Argument(help="The e-mail address of its first person.")],
    market: Annotated[str | None, typer.Option(help="The market's name, if there is none yet.")] = None,
    currency: Annotated[str, typer.Option(help="The market's currency, if there is none yet.")] = "EUR",
    decimals: Annotated[int, typer.Option(min=0, max=4, help="Its digits after the decimal point.")] = 2,
    name: Annotated[str, typer.Option(help="The name of the organisation that operates it.")] = "Operator",
    slug: Annotated[str, typer.Option(help="Its name in ids, which never changes.")] = "operator",
    address: Address = None,
    home: Home = Path("hub"),
    database: Url = None,
) -> None:
    """Makes the market, if there is none yet, and somebody who operates it. Prints a link that signs them in, once;
    for somebody who takes part already, and cannot sign in any more, a new one."""
    with _opened(_settings(home, database)) as opened:
        from sqlalchemy import select

        from databazaar.service import members
        from databazaar.service.credentials import link_for
        from databazaar.service.database.tables import Person
        from databazaar.service.errors import ConflictError, MissingError

        with opened.begin() as session:
            person = session.scalar(select(Person).where(Person.email == email.strip().lower()))
            secret = None if person is None else link_for(session, person)
            if secret is None:
                try:
                    members.market(session)
                except MissingError:
                    if market is None:
                        raise BazaarError("there is no market yet: name it with --market") from None
                    members.create_market(session, market, currency, decimals)
                try:
                    secret = members.make_operator(session, name, slug, email).secret
                except ConflictError as taken:
                    raise BazaarError(
                        f"{taken}, with --slug; nobody here has the e-mail address {email}, and colleagues are invited "
                        "under Account"
                    ) from None
    say(f"{email} signs in once, within a week, with {(address or HERE).rstrip('/')}/join#{secret}")


@app.command("rotate-key", epilog=example("bazaar serve rotate-key"))
def rotate_key(home: Home = Path("hub")) -> None:
    """A new key for the hub to sign receipts with. The old one stays published, so that its receipts can be checked."""
    _need_hub(home, None)
    from databazaar.service import receipts

    settings = _settings(home)
    new = receipts.rotate(settings)
    say(f"receipts are signed with {new.public} from now on; keep a copy of {settings.keys}")


@app.command(epilog=example("bazaar serve audit", "bazaar serve audit --database postgresql://reader@db/hub --json"))
def audit(home: Home = Path("hub"), database: Url = None, as_json: AsJson = False) -> None:
    """Replays the journal: its chain, its sums and every balance. Exit code 1 where something is off."""
    _need_hub(home, database)
    with _opened(_settings(home, database)) as opened:
        from databazaar.service import journal

        with opened.read() as session:
            found = journal.audit(session)
    if as_json:
        told = {"ok": found.ok, "entries": found.entries, "head": found.head, "message": found.message}
        typer.echo(json.dumps(told))
    else:
        say(f"{'ok' if found.ok else 'BROKEN'}: {found.message}")
    raise typer.Exit(0 if found.ok else BROKEN)


def _need_hub(home: Path, database: str | None) -> None:
    """One sentence where a hub is looked for and none was made; nothing is made on the way."""
    if not database and not home.is_dir():
        raise BazaarError(f"there is no hub in {home}: give its folder with --home, or its database with --database")


def _settings(home: Path, database: str | None = None) -> Settings:
    from databazaar.service.settings import Settings

    return Settings(home=home.absolute(), database=database or "")


@contextmanager
def _opened(settings: Settings, check: bool = True) -> Iterator[Database]:
    """The database, which fits this version. An empty one in the hub's own folder is set up on the way."""
    from sqlalchemy.exc import OperationalError

    from databazaar.service.database import upgrade as upgrading
    from databazaar.service.database.connection import Database

    try:
        settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as reason:
        raise BazaarError(
            f"{settings.home} cannot be made ({reason.strerror}): give another folder with --home"
        ) from None
    database = Database(settings.database_url)
    try:
        if check:
            if not settings.database and upgrading.current(database) is None:
                upgrading.upgrade(database)
            upgrading.require_current(database)
        yield database
    except OperationalError as reason:
        why = str(reason.orig).strip().splitlines()[0]
        raise BazaarError(f"the database does not answer ({why}): check its address, and that it runs") from None
    finally:
        database.dispose()
