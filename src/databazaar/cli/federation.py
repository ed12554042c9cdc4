"""`bazaar federation`: the operator's side. Certificates, the server, and who is let in."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from databazaar.cli.options import AsJson, example
from databazaar.cli.screen import say
from databazaar.errors import BazaarError

app = typer.Typer(
    help="The operator's side of a federated market: providers stay on their own machines.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

FOLDER = Path("federation")
Folder = Annotated[Path, typer.Option("--folder", help="The federation's folder on the operator's machine.")]
Name = Annotated[str, typer.Argument(help="The provider's name.")]
Ca = Annotated[
    Path | None, typer.Option("--ca", help="Where the authority's key is, if not in the federation's folder.")
]


def passphrase(new: bool = False) -> str:
    """That of the authority's key, from the environment or a terminal; an argument would be seen by others."""
    from databazaar.federation.pki import PASSPHRASE, from_environment

    if not os.environ.get(PASSPHRASE) and sys.stdin.isatty():
        asked = "passphrase of the authority's key"
        return str(typer.prompt(asked, hide_input=True, confirmation_prompt=new, err=True))
    return from_environment()


def warn(folder: Path) -> None:
    """What the operator should see to soon, on the error stream."""
    from databazaar.federation import renewal

    for text in renewal.warnings(folder):
        typer.echo(f"warning: {text}", err=True)


@app.command(
    epilog=example(
        "bazaar federation init --name fraud --host market.example.org",
        "bazaar federation init try --name try --host localhost --port 8102",
        "bazaar federation init --name fraud --host market.example.org --ca /media/stick/fraud --passphrase",
    )
)
def init(
    folder: Annotated[Path, typer.Argument(help="A new folder.")] = FOLDER,
    name: Annotated[str, typer.Option(help="The market's name.")] = "bazaar",
    host: Annotated[str, typer.Option(help="The name or address that providers dial.")] = "localhost",
    port: Annotated[int, typer.Option(help="The one port that they dial.")] = 8002,
    ca: Annotated[
        Path | None, typer.Option("--ca", help="Keep the authority's key there and not here: a stick, say.")
    ] = None,
    locked: Annotated[
        bool, typer.Option("--passphrase", help="Lock that key. It is asked for, or in DATABAZAAR_CA_PASSPHRASE.")
    ] = False,
) -> None:
    """Makes the market's certificates and its server's kit."""
    from databazaar.federation import enrolment

    market = enrolment.init_market(folder, name, host, port, ca, passphrase(new=True) if locked else None)
    typer.echo(f"{market.folder} is made: keep it to yourself, it holds the market's keys")
    if ca is not None:
        typer.echo(f"the authority's key is in {ca} alone: sign, revoke and renew with `--ca {ca}`, then put it away")
    typer.echo("next: `bazaar federation invite NAME` for every provider, then `bazaar federation up`")


@app.command(epilog=example("bazaar federation invite harbour-bank"))
def invite(name: Name, folder: Folder = FOLDER) -> None:
    """Writes an invitation for one provider. It carries a secret: send it where only that provider reads."""
    from databazaar.federation import enrolment

    path = enrolment.invite(folder, name)
    typer.echo(f"{path}: send it to {name}, who runs `bazaar provider request {path.name}`")


@app.command(
    epilog=example(
        "bazaar federation sign harbour-bank.request.json",
        "bazaar federation sign harbour-bank.renewal.json --ca /media/stick/fraud",
        "bazaar federation sign --server",
    )
)
def sign(
    request: Annotated[Path | None, typer.Argument(help="What the provider sent back; none with --server.")] = None,
    folder: Folder = FOLDER,
    ca: Ca = None,
    own: Annotated[
        bool, typer.Option("--server", help="A new key and certificate for the market's server instead.")
    ] = False,
    stolen: Annotated[
        bool, typer.Option("--stolen", help="With --server: its old key was seen by others, and is revoked at once.")
    ] = False,
) -> None:
    """Signs the certificate of a provider that was invited, or that renews. Its key has never left its machine."""
    from databazaar.federation import enrolment, renewal

    if own == (request is not None):
        raise BazaarError("give what the provider sent back, or --server for the server's own certificate")
    if stolen and not own:
        raise BazaarError("--stolen is of the server's key: give --server too; a provider's is revoked with `revoke`")
    if request is not None:
        path = enrolment.sign(folder, request, ca, passphrase)
        typer.echo(f"{path}: send it to {path.stem}, who runs `bazaar provider complete {path.name}`")
        return
    days = renewal.renew_server(folder, ca, passphrase, stolen)
    typer.echo(f"the server has a new key and a certificate for {days} days; providers need do nothing")
    if stolen:
        typer.echo(f"take the server down and up again, and send {folder / 'ca' / 'crl.pem'} to all providers")
        typer.echo("they run `bazaar provider complete crl.pem --kit kit`, and take the earlier certificate no more")
    else:
        typer.echo("a server that is up takes it for new connections; restart it within a week, between two runs")


