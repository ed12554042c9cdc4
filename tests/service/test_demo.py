"""`bazaar serve --demo`: the whole market is there, made by deeds, and links sign in once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from databazaar.errors import BazaarError
from databazaar.service import journal, members
from databazaar.service.database import upgrading
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Job, Market, Organisation
from databazaar.service.demo import make_demo
from databazaar.service.errors import UnknownCallerError
from databazaar.service.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "hub", address="http://127.0.0.1:8000")


def test_the_demo_has_a_market_with_everybody_in_it(settings: Settings) -> None:
    settings.home.mkdir()
    database = Database(settings.database_url)
    upgrading.upgrade(database)
    links = make_demo(settings, database)
    with database.begin() as session:
        everybody = session.scalars(select(Organisation)).all()
        roles = ("operates", "consumes", "provides")
        assert [sum(getattr(one, role) for one in everybody) for role in roles] == [1, 3, 9]
        assert sorted(session.scalars(select(Job.state))) == ["queued", "queued", "submitted"]
        assert journal.audit(session).ok
        secret = links[0].link.partition("#")[2]
        assert members.redeem_link(session, secret).caller.operates
        with pytest.raises(UnknownCallerError):
            members.redeem_link(session, secret)
    again = make_demo(settings, database)  # the same home: the same market, and new links
    assert [one.who for one in again] == [one.who for one in links]
    assert not {one.link for one in again} & {one.link for one in links}
    with database.begin() as session:
        session.get_one(Market, 1).name = "A real one"
    with pytest.raises(BazaarError, match="is no demo: give another folder with --home"):
        make_demo(replace(settings, cash="test"), database)
    database.dispose()
