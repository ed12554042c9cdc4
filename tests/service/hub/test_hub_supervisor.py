"""Jobs in real processes, several at once: they come to what `bazaar run` of their market.toml comes to alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from databazaar import BazaarError
from databazaar.codes import Code
from databazaar.runs.folder import RunFolder
from databazaar.runs.notes import LEDGER
from databazaar.service import jobs, offers
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Job, JournalEntry
from databazaar.service.http.job_page import told_of
from databazaar.service.hub import progress, runner, supervisor
from databazaar.service.hub.folder import HELD, write_market
from databazaar.service.hub.progress import progress_of
from databazaar.service.hub.supervisor import Supervisor
from databazaar.service.lifecycle import JobState, enter
from databazaar.service.policy import Policy
from databazaar.service.settings import Settings
from desk_market import table
from hub_market import SPEC, HubMarket, hub_market, install_plugin, outcome_of_run, run_alone, wrong_with_books

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_figures_here"), pytest.mark.process]
LONG = {**SPEC, "market": {"budget": "500.00", "per_round": 2, "seed": 6}}


@pytest.fixture(autouse=True)
def _plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    install_plugin(monkeypatch)


def test_jobs_at_once_end_as_each_does_alone_and_others_are_stopped_or_given_up(
    database: Database, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three consumers' jobs, one of which draws from torch's global random state; one that is stopped early, and one
    whose table is not what it was."""
    monkeypatch.setattr(supervisor, "FIRST_DELAY", 0.1)
    market = hub_market(database, settings)
    market.settings = Settings(**{**vars(market.settings), "attempts": 2, "runners": 4})
    whole = {name: run_alone(market, name, tmp_path / name) for name in market.jobs}
    market.add("long", LONG, "rival")
    lost = market.add("lost", LONG, content=table(7, rows=50))
    with database.begin() as session:
        path = write_market(session, market.settings, session.get_one(Job, lost)).parent / "data/holdout.csv"
    path.chmod(0o600)
    path.write_text("distance,weight,vehicle,late\n")  # the kept file, by its other name
    hub = Supervisor(market.settings, database)
    hub.start()
    try:
        hub.wake()
        market.wait(lambda: progress.played(market.settings, market.jobs["long"]) > 2, "the long job does not run")
        running = market.job("long")
        assert running.id in hub._runners
        with database.begin() as session:
            jobs.stop(session, market.desk["rival"], market.settings, running.id)
        market.wait(market.over, "not all jobs are over")
    finally:
        hub.stop()
    assert not hub.alive and not hub._runners
    for name in whole:
        assert market.job(name).state == "settled" and outcome_of_run(market.run(name)) == whole[name], name
        found = RunFolder(market.run(name))
        assert progress.rounds(market.settings, market.jobs[name]) == list(progress_of(found.replay()))
        assert found.audit().ok and found.worth() is not None and (market.run(name) / "report.html").exists()
    assert wrong_with_books(market) is None
    _assert_stopped(market)
    failed = market.job("lost")
    assert failed.state == "failed" and failed.attempts == 2 and failed.refunded == failed.escrow
    assert (
        failed.reason.startswith("given up after 2 attempts: data/holdout.csv") and str(tmp_path) not in failed.reason
    )


def _assert_stopped(market: HubMarket) -> None:
    stopped = market.job("long")
    assert stopped.state == "settled" and 0 < (stopped.paid or 0) < stopped.budget / 10
    assert stopped.refunded == stopped.escrow - (stopped.paid or 0)
    assert RunFolder(market.run("long")).audit().ok and RunFolder(market.run("long")).worth() is None