@app.command(
    epilog=example(
        "bazaar federation up",
        "bazaar federation up --folder /srv/fraud",
        "bazaar federation up --capacity harbour-bank=4",
    )
)
def up(
    folder: Folder = FOLDER,
    capacity: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=ASKS",
            help="How many asks a provider answers at a time; others wait. Again for more. Default: 1 each.",
        ),
    ] = None,
) -> None:
    """Starts the market's server, which goes on in the background. One that is up takes --capacity at once."""
    import databazaar.federation.wire  # noqa: F401 (gRPC is missed here, and not by the process in the background)
    from databazaar.federation import renewal, server

    for given in capacity or ():
        name, _, asks = given.rpartition("=")
        if not (name and asks.isascii() and asks.isdigit()):
            raise BazaarError(f"--capacity {given} must be such as harbour-bank=4: a provider's name and a number")
        server.set_capacity(folder, name, int(asks))
        typer.echo(f"{name} is asked up to {asks} questions at a time; it has to join with `--at-once {asks}`")
    if capacity and server.status(folder).up:
        return
    renewal.ready(folder)
    warn(folder)
    pid = server.up(folder)
    typer.echo(f"the server is up at {server.status(folder).address} as process {pid}")


@app.command(epilog=example("bazaar federation down"))
def down(folder: Folder = FOLDER) -> None:
    """Stops the market's server."""
    from databazaar.federation import server

    typer.echo("the server is down" if server.down(folder) else "the server was not up")


@app.command(epilog=example("bazaar federation status", "bazaar federation status --json"))
def status(folder: Folder = FOLDER, as_json: AsJson = False) -> None:
    """Says whether the server is up, who is connected, and whose asks wait for whom."""
    from databazaar.federation import renewal, server

    found = server.status(folder)
    if as_json:
        typer.echo(json.dumps({**asdict(found), "warnings": renewal.warnings(folder)}))
        return
    state = f"up as process {found.pid}{'' if found.answers else ', but it does not answer'}" if found.up else "down"
    typer.echo(f"server   {state}, {found.address}")
    for name in found.members:
        typer.echo(f"member   {name}: {'connected' if name in found.connected else 'not connected'}")
        if (queue := found.queues.get(name)) is not None:
            for state in ("asked", "late", "waiting"):
                for consumer, count in getattr(queue, state).items():
                    say(f"  {state:<7} {consumer}: {count}")
    for name in found.revoked:
        typer.echo(f"revoked  {name}")
    warn(folder)


@app.command(
    epilog=example(
        "bazaar federation revoke harbour-bank", "bazaar federation revoke harbour-bank --ca /media/stick/fraud"
    )
)
def revoke(name: Name, folder: Folder = FOLDER, ca: Ca = None) -> None:
    """Shuts a provider out at once and for good, by name and by the serial numbers of its certificates."""
    from databazaar.federation import renewal, server

    told = server.revoke(folder, name)
    try:
        renewal.revoke_certificates(folder, name, ca, passphrase)
    except BazaarError as error:
        raise BazaarError(f"{name} is shut out by name, but not yet on the revocation list: {error}") from None
    when = "its connections are closed" if told else "the server is down, and will not let it in when it starts"
    typer.echo(f"{name} is shut out ({when}); it can come back only under a new name")
