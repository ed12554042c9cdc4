"""`bazaar serve --demo`: the whole market is there, made by deeds, and links sign in once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from databazaar.config.jobs import market_job
from databazaar.config.play import begun
from databazaar.errors import BazaarError
from databazaar.market.run import Progress
from databazaar.service import credentials, journal
from databazaar.service.database import upgrade as upgrading
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Job, Market, Organisation
from databazaar.service.demo import make_demo
from databazaar.service.errors import UnknownCallerError
from databazaar.service.hub.folder import write_market
from databazaar.service.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "hub", address="http://127.0.0.1:8000")


@pytest.fixture
def database(settings: Settings) -> Iterator[Database]:
    settings.home.mkdir()
    database = Database(settings.database_url)
    upgrading.upgrade(database)
    yield database
    database.dispose()


def test_the_demo_has_a_market_with_everybody_in_it(settings: Settings, database: Database) -> None:
    links = make_demo(settings, database)
    with database.begin() as session:
        everybody = session.scalars(select(Organisation)).all()
        roles = ("operates", "consumes", "provides")
        assert [sum(getattr(one, role) for one in everybody) for role in roles] == [1, 3, 9]
        assert sorted(session.scalars(select(Job.state))) == ["queued", "queued", "submitted"]
        assert journal.audit(session).ok
        secret = next(iter(links.values())).partition("#")[2]
        assert credentials.redeem_link(session, secret).caller.operates
        with pytest.raises(UnknownCallerError):
            credentials.redeem_link(session, secret)
    again = make_demo(settings, database)  # the same home: the same market, and new links
    assert list(again) == list(links)
    assert not {*again.values()} & {*links.values()}
    with database.begin() as session:
        session.get_one(Market, 1).name = "A real one"
    with pytest.raises(BazaarError, match="is no demo: give another folder with --home"):
        make_demo(replace(settings, cash="test"), database)


def test_the_demos_jobs_end_when_their_models_get_no_better(settings: Settings, database: Database) -> None:
    """Most of what they spend is spent before the best round, and most of the budget goes back."""
    make_demo(settings, database)
    with database.begin() as session:
        found = list(session.scalars(select(Job).where(Job.state == "queued")))
        markets = [(job, write_market(session, settings, job)) for job in found]
    for job, path in markets:
        rounds: list[Progress] = []
        with begun(market_job(path), settings.run_folder(job.id), id=job.id) as playing:
            playing.settle(rounds.append)
            assert "not progress beyond chance" in playing.folder.report().message
        best = max(rounds, key=lambda progress: progress.utility or 0.0)
        assert rounds[-1].asked - best.asked < best.asked < job.budget / 4