def test_what_a_hub_left_behind_is_taken_up_by_the_next(sqlite_database: Database, settings: Settings) -> None:
    """A job that was running when its hub was killed, and one that its consumer has stopped since; then the hub stops
    while they are under way."""
    market = hub_market(sqlite_database, settings, ())
    market.add("left", LONG)
    market.add("stopped", LONG)
    with market.database.begin() as session:
        for name, stops in (("left", False), ("stopped", True)):
            job = session.get_one(Job, market.jobs[name])
            write_market(session, market.settings, job)
            enter(session, job, JobState.RUNNING)
            job.stopped_by = "consumer" if stops else ""
    hub = Supervisor(market.settings, market.database)
    hub.start()
    market.wait(lambda: progress.played(market.settings, market.jobs["left"]) > 1)
    market.wait(lambda: market.job("stopped").state == "refunded")
    hub.stop()
    left = market.job("left")
    assert (left.state, left.attempts, left.reason) == ("queued", 0, "the hub was stopped")
    with market.database.read() as session:
        told = [event.detail for event in jobs.events_of(session, market.desk["buyer"], left.id)]
    assert "its runner was lost" in told


def test_a_long_job_makes_room_for_another_consumer_and_ends_as_it_does_alone(
    sqlite_database: Database, settings: Settings, tmp_path: Path
) -> None:
    """One runner, and at first a turn that is over as soon as a round is."""
    market = hub_market(sqlite_database, settings, ())
    market.add("long", {**SPEC, "market": {"budget": "4.00", "per_round": 2, "seed": 6}})
    alone = run_alone(market, "long", tmp_path / "long")
    market.add("rows", buyer="rival")
    market.settings = replace(market.settings, runners=1, turn=0.0)
    hub = Supervisor(market.settings, market.database)
    hub.start()
    market.wait(lambda: market.job("long").reason.startswith("it has had its turn"))
    hub.settings = replace(market.settings, turn=600.0)
    market.wait(market.over)
    hub.stop()
    assert market.job("rows").state == "settled"
    assert market.job("long").attempts == 0 and outcome_of_run(market.run("long")) == alone
    assert wrong_with_books(market) is None


def test_a_job_whose_files_are_gone_is_held_until_they_are_back(
    sqlite_database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "HELD_FOR", 0.05)
    market = hub_market(sqlite_database, settings, ("plain",))
    away = market.settings.files.rename(market.settings.home / "away")
    hub = Supervisor(replace(market.settings, attempts=1), market.database)
    hub.start()
    market.wait(lambda: market.job("plain").reason_code == HELD)
    held = market.job("plain")
    assert (held.state, held.attempts, held.refunded) == ("queued", 0, None)
    assert "(No such file or directory): the operator's log" in held.reason and told_of(held) == held.reason
    away.rename(market.settings.files)
    market.wait(market.over)
    hub.stop()
    assert market.job("plain").state == "settled" and wrong_with_books(market) is None
    with market.database.read() as session:
        told = [event.detail for event in jobs.events_of(session, market.caller("plain"), held.id)]
    assert told.count(held.reason) == 1, "it is told once, however often it is tried"


