"""Whose job is next, that one hub is alone, and what is swept away."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import func, select

from databazaar.service import credentials, outbox
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Answered, Contract, Job, Outgoing, Token, now
from databazaar.service.home import HubLock, HubLockedError
from databazaar.service.hub.supervisor import Supervisor, next_queued, who_makes_room
from databazaar.service.hub.sweeper import sweep, sweepers
from databazaar.service.jobs import expected_wait
from databazaar.service.lifecycle import JobState, enter, locked_job
from databazaar.service.settings import Settings
from desk_market import DeskMarket, desk_market


@pytest.fixture
def desk(database: Database, settings: Settings) -> DeskMarket:
    return desk_market(database, settings)


def queue(desk: DeskMarket, slug: str, *names: str, state: str = "queued", **more: object) -> None:
    with desk.database.begin() as session:
        for name in names:
            whose = desk[slug].organisation_id
            session.add(
                Job(organisation_id=whose, name=name, state=state, spec={}, files={}, offers=[], budget=1, **more)
            )
            session.flush()


def begun(desk: DeskMarket, times: int) -> list[str]:
    """The names of the jobs that are started one after the other, none of which ends."""
    turns: dict[str, int] = {}
    names = []
    for number in range(times):
        with desk.database.begin() as session:
            job = next_queued(session, turns)
            if job is None:
                break
            turns[job.organisation_id] = number
            job.state = "running"
            names.append(job.name)
    return names


def test_consumers_take_turns_whoever_has_more_jobs(desk: DeskMarket) -> None:
    queue(desk, "buyer", *(f"heavy {number}" for number in range(20)))
    queue(desk, "rival", "light 1", "light 2")
    assert begun(desk, 6) == ["heavy 0", "light 1", "heavy 1", "light 2", "heavy 2", "heavy 3"]


def test_the_one_who_runs_less_is_next_also_for_a_hub_that_was_started_anew(desk: DeskMarket) -> None:
    queue(desk, "buyer", "runs", state="running")
    queue(desk, "buyer", "waits")
    queue(desk, "rival", "is next")
    assert begun(desk, 2) == ["is next", "waits"]


def test_who_has_had_a_turn_makes_room_for_one_who_runs_less(desk: DeskMarket) -> None:
    queue(desk, "buyer", "long 1", "long 2", state="running")
    with desk.database.read() as session:
        ids = dict(session.execute(select(Job.name, Job.id)).all())
        had = [ids["long 2"], ids["long 1"]]
        assert who_makes_room(session, had) is None  # nobody waits
    queue(desk, "buyer", "own")
    with desk.database.read() as session:
        assert who_makes_room(session, had) is None  # the one who waits runs as many
    queue(desk, "rival", "waits")
    with desk.database.read() as session:
        assert who_makes_room(session, had) == ids["long 2"] and who_makes_room(session, []) is None


def test_what_is_not_due_or_not_hosted_is_not_started(desk: DeskMarket) -> None:
    queue(desk, "buyer", "later", not_before=now() + dt.timedelta(minutes=1))
    queue(desk, "buyer", "own", mode="own")
    queue(desk, "buyer", "due", not_before=now() - dt.timedelta(minutes=1))
    assert begun(desk, 3) == ["due"]


def test_a_job_that_another_transaction_holds_is_passed_over(desk: DeskMarket) -> None:
    if desk.database.is_sqlite:
        return  # one transaction at a time
    queue(desk, "buyer", "held")
    queue(desk, "rival", "free")
    with desk.database.begin() as one, desk.database.begin() as other:
        first, second = next_queued(one, {}), next_queued(other, {})
        assert first is not None and second is not None and {first.name, second.name} == {"held", "free"}


def test_a_free_runner_means_no_wait(desk: DeskMarket, settings: Settings) -> None:
    with desk.database.read() as session:
        assert expected_wait(session, settings) == 0.0


@pytest.fixture
def hub(database: Database, settings: Settings) -> Iterator[HubLock]:
    held = HubLock(settings, database)
    yield held
    held.release()


def test_a_second_hub_is_refused_in_the_same_home(hub: HubLock, database: Database, settings: Settings) -> None:
    with pytest.raises(HubLockedError, match=r"another hub works in .*: stop that one first"):
        Supervisor(settings, database).start()
    hub.release()
    HubLock(settings, database).release()


def test_a_second_hub_is_refused_on_the_same_database(
    hub: HubLock, database: Database, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("databazaar.service.home.PATIENCE", 0.2)
    with pytest.raises(HubLockedError, match="another hub works on this database"):
        HubLock(replace(settings, home=tmp_path / "elsewhere"), database)
    hub.still()


def test_a_hold_that_postgresql_lost_is_taken_again_or_the_hub_goes(
    hub: HubLock, database: Database, settings: Settings, tmp_path: Path
) -> None:
    if database.is_sqlite:
        return  # the kernel holds it
    assert hub._connection is not None
    hub._connection.invalidate()
    hub.still()
    hub._let_go()
    other = HubLock(replace(settings, home=tmp_path / "elsewhere"), database)
    with pytest.raises(HubLockedError):
        hub.still()
    other.release()


def test_why_a_job_waited_is_told_no_longer_when_it_runs(desk: DeskMarket) -> None:
    queue(desk, "buyer", "late")
    with desk.database.begin() as session:
        job = locked_job(session, session.scalars(select(Job.id)).one())
        enter(session, job, JobState.RUNNING)
        enter(session, job, JobState.QUEUED, "the hub was stopped")
        assert job.reason == "the hub was stopped"
        enter(session, job, JobState.RUNNING)
        assert job.reason == ""


def test_what_is_old_is_swept_away(desk: DeskMarket, settings: Settings) -> None:
    buyer = desk["buyer"]
    old = now() - dt.timedelta(days=30)
    with desk.database.begin() as session:
        for key, moment in (("old", old), ("new", now())):
            session.add(Answered(organisation_id=buyer.organisation_id, key=key, request="0" * 64, created_at=moment))
        hook = outbox.add_webhook(session, buyer, "https://buyer.example/").webhook
        for name, moment, told in (("old", old, now()), ("new", now(), now()), ("waits", old, None)):
            session.add(Outgoing(webhook_id=hook.id, event=name, body={}, created_at=moment, delivered_at=told))
        token, _ = credentials.issue_token(session, buyer, label="laptop", scopes=["read"], days=1)
        token.expires_at = old
        session.execute(Token.__table__.update().where(Token.kind == "session").values(expires_at=old))  # type: ignore[attr-defined]
    sweep(desk.database)
    with desk.database.read() as session:
        assert list(session.scalars(select(Answered.key))) == ["new"]
        assert set(session.scalars(select(Outgoing.event))) == {"new", "waits"}
        kinds = set(session.scalars(select(Token.kind)))
        assert "session" not in kinds and "api" in kinds
        assert session.scalar(select(func.count()).select_from(Contract)) == 0


def test_the_sweeper_goes_on_when_something_fails(
    desk: DeskMarket, settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    swept: list[Database] = []

    def failing(database: Database) -> None:
        swept.append(database)
        raise ZeroDivisionError

    monkeypatch.setattr("databazaar.service.hub.sweeper.sweep", failing)
    monkeypatch.setattr("databazaar.service.hub.sweeper.RARELY", 0.01)
    every = sweepers(settings, desk.database)
    for sweeper in every:
        sweeper.start()
    while len(swept) < 2:
        time.sleep(0.01)
    for sweeper in every:
        sweeper.stop()
    assert "sweeper failed, and goes on" in caplog.text
