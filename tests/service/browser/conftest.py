"""One browser for all tests of this folder, Debian's Chromium driven by playwright; and one market, copied for each."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from browsing import CHROMIUM
from databazaar.service.database.connection import Database
from databazaar.service.http.app import create_app
from databazaar.service.settings import Settings
from page_market import NAMES, PageMarket, page_market
from visitor import Visitor
from web_market import ENDLESS

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
PLAIN = {slug: slug.title() for slug in NAMES}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """It has an event loop, which runs in this thread until it is closed: no other module's tests could run one."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def built(make_url: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> PageMarket:
    """Made once; every test has a copy of its own."""
    url, home = make_url("sqlite"), tmp_path_factory.mktemp("built") / "hub"
    made = page_market(Database(url), Settings(home=home, database=url, cash="test"), PLAIN)
    made.database.dispose()
    return made


@pytest.fixture
def market(built: PageMarket, tmp_path: Path) -> Iterator[PageMarket]:
    shutil.copytree(built.settings.home, tmp_path / "hub")
    shutil.copyfile(built.settings.database.removeprefix("sqlite:///"), tmp_path / "hub.sqlite")
    url = f"sqlite:///{tmp_path / 'hub.sqlite'}"
    copy = replace(built, database=Database(url), settings=Settings(home=tmp_path / "hub", database=url, cash="test"))
    yield copy
    copy.database.dispose()


@pytest.fixture
def visit(market: PageMarket) -> Iterator[Callable[..., Visitor]]:
    app = create_app(market.settings, market.database, supervise=False, limits=ENDLESS())
    yield lambda slug="": Visitor(market, app, slug)