def test_no_process_no_run(sqlite_database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that can start no process gives the job another chance, and then up."""
    market = hub_market(sqlite_database, settings, ("plain",))
    hub = Supervisor(market.settings, market.database)

    def refuse(*_: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(hub._runners, "start", refuse)
    assert hub._begin_next()
    job = market.job("plain")
    assert (job.state, job.attempts) == ("queued", 1) and "could not start its runner" in job.reason
    assert not hub._begin_next()


def test_a_runner_says_why_it_failed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    settings = Settings(home=tmp_path)
    folder = settings.job_folder("job")
    folder.mkdir(parents=True)
    assert runner.attempt(settings, "job") == 2
    why = str(runner.why_failed(settings, "job", 2))
    assert "market.toml" in why and str(tmp_path) not in why
    settings.run_folder("job").mkdir()
    (settings.run_folder("job") / "run.json").write_text("{}")
    assert runner.attempt(settings, "job") == 2 and "is not a run's folder" in str(
        runner.why_failed(settings, "job", 2)
    )
    (folder / "stop").touch()
    assert runner.attempt(settings, "job") == 0 and not (folder / "failure.json").exists()
    assert str(runner.why_failed(settings, "job", 9)) == "its runner ended with 9"
    assert "signal 9" in str(runner.why_failed(settings, "job", -9))
    capfd.readouterr()


def test_a_fault_of_ours_is_in_the_log_and_not_in_the_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a secret of the machine")

    settings = Settings(home=tmp_path)
    settings.job_folder("job").mkdir(parents=True)
    monkeypatch.setattr(runner, "play", fail)
    assert runner.attempt(settings, "job") == runner.OUR_FAULT
    assert "secret" not in str(runner.why_failed(settings, "job", runner.OUR_FAULT))
    assert "a secret of the machine" in capfd.readouterr().err


def test_a_round_without_end_is_ended_when_the_operator_stops_its_job(
    sqlite_database: Database, settings: Settings
) -> None:
    """Its first round would take hours: the runner is ended in it, and the escrow goes back."""
    market = hub_market(sqlite_database, settings, names=())
    oracle = {"kind": "local-sgd", "steps": 1_000_000, "batch_size": 32, "epochs": 1_000_000}
    job_id = market.add("endless", {**LONG, "oracle": oracle})
    hub = Supervisor(replace(market.settings, stop_grace=0.5), sqlite_database)
    hub.start()
    try:
        hub.wake()
        market.wait(lambda: (market.run("endless") / LEDGER).exists(), "it does not begin")
        with sqlite_database.begin() as session:
            jobs.stop(session, market.desk["hub"], market.settings, job_id)
        market.wait(market.over, "it is not ended")
    finally:
        hub.stop()
    job = market.job("endless")
    assert (job.state, job.reason, job.paid) == ("refunded", "the operator stopped it", 0)
    assert job.refunded == job.escrow and wrong_with_books(market) is None
    with sqlite_database.read() as session:
        told = [event.detail for event in jobs.events_of(session, market.desk["hub"], job_id)]
        closed = session.scalars(select(JournalEntry).where(JournalEntry.key == f"close:{job_id}")).one()
    assert "the operator asked to stop" in told
    assert "it did not finish its round within 0.5 seconds, and was ended in it" in told
    assert closed.body["stopped_by"] == "operator"


def test_a_table_with_few_known_targets_is_not_asked(sqlite_database: Database, settings: Settings) -> None:
    """The offer has rows enough, but the consumer chose a target that few of them have: that would be an ask over few
    rows. What the consumer hears shows no value."""
    market = hub_market(sqlite_database, settings, names=())
    lines = table(5, rows=60).decode().splitlines()
    few = [lines[0], *lines[1:32], *(line.rsplit(",", 1)[0] + "," for line in lines[32:])]
    with sqlite_database.begin() as session:
        desk = market.desk
        terms = Policy(price=5, approval="automatic")
        given: dict[str, Any] = {"name": "Few", "slug": "few", "description": "", "policy": terms}
        file_id = desk.upload(session, "north", ("\n".join(few) + "\n").encode())
        offers.make_offer(session, desk["north"], market.settings, file_id=file_id, **given)
    job_id = market.add("few", LONG, offers=("north-few", "south-sales"))
    with sqlite_database.begin() as session:
        write_market(session, market.settings, session.get_one(Job, job_id))
    assert runner.attempt(market.settings, job_id) == BazaarError.exit_code
    assert not market.run("few").exists()
    why = runner.why_failed(market.settings, job_id, BazaarError.exit_code)
    assert why == Code.of("table-does-not-fit", provider="north-few")
    assert str(why) == "provider 'north-few': its table does not fit this job: leave its offer out"


def test_a_consumer_is_told_no_value_of_a_providers_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise BazaarError("provider 'north-sales': data/north-sales.csv: row 7 holds 'Gwendolyn'\nand more: correct it")

    settings = Settings(home=tmp_path)
    settings.job_folder("job").mkdir(parents=True)
    (settings.job_folder("job") / "market.toml").write_text("[[providers]]\nid = 'north-sales'\n")
    monkeypatch.setattr(runner, "play", fail)
    assert runner.attempt(settings, "job") == BazaarError.exit_code
    assert runner.why_failed(settings, "job", 2) == Code.of("table-does-not-fit", provider="north-sales")
