"""Jobs over sites of a real federation: several consumers at once through the hub, each with a schema of its own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import select
from typer.testing import CliRunner

from databazaar.cli.app import app
from databazaar.codes import Code
from databazaar.federation.accepted_schemas import AcceptedSchemas
from databazaar.federation.records import AccessRecord
from databazaar.runs.folder import RunFolder
from databazaar.service import contracts, journal
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Receipt
from databazaar.service.settings import Settings
from desk_market import table
from hub_market import HubMarket, hub, hub_market, install_plugin, wrong_with_books
from site_faults import KINDS, SitePoint, SiteStage, queued_market, site_points
from site_market import SITE_SPEC, SITES, Sites, add_consumer, offer_site, run_at_home

pytestmark = [pytest.mark.slow, pytest.mark.process]
CONSUMERS = {"buyer": 99, "rival": 98, "novel": 97}
"""The seeds of their hold-outs."""
PRIVATE = "south-private"
POINTS = [SitePoint("runner", 2), SitePoint("hub and provider", 6, "second")]


@dataclass
class Town:
    """Three sites, and a market with three consumers over them."""

    sites: Sites
    market: HubMarket
    log: Path

    def add(self, name: str, buyer: str, offers: tuple[str, ...] = SITES, seed: int | None = None) -> str:
        content = table(CONSUMERS[buyer] if seed is None else seed, rows=80)
        return self.market.add(name, SITE_SPEC, buyer, content, offers)

    def voids(self, name: str) -> Counter[tuple[str, Code]]:
        """By provider and reason."""
        audit = RunFolder(self.market.run(name)).replay()
        assert audit.terms is not None and audit.record is not None
        ids = audit.terms.roster.ids
        return Counter((ids[provider], reason) for _, provider, reason in audit.record.rounds.failures)


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory, make_url: Callable[[str], str]) -> Iterator[Town]:
    root = tmp_path_factory.mktemp("town")
    sites = Sites(root / "federation")
    database = Database(make_url("sqlite"))
    try:
        sites.found("north-site", 1, "--schemas", "3")
        sites.found("south-site", 2, "--schemas", "3")
        sites.found(
            PRIVATE, 3, "--schemas", "3", "--consumers", "buyer,rival", "--epsilon-cap", "50", "--account", "own"
        )
        sites.up()
        for name in (*SITES, PRIVATE):
            sites.start(name)
        settings = Settings(home=root / "hub", cash="test", federation=sites.market)
        market = hub_market(database, settings, ())
        add_consumer(market.desk, "novel")
        for name in (*SITES, PRIVATE):
            offer_site(market, name)
        sites.wait()
        yield Town(sites, market, root / "log.txt")
    finally:
        sites.close()
        database.dispose()


def test_three_consumers_at_once_end_as_each_does_alone(town: Town, tmp_path: Path) -> None:
    market = town.market
    for consumer in CONSUMERS:
        town.add(consumer, consumer)
    for consumer in ("buyer", "rival"):
        town.add(f"{consumer} in private", consumer, (PRIVATE,))
    town.add("not allowed", "novel", ("north-site", PRIVATE))
    with hub(market.settings, town.log):
        market.wait(market.over, "not all jobs are over")
    for name in market.jobs:
        assert market.job(name).state == "settled", market.told()
        assert RunFolder(market.run(name)).audit().ok
    for name in CONSUMERS:
        assert town.voids(name) == {}
        model = run_at_home(market, town.sites, name, tmp_path / name)
        assert market.job(name).model_hash == model
        assert drawn_and_paid(market.run(name)) == drawn_and_paid(tmp_path / name)
    assert set(town.voids("not allowed")) == {(PRIVATE, Code.of("refused", why="consumer-not-allowed"))}
    assert wrong_with_books(market) is None
    _assert_told(town)


def drawn_and_paid(run: Path) -> list[tuple[int, int, float | None]]:
    record = RunFolder(run).replay().record
    assert record is not None
    return [(access.provider, access.paid, access.gain) for round in record.rounds for access in round.accesses]


def _assert_told(town: Town) -> None:
    """Contracts, receipts and ε; and what sites know of who asked."""
    market = town.market
    with market.database.read() as session:
        made = contracts.own_contracts(session, market.desk["south"], party="provider")
        paid = {one.id for one in made if one.paid}
        receipts = set(session.scalars(select(Receipt.contract_id)))
        held = journal.balance(session, journal.earned("south"))
    assert paid and paid <= receipts and held == sum(one.paid or 0 for one in made)
    spent = {one.consumer: one.epsilon or 0.0 for one in made if one.offer == PRIVATE and one.paid}
    assert set(spent) == {"buyer", "rival"} and min(spent.values()) > 0
    account = json.loads((town.sites.root / "accounts" / "own.json").read_text())
    assert set(account["consumers"]) == {"buyer", "rival"}
    asked = {
        (one.consumer, one.contract)
        for one in AccessRecord(town.sites.root / "north-site" / "answers.jsonl").questions()
    }
    assert {(name, market.jobs[name]) for name in CONSUMERS} <= asked
    pinned = AcceptedSchemas(town.sites.root / "north-site").accepted()
    shown = {one.consumer: one.fingerprint for one in made if one.offer == "south-site"}
    assert {known.consumer: name for name, known in pinned.items()} == shown
    assert {known.contract for known in pinned.values()} <= set(market.jobs.values())


def test_a_schema_beyond_what_sites_let_come_is_refunded_with_the_remedy_and_accepted_by_its_file(
    town: Town, tmp_path: Path
) -> None:
    market, told = town.market, list[str]()
    with hub(market.settings, town.log):
        if not market.jobs:  # where this test runs alone
            for consumer in CONSUMERS:
                town.add(consumer, consumer)
            market.wait(market.over, "not all jobs are over")
        town.add("refused", "buyer", seed=55)
        market.wait(market.over, "not all jobs are over")
        refused = market.job("refused")
        assert refused.state == "refunded" and refused.refunded == refused.escrow
        assert set(town.voids("refused")) == {(name, Code.of("refused", why="task-not-allowed")) for name in SITES}
        for name in SITES:
            with market.database.read() as session:
                provider = market.desk[name.partition("-")[0]]
                (contract,) = (
                    one for one in contracts.own_contracts(session, provider, refused.id) if one.offer == name
                )
                schema = contracts.schema_of(session, provider, market.settings, contract.id)
            assert contract.fingerprint is not None and contract.fingerprint[:12] in refused.reason
            assert refused.reason.startswith("the sites have not accepted this job's schema")
            path = tmp_path / "schema.json"
            path.write_bytes(schema)
            kit = town.sites.root / name
            offered = CliRunner().invoke(app, ["provider", "schema", str(kit)]).output
            assert f"offered   {contract.fingerprint[:12]} predicts 'late'" in offered and ", for buyer" in offered
            told.append(CliRunner().invoke(app, ["provider", "schema", str(kit), "--accept", str(path)]).output)
        assert all("offered" not in output for output in told)
        town.add("anew", "buyer", seed=55)
        market.wait(market.over, "not all jobs are over")
    assert market.job("anew").state == "settled" and town.voids("anew") == {}
    assert wrong_with_books(market) is None


def test_killed_while_it_asks_a_market_over_sites_ends_as_undisturbed(
    town: Town, make_url: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`scripts/service_faults.py --federation` plays many points."""
    install_plugin(monkeypatch)
    database = Database(make_url("sqlite"))
    settings = Settings(home=tmp_path / "made", cash="test", federation=town.sites.market)
    stage = SiteStage(town.sites, queued_market(database, settings), tmp_path)
    stage.play([])
    assert set(stage.whole) == {"plain", "first", "second"}
    struck = stage.play(POINTS)
    database.dispose()
    assert [one.wrong for one in struck] == [None] * len(POINTS)
    assert sum(one.hit for one in struck) >= 1 and stage.void == 0


def test_points_are_spread_over_everything_that_can_be_killed() -> None:
    assert {point.what for point in site_points(12)} == set(KINDS)
    assert {point.site for point in site_points(24)} == set(SITES) and all(map(str, site_points(6)))
