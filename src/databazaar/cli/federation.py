"""`bazaar federation`: the operator's side. Certificates, the server, and who is let in."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from databazaar.cli.bounds import LARGEST_BUDGET, LARGEST_SEED
from databazaar.cli.examples import example
from databazaar.errors import BazaarError

app = typer.Typer(
    help="The operator's side of a federated market: providers stay on their own machines.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

FOLDER = Path("federation")
Folder = Annotated[Path, typer.Option("--folder", help="The federation's folder on the operator's machine.")]
Name = Annotated[str, typer.Argument(help="The provider's name.", show_default=False)]


def need_packages() -> None:
    """One sentence instead of a traceback where the extra is not installed."""
    if any(find_spec(name) is None for name in ("nvflare", "psutil", "cryptography")):
        raise BazaarError("federation needs more packages: pip install 'databazaar[federated]'")


@app.command(
    epilog=example(
        "bazaar federation init --name fraud --host market.example.org",
        "bazaar federation init try --name try --host localhost --port 8102",
    )
)
def init(
    folder: Annotated[Path, typer.Argument(help="A new folder.")] = FOLDER,
    name: Annotated[str, typer.Option(help="The market's name.")] = "market",
    host: Annotated[str, typer.Option(help="The name or address that providers dial.")] = "localhost",
    port: Annotated[int, typer.Option(help="The one port that they dial.")] = 8002,
) -> None:
    """Makes the market's certificates and its server's kit."""
    need_packages()
    from databazaar.federation import onboarding

    market = onboarding.init_market(folder, name, host, port)
    typer.echo(f"{market.folder} is made: keep it to yourself, it holds the market's keys")
    typer.echo("next: `bazaar federation invite NAME` for every provider, then `bazaar federation up`")


@app.command(epilog=example("bazaar federation invite harbour-bank"))
def invite(name: Name, folder: Folder = FOLDER) -> None:
    """Writes an invitation for one provider. It carries a secret: send it where only that provider reads."""
    need_packages()
    from databazaar.federation import onboarding

    path = onboarding.invite(folder, name)
    typer.echo(f"{path}: send it to {name}, who runs `bazaar provider request {path.name}`")


@app.command(epilog=example("bazaar federation sign harbour-bank.request.json"))
def sign(
    request: Annotated[Path, typer.Argument(help="What the provider sent back.", show_default=False)],
    folder: Folder = FOLDER,
) -> None:
    """Signs the certificate of a provider that was invited. Its private key has never left its machine."""
    need_packages()
    from databazaar.federation import onboarding

    path = onboarding.sign(folder, request)
    typer.echo(f"{path}: send it to {path.stem}, who runs `bazaar provider complete {path.name}`")


@app.command(epilog=example("bazaar federation up", "bazaar federation up --folder /srv/fraud"))
def up(folder: Folder = FOLDER) -> None:
    """Starts the market's server, which goes on in the background."""
    need_packages()
    from databazaar.federation import server

    pid = server.up(folder)
    typer.echo(f"the server is up at {server.status(folder).address} as process {pid}")


@app.command(epilog=example("bazaar federation down"))
def down(folder: Folder = FOLDER) -> None:
    """Stops the market's server."""
    need_packages()
    from databazaar.federation import server

    typer.echo("the server is down" if server.down(folder) else "the server was not up")


@app.command(epilog=example("bazaar federation status", "bazaar federation status --json"))
def status(
    folder: Folder = FOLDER,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Says whether the server is up, and who is connected."""
    need_packages()
    from databazaar.federation import server

    found = server.status(folder)
    if as_json:
        typer.echo(json.dumps(asdict(found)))
        return
    typer.echo(f"server   {'up as process ' + str(found.pid) if found.up else 'down'}, {found.address}")
    for name in found.members:
        typer.echo(f"member   {name}: {'connected' if name in found.connected else 'not connected'}")
    for name in found.revoked:
        typer.echo(f"revoked  {name}")


@app.command(epilog=example("bazaar federation revoke harbour-bank"))
def revoke(name: Name, folder: Folder = FOLDER) -> None:
    """Shuts a provider out at once and for good."""
    need_packages()
    from databazaar.federation import server

    server.revoke(folder, name)
    typer.echo(f"{name} is shut out; it can come back only under a new name")


@app.command(epilog=example("bazaar federation demo", "bazaar federation demo --budget 800 --out runs/afar"))
def demo(
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the run. Default: under runs/.")] = None,
    budget: Annotated[int, typer.Option(min=4, max=LARGEST_BUDGET, help="Accesses to buy.")] = 400,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of the data and of the market.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the last line.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """A server and four banks as processes of their own, with real certificates, in about a minute."""
    need_packages()
    from databazaar.cli.federation_demo import play_demo

    play_demo(out, budget, seed, quiet, as_json)
