"""A market of the service whose providers are sites of a real federation, each a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from databazaar.config.jobs import market_job
from databazaar.config.play import begun
from databazaar.config.toml_text import toml_text
from databazaar.federation.grpc_transport import GrpcTransport
from databazaar.runs.folder import RunFolder
from databazaar.service import credentials, members, offers
from databazaar.service.database.tables import Job
from databazaar.service.hub.folder import write_market
from databazaar.service.policy import read_policy
from desk_market import DeskMarket, table
from hub_market import SPEC, HubMarket
from loopback import WAIT, Federation
from processes import Forked

COLUMNS = [{"name": name, "kind": "number"} for name in ("distance", "weight", "late")]
COLUMNS += [{"name": "vehicle", "kind": "category"}]
SITES = ("north-site", "south-site")
SITE_SPEC: dict[str, Any] = {
    **SPEC,
    "market": {"budget": "0.60", "per_round": 2, "seed": 7},
    "data": {"target": "late", "task": "classification", "audit": 0.0},
}
"""Six rounds, and no judge afterwards."""


class Sites(Federation):
    """Providers that answer from a file, as `bazaar provider join` starts them."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, "harbour")
        self._options: dict[str, Sequence[str]] = {}

    def found(self, name: str, seed: int, *options: str) -> None:
        """A new site with 60 rows of its own."""
        kit = self.enroll(name)
        (kit / "data.csv").write_bytes(table(seed))
        self._options[name] = options

    def start(self, name: str, kit: Path | None = None) -> subprocess.Popen[bytes]:
        kit = kit or self.root / name
        command = [sys.executable, "-m", "databazaar", "provider", "join", str(kit), "--data", str(kit / "data.csv")]
        accounts = {"DATABAZAAR_ACCOUNTS": str(self.root / "accounts")}
        with (kit / "provider.txt").open("ab") as output:
            process = Forked(
                [*command, *self._options[name]], env={**os.environ, **accounts}, stdout=output, stderr=output
            )
        self.processes[name] = process
        return process

    def wait(self) -> None:
        """Until all that were started are connected."""
        with GrpcTransport(self.market) as transport:
            absent = transport.wait_for(list(self.processes), WAIT)
        assert absent == [], [(self.root / name / "provider.txt").read_text() for name in absent]


def offer_site(market: HubMarket, name: str, **policy: Any) -> None:
    """Offers a site under its own name, which begins with its organisation's."""
    slug = name.partition("-")[0]
    with market.database.begin() as session:
        offers.make_offer(
            session,
            market.desk[slug],
            market.settings,
            name=f"Site {name}",
            slug=name,
            description="",
            policy=read_policy({"price": 5, "approval": "automatic", **policy}),
            site=name,
            columns=COLUMNS,
            rows=60,
        )


def add_consumer(desk: DeskMarket, slug: str) -> None:
    """One more consumer than the small market has, with cash."""
    with desk.database.begin() as session:
        email = f"ann@{slug}.example"
        invited = members.invite(session, desk["hub"], name=slug.title(), slug=slug, email=email, consumes=True)
        desk.callers[slug] = credentials.redeem_link(session, invited.secret).caller
        desk.pay_in(session, slug, 100_000)


def run_at_home(market: HubMarket, sites: Sites, name: str, out: Path) -> str:
    """The model that a job over sites comes to where all their files are in one place; its run is kept in `out`."""
    with market.database.begin() as session:
        path = write_market(session, market.settings, session.get_one(Job, market.jobs[name]))
    settings = tomllib.loads(path.read_text())
    settings["engine"] = {"kind": "loop"}
    for provider in settings["providers"]:
        provider["file"] = str(sites.root / provider["id"] / "data.csv")
    at_home = path.with_name("home.toml")
    at_home.write_text(toml_text(settings))
    with begun(market_job(at_home), out) as playing:
        playing.settle()
    return RunFolder(out).audit().delivered or ""
