"""A hub's folder belongs to its database, and what cannot be read is held: it is neither refunded nor begun anew."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from databazaar.cli.serve import app
from databazaar.runs.folder import RunFolder
from databazaar.service import home, journal
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Job
from databazaar.service.home import FILE, ForeignHomeError, bind
from databazaar.service.hub import settlement, supervisor
from databazaar.service.hub.folder import HELD, write_market
from databazaar.service.hub.settlement import UNSOUND, UnsoundError
from databazaar.service.hub.supervisor import Supervisor
from databazaar.service.lifecycle import JobState, enter
from databazaar.service.settings import Settings
from hub_market import HubMarket, hub_market, wrong_with_books
from played_jobs import play_rounds

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_figures_here"), pytest.mark.process]


@pytest.fixture
def market(sqlite_database: Database, settings: Settings) -> HubMarket:
    """A job that was running when its hub was killed, with three rounds in its ledger."""
    made = hub_market(sqlite_database, settings, ("plain",))
    bind(made.settings, made.database)
    play_rounds(made, "plain", 3)
    with made.database.begin() as session:
        enter(session, session.get_one(Job, made.jobs["plain"]), JobState.RUNNING)
    return made


def to_state(market: HubMarket, *states: JobState) -> None:
    with market.database.begin() as session:
        for state in states:
            enter(session, session.get_one(Job, market.jobs["plain"]), state)


def escrow(market: HubMarket) -> int:
    with market.database.read() as session:
        return journal.balance(session, journal.escrow(market.jobs["plain"]))


def test_home_and_database_get_one_id_and_keep_it(database: Database, settings: Settings, tmp_path: Path) -> None:
    made = hub_market(database, settings, ())
    bind(made.settings, database)
    first = (made.settings.home / FILE).read_text()
    bind(made.settings, database)
    assert (made.settings.home / FILE).read_text() == first
    empty = replace(made.settings, home=tmp_path / "empty")
    with pytest.raises(ForeignHomeError, match=r"has no file market-id: mount that folder or restore its copy"):
        bind(empty, database)
    assert not (empty.home / FILE).exists()
    (empty.home / FILE).write_text("0" * 32)
    with pytest.raises(ForeignHomeError, match=f"is the folder of market {'0' * 32}, .* the right folder with --home"):
        bind(empty, database)
    (empty.home / FILE).write_text(first)  # as the operator adopts a folder, where the old one is lost
    bind(empty, database)


def test_the_home_of_another_database_is_not_taken(sqlite_database: Database, settings: Settings) -> None:
    made = hub_market(sqlite_database, settings, ())
    (made.settings.home / FILE).write_text("0" * 32)
    with pytest.raises(ForeignHomeError, match="and the database has no folder yet"):
        bind(made.settings, sqlite_database)


@pytest.mark.parametrize("runners", [0, 1])
def test_a_hub_with_another_home_does_not_start(market: HubMarket, tmp_path: Path, runners: int) -> None:
    """As where a volume is not mounted: the job under way is as it was, and its money too."""
    before, elsewhere = market.job("plain"), tmp_path / "elsewhere"
    given = ["--home", str(elsewhere), "--database", market.settings.database, "--port", "0", "--runners", str(runners)]
    refused = CliRunner().invoke(app, given)
    assert isinstance(refused.exception, ForeignHomeError), refused.output
    with pytest.raises(ForeignHomeError):
        Supervisor(replace(market.settings, home=elsewhere), market.database).start()
    after = market.job("plain")
    assert (after.state, after.reason) == (before.state, before.reason) and escrow(market) == before.escrow


def _without_job_folder(market: HubMarket) -> Path:
    return market.settings.job_folder(market.jobs["plain"])


def _without_run(market: HubMarket) -> Path:
    return market.run("plain")


def _without_ledger(market: HubMarket) -> Path:
    return market.run("plain") / "ledger.sqlite"


def _without_home(market: HubMarket) -> Path:
    return market.settings.home / FILE


LOST: tuple[Callable[[HubMarket], Path], ...] = (_without_job_folder, _without_run, _without_ledger, _without_home)


@pytest.mark.parametrize("lost", LOST)
def test_a_run_that_is_lost_is_not_refunded_and_settles_when_it_is_back(
    market: HubMarket, lost: Callable[[HubMarket], Path], tmp_path: Path
) -> None:
    to_state(market, JobState.SETTLING)
    place = lost(market)
    shutil.move(place, tmp_path / "kept")
    assert settlement.attempt(market.settings, market.jobs["plain"]) == UnsoundError.exit_code
    held = market.job("plain")
    assert held.state == "settling" and held.reason_code == UNSOUND and str(tmp_path) not in held.reason
    assert escrow(market) == held.escrow and held.refunded is None
    if place.is_dir():
        shutil.rmtree(place)
    shutil.move(tmp_path / "kept", place)
    assert settlement.attempt(market.settings, market.jobs["plain"]) == 0
    assert (market.job("plain").paid or 0) > 0 and wrong_with_books(market) is None


def test_a_ledger_that_is_damaged_is_not_refunded(market: HubMarket) -> None:
    to_state(market, JobState.SETTLING)
    ledger = market.run("plain") / "ledger.sqlite"
    whole = ledger.read_bytes()
    for broken in (b"", whole[: len(whole) // 2], b"\0" * len(whole)):
        ledger.write_bytes(broken)
        assert settlement.attempt(market.settings, market.jobs["plain"]) == UnsoundError.exit_code
        assert market.job("plain").state == "settling" and escrow(market) == market.job("plain").escrow


def test_the_empty_run_of_another_job_is_not_refunded(market: HubMarket) -> None:
    to_state(market, JobState.SETTLING)
    shutil.rmtree(market.run("plain"))
    RunFolder.create(market.run("plain"), {"id": "another"})
    assert settlement.attempt(market.settings, market.jobs["plain"]) == UnsoundError.exit_code
    assert "run is not the run of this job" in market.job("plain").reason and escrow(market) > 0


@pytest.mark.parametrize("lost", LOST)
def test_a_run_that_is_lost_is_held_in_the_queue_and_goes_on_when_it_is_back(
    market: HubMarket, lost: Callable[[HubMarket], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "HELD_FOR", 0.05)
    hub = Supervisor(replace(market.settings, attempts=1), market.database)
    monkeypatch.setattr(home, "bind", lambda *_: None)  # it is lost while the hub works
    place = lost(market)
    shutil.move(place, tmp_path / "kept")
    hub.start()
    try:
        market.wait(lambda: market.job("plain").reason_code == HELD)
        held = market.job("plain")
        assert (held.state, held.attempts, held.refunded) == ("queued", 0, None) and escrow(market) == held.escrow
        assert str(tmp_path) not in held.reason
        shutil.move(tmp_path / "kept", place)
        market.wait(market.over)
    finally:
        hub.stop()
    assert market.job("plain").state == "settled" and wrong_with_books(market) is None


def test_a_folder_that_nobody_can_enter_is_told_by_the_settlers_process(market: HubMarket, tmp_path: Path) -> None:
    to_state(market, JobState.SETTLING)
    folder = market.settings.job_folder(market.jobs["plain"])
    shutil.move(folder, tmp_path / "kept")
    folder.write_text("no folder")
    hub = Supervisor(market.settings, market.database)
    hub.start()
    try:
        market.wait(lambda: market.job("plain").reason_code == UNSOUND)
        folder.unlink()
        shutil.move(tmp_path / "kept", folder)
    finally:
        hub.stop()
    assert market.job("plain").state == "settling" and "Not a directory" in market.job("plain").reason


def test_a_job_that_was_stopped_before_its_run_began_is_refunded(market: HubMarket) -> None:
    """Its runner was started and lost before it came as far: the folder shows it, and nothing is held back."""
    shutil.rmtree(market.settings.job_folder(market.jobs["plain"]))
    with market.database.begin() as session:
        job = session.get_one(Job, market.jobs["plain"])
        write_market(session, market.settings, job)
        job.stopped_by = "consumer"
    to_state(market, JobState.SETTLING)
    assert settlement.attempt(market.settings, market.jobs["plain"]) == 0
    assert market.job("plain").state == "refunded" and wrong_with_books(market) is None
