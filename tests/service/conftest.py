"""Databases for the service's tests: SQLite in a file, and a PostgreSQL server that all tests of a process share.

Tables are made once by the migrations and copied for each test.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy import make_url as parse_url

from databazaar.service import table_reader
from databazaar.service.database.connection import Database
from databazaar.service.database.upgrade import upgrade
from databazaar.service.settings import Settings
from postgres import Server

DATABASES = ("sqlite", pytest.param("postgresql", marks=pytest.mark.process))
MakeUrl = Callable[[str], str]

collect_ignore = ["conftest.py"]
"""It has no examples to run, and pytest would take it for those of the folders below."""


_in_a_process = table_reader._answer


@pytest.fixture(scope="session", autouse=True)
def tables_are_read_here() -> Iterator[None]:
    """Uploaded tables are read in the process of the tests, but for those that have `tables_are_read_apart`."""

    def here(_: Settings, work: Callable[..., Any], path: Path, *more: Any) -> Any:
        return json.loads(table_reader.told(work, path, *more))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_reader, "_answer", here)
        yield


@pytest.fixture
def tables_are_read_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a hub reads them, in processes of their own."""
    monkeypatch.setattr(table_reader, "_answer", _in_a_process)


@pytest.fixture(scope="session")
def make_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MakeUrl:
    """The address of a new database of that kind, with all tables in it. PostgreSQL starts when it is first wanted."""
    folder = tmp_path_factory.mktemp("databases")
    numbers, migrated = itertools.count(), list[bool]()

    def make(kind: str) -> str:
        name = f"hub{next(numbers)}"
        if kind == "postgresql":
            server: Server = request.getfixturevalue("postgres_server")
            if not migrated:
                _at_postgres(server.url(), "CREATE DATABASE hub_template")
                _migrate(server.url(database="hub_template"))
                migrated.append(True)
            _at_postgres(server.url(), f"CREATE DATABASE {name} TEMPLATE hub_template")
            return server.url(database=name)
        template = folder / "template.sqlite"
        if not template.exists():
            _migrate(f"sqlite:///{template}")
        shutil.copyfile(template, folder / f"{name}.sqlite")
        return f"sqlite:///{folder / name}.sqlite"

    return make


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, make_url: MakeUrl) -> Iterator[Database]:
    """A hub's database without anybody in it, once on SQLite and once on PostgreSQL."""
    yield from _opened(make_url(request.param))


@pytest.fixture
def sqlite_database(make_url: MakeUrl) -> Iterator[Database]:
    """For what does not depend on the kind of database."""
    yield from _opened(make_url("sqlite"))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A hub whose cashier pays at once. A test that starts processes adds the database's address."""
    return Settings(home=tmp_path / "hub", cash="test")


def _opened(url: str) -> Iterator[Database]:
    database = Database(url)
    yield database
    database.dispose()
    if not database.is_sqlite:  # a cluster with hundreds of them takes long to remove
        _at_postgres(url, f"DROP DATABASE {database.engine.url.database} WITH (FORCE)")


def _migrate(url: str) -> None:
    database = Database(url)
    upgrade(database)
    database.dispose()


def _at_postgres(url: str, statement: str) -> None:
    engine = create_engine(parse_url(url).set(database="template1"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()
