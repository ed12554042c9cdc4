"""A consumer's own arbiter that stops, is stopped or falls silent: what was passed on is paid, and nothing else."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from databazaar.client.connection import HubError
from databazaar.service import jobs
from databazaar.service.database.connection import Database
from databazaar.service.errors import ConflictError
from databazaar.service.hub.settlement import UnsoundError, settle
from databazaar.service.lifecycle import JobState, locked_job
from databazaar.service.notary.answerers import Answers
from databazaar.service.notary.commands import Notaries
from own_arbiters import (
    EnoughError,
    OwnMarket,
    asked,
    stop_before_asking,
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_figures_here"), pytest.mark.process]


def test_who_stops_pays_for_what_was_passed_on(own: OwnMarket, tmp_path: Path) -> None:
    """One answer is passed on and its round never reported: the consumer stops, and the hub settles it."""
    job = own.job(name="Stopped")
    with own.playing(job, tmp_path) as playing, pytest.raises(EnoughError):
        stop_before_asking(playing)
    names = [entry.provider or "" for entry in playing.folder.entries() if entry.kind == "reserve"]
    asked(own, job, playing.arbiter, names[:1])
    with own.market.database.begin() as session:
        jobs.stop(session, own.market["buyer"], own.market.settings, job)
    with own.notary(job, attempts=1) as notary, pytest.raises(HubError, match="the hub has settled it"):
        notary.report(list(playing.folder.entries()))
    assert settle(own.market.database, own.market.settings, job) == JobState.SETTLED
    price = {"north-sales": 5, "south-sales": 4}[names[0]]
    assert own.found(job).paid == price * names.count(names[0])
    with pytest.raises(HubError, match="the job is settled"), own.playing(job, tmp_path) as playing:
        playing.settle()
    with own.notary(job, attempts=1) as notary:
        assert notary.standing().closed and notary.standing().head == own.found(job).run_head


def test_nothing_is_passed_on_unpaid_while_a_job_is_stopped(
    own: OwnMarket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that were let in just before the stop: an answer that is passed on is paid, and then there is none."""
    buyer, notaries, late = own.market["buyer"], own.notaries, own.job(name="Opened late")
    job = own.job(name="Stopped at once")
    let_in = {name: own.found(name) for name in (job, late)}
    with own.playing(job, tmp_path) as playing, pytest.raises(EnoughError):
        stop_before_asking(playing)
    entries = list(playing.folder.entries())
    names = [entry.provider or "" for entry in entries if entry.kind == "reserve"]
    with own.market.database.begin() as session:
        for name in (job, late):
            locked_job(session, name).state = "funded"  # whoever opened it has not said so yet
        for name in (job, late):
            jobs.stop(session, buyer, own.market.settings, name)
    monkeypatch.setattr(notaries, "_going", lambda _, name: let_in[name])
    asked(own, job, playing.arbiter, names[:1])
    assert {job, late} <= set(notaries.close_due())
    assert own.found(job).state == own.found(late).state == JobState.SETTLING
    with pytest.raises(HubError, match="the hub has settled it"):
        asked(own, job, playing.arbiter, names)
    with pytest.raises(ConflictError, match="the hub has settled it"):
        notaries.take(buyer, late, entries)
    assert settle(own.market.database, own.market.settings, job) == JobState.SETTLED and own.found(job).paid
    assert settle(own.market.database, own.market.settings, late) == JobState.REFUNDED


