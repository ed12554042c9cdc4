"""kill -9 at a few points of three concurrent jobs, on both databases: `scripts/service_faults.py` plays many."""

from __future__ import annotations

from pathlib import Path

import pytest

from databazaar.service.database.connection import Database
from databazaar.service.settings import Settings
from hub_faults import Point, Stage, points
from hub_market import SPECS, hub_market, install_plugin, run_alone

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_figures_here"), pytest.mark.process]
FEW = {
    "sqlite": [
        Point("hub", "statement", 30),
        Point("runner", "round", 5, "rows"),
        Point("runner", "round", 20, "dropping"),
        Point("settler", "statement", 12),
        Point("settler", "statement", 25),
    ],
    "postgresql": [
        Point("database", "time", 200),
        Point("runner", "statement", 40),
        Point("forkserver", "round", 8, "rows"),
        Point("settler", "statement", 18),
        Point("settler", "statement", 30),
    ],
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, make_url: object) -> dict[str, tuple[str, str]]:
    """What the jobs come to from the shell."""
    folder = tmp_path_factory.mktemp("alone")
    with pytest.MonkeyPatch.context() as patch:
        install_plugin(patch)
        database = Database(make_url("sqlite"))  # type: ignore[operator]
        market = hub_market(database, Settings(home=folder / "hub", cash="test"))
        found = {name: run_alone(market, name, folder / name) for name in SPECS}
        database.dispose()
    return found


@pytest.mark.parametrize("kind", FEW)
def test_killed_anywhere_the_market_ends_as_undisturbed(
    kind: str, whole: dict[str, tuple[str, str]], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    install_plugin(request.getfixturevalue("monkeypatch"))
    make_url = request.getfixturevalue("make_url")
    server = request.getfixturevalue("postgres_server") if kind == "postgresql" else None
    struck = Stage(lambda: make_url(kind), tmp_path, whole, server).play(FEW[kind])
    assert [one.wrong for one in struck] == [None] * len(struck)
    assert sum(one.hit for one in struck) >= 3


def test_points_are_spread_over_everything_that_can_be_killed() -> None:
    for database in FEW:
        kinds = {(point.what, point.when) for point in points(100, database)}
        assert len(kinds) >= 7 and ("database" in {what for what, _ in kinds}) == (database == "postgresql")
        assert all(str(point) for point in points(20, database))