def test_a_silent_arbiter_is_closed_and_one_that_is_heard_is_not(
    own: OwnMarket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, idle = own.job(name="Silent"), own.job(name="Never opened")
    with own.playing(job, tmp_path) as playing, pytest.raises(EnoughError):
        stop_before_asking(playing)
    settings = replace(own.market.settings, own_lease=1000.0, own_begin=5000.0)
    own.notaries.close()
    now = [time.time()]
    monkeypatch.setattr("databazaar.service.notary.commands.EVERY", 0.01)
    notaries = Notaries(settings, own.market.database, clock=lambda: now[0])
    try:
        assert job not in notaries.close_due() and own.found(job).state == JobState.RUNNING
        assert notaries.standing(own.market["buyer"], job).entries
        assert list(notaries._open_runs) == [job]
        now[0] += 2000.0
        notaries.start()
        until = time.monotonic() + 60
        while own.found(job).state == JobState.RUNNING and time.monotonic() < until:
            time.sleep(0.01)
        assert own.found(job).state == JobState.SETTLING and own.found(idle).state == JobState.FUNDED
        with notaries._run(own.found(job)):
            pass
        while list(notaries._open_runs) and time.monotonic() < until:  # it is settled elsewhere: its folder is let go
            time.sleep(0.01)
        assert not list(notaries._open_runs)
        now[0] += 4000.0
        while own.found(idle).state == JobState.FUNDED and time.monotonic() < until:
            time.sleep(0.01)
    finally:
        notaries.close()
    assert settle(own.market.database, own.market.settings, job) == JobState.FAILED
    assert "was not heard of" in own.found(job).reason and own.found(job).paid == 0
    assert settle(own.market.database, own.market.settings, idle) == JobState.REFUNDED
    assert "never opened" in own.found(idle).reason and own.found(idle).refunded == own.found(idle).escrow


def test_a_run_that_the_hub_has_lost_is_neither_ended_nor_begun_anew(own: OwnMarket, tmp_path: Path) -> None:
    """As where the volume with the hub's folder goes away: the consumer waits, and nothing is refunded."""
    buyer, job = own.market["buyer"], own.job(name="Lost")
    with own.playing(job, tmp_path / "own") as playing, pytest.raises(EnoughError):
        stop_before_asking(playing)
    entries = list(playing.folder.entries())
    own.notaries.close()
    folder = own.market.settings.job_folder(job)
    shutil.move(folder, tmp_path / "kept")
    notaries = Notaries(replace(own.market.settings, own_lease=0.0), own.market.database)
    try:
        assert job not in notaries.close_due()
        with pytest.raises(ConflictError, match="cannot read this run at present"):
            notaries.take(buyer, job, entries)
        with pytest.raises(ConflictError, match="cannot read this run at present"):
            notaries.standing(buyer, job)
        assert own.found(job).state == JobState.RUNNING and not folder.exists()
        with own.market.database.begin() as session:
            jobs.stop(session, buyer, own.market.settings, job)
        assert job in notaries.close_due()
        with pytest.raises(UnsoundError, match="run is missing, though the job was running"):
            settle(own.market.database, own.market.settings, job)
        assert own.found(job).state == JobState.SETTLING and own.found(job).refunded is None
    finally:
        notaries.close()
    shutil.move(tmp_path / "kept", folder)
    assert settle(own.market.database, own.market.settings, job) == JobState.REFUNDED


class _Telling:
    """In the place of a process: a site that keeps count of its privacy."""

    @contextmanager
    def turn(self, job_id: str, consumer: str, about: object) -> Iterator[_Telling]:
        yield self

    def ask(self, names: list[str], *_: object) -> Answers:
        return Answers("update", {names[0]: b"a reply"}, {}, {names[0]: None}, {names[0]: (0.5, 1e-5)})


def test_what_a_site_says_of_its_privacy_is_noted_and_a_database_that_is_away_ends_nothing(
    own: OwnMarket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job = own.job(name="Private")
    with own.playing(job, tmp_path) as playing, pytest.raises(EnoughError):
        stop_before_asking(playing)
    name = next(entry.provider or "" for entry in playing.folder.entries() if entry.kind == "reserve")
    monkeypatch.setattr(own.notaries, "_answerers", _Telling())
    own.notaries.ask(own.market["buyer"], job, [name], b"a question", 1.0)
    assert own.hub_folder(job).privacy() == {name: (0.5, 1e-5)}
    with own.market.database.begin() as session:
        jobs.stop(session, own.market["buyer"], own.market.settings, job)
    monkeypatch.undo()
    assert job in own.notaries.close_due() and own.found(job).state == JobState.SETTLING
    monkeypatch.setattr("databazaar.service.notary.commands.EVERY", 0.01)
    lost = Notaries(own.market.settings, Database(f"sqlite:///{tmp_path}/no/where.sqlite"))
    lost.start()
    while "the database does not answer" not in caplog.text:
        time.sleep(0.01)
    lost.close()
