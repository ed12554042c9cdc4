"""A consumer plays its job itself, over HTTP: the hub keeps the ledger, passes questions on, and pays."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from cli_markets import bazaar

from databazaar import BazaarError
from databazaar.cli.own_arbiter import playing_own
from databazaar.client.own_arbiter import HubEngine, HubTransport, Notary
from databazaar.client.sending import HubError
from databazaar.config.playing import Playing
from databazaar.engines import Ask, Replies
from databazaar.federation.messages import encode_request
from databazaar.federation.work import width
from databazaar.ledger import Entry
from databazaar.reports.written import write_report
from databazaar.runs.folder import RunFolder
from databazaar.service import jobs, members
from databazaar.service.database.connection import Database
from databazaar.service.errors import ConflictError, TooManyError
from databazaar.service.hub import runner
from databazaar.service.hub.settling import settle
from databazaar.service.notary.answerers import Answerers, Answers
from databazaar.service.notary.deeds import Notaries
from databazaar.service.settings import Settings
from databazaar.service.states import JobState
from own_arbiters import HOLDOUT, OwnMarket, own_market, play_until, serve, started

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_figures_here")]


@pytest.fixture(scope="module")
def own(make_url: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnMarket]:
    database = Database(make_url("sqlite"))
    settings = Settings(home=tmp_path_factory.mktemp("hub"), cash="test", runners=1)
    with own_market(database, settings) as own:
        yield own
    database.dispose()


NOWHERE = Path("nowhere")


def hosted(own: OwnMarket, **market: Any) -> RunFolder:
    """The same job as the hub runs it, one provider after the other: stacks differ in the last bits."""
    job_id, settings = own.job("hosted", **market), own.market.settings
    with own.market.database.begin() as session:
        path = jobs.write_market(session, settings, jobs.locked_job(session, job_id))
    path.write_text(path.read_text() + '\n[engine]\nkind = "loop"\n')
    runner.play(settings.job_folder(job_id), settings.run_folder(job_id), job_id)
    return RunFolder(settings.run_folder(job_id))


@pytest.fixture(scope="module")
def undisturbed(own: OwnMarket, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, RunFolder]:
    """A job that was played to its end; and its folder at the consumer's."""
    job = own.job()
    with own.playing(job, tmp_path_factory.mktemp("mine")) as playing:
        playing.settle()
    return job, playing.folder


def test_it_buys_what_the_hub_would_have_bought_and_is_settled_like_any_other(
    own: OwnMarket, undisturbed: tuple[str, RunFolder]
) -> None:
    job, folder = undisturbed
    mine, theirs, there = folder.report(), own.hub_folder(job), hosted(own).report()
    audit = theirs.audit(mine.ledger_head)
    assert audit.ok and audit.closed, audit.message
    assert mine.model_hash == there.model_hash and list(mine.rounds) == list(there.rounds)
    assert mine.payouts == there.payouts and mine.payouts == theirs.report().payouts
    assert own.found(job).state == JobState.SETTLING
    assert settle(own.market.database, own.market.settings, job) == JobState.SETTLED
    found = own.found(job)
    assert (found.paid, found.run_head, found.model_hash) == (mine.spent, mine.ledger_head, mine.model_hash)
    assert write_report(theirs).exists()
    there_files = [path.name for path in own.market.settings.job_folder(job).rglob("*") if path.is_file()]
    assert not any("holdout" in name or "safetensors" in name for name in there_files)


@pytest.fixture(scope="module")
def begun(own: OwnMarket, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, HubEngine, list[Entry]]]:
    """A job whose first round is reserved at the hub and not asked yet; its engine, and its entries."""
    job = own.job(name="Begun", budget="4.00")
    with own.playing(job, tmp_path_factory.mktemp("mine")) as playing:
        with pytest.raises(_EnoughError):
            _stop_before_asking(playing)
        assert isinstance(playing.arbiter.engine, HubEngine)
        yield job, playing.arbiter.engine, list(playing.folder.entries())


class _EnoughError(Exception):
    pass


def _stop_before_asking(playing: Playing) -> None:
    engine = playing.arbiter.engine

    def enough(ask: Ask) -> Replies:
        raise _EnoughError

    engine.query = enough  # type: ignore[method-assign]
    try:
        playing.settle()
    finally:
        del engine.query


def asked(own: OwnMarket, job: str, engine: HubEngine, names: list[str], **other: Any) -> Any:
    """A question to the hub that differs from the right one in these fields."""
    update = other.pop("update", True)
    right = engine._request(0, 3, "update" if update else "describe").model_copy(update=other)
    with own.notary(job, attempts=1) as notary:
        params = torch.full((engine_width(engine),), other.pop("fill", 0.0))
        return notary.ask(names, encode_request(right, params if update else None), 30.0)


def engine_width(engine: HubEngine) -> int:
    model = engine._task.model
    assert model is not None
    return width(model)


def test_nothing_to_tell_is_not_told(own: OwnMarket, begun: tuple[str, HubEngine, list[Entry]]) -> None:
    job, engine, entries = begun
    engine.witness([])
    with own.notary(job, attempts=1) as notary:
        assert int(notary.standing()["entries"]) == len(entries)


def test_questions_that_were_not_agreed_are_refused(own: OwnMarket, begun: tuple[str, HubEngine, list[Entry]]) -> None:
    job, engine, entries = begun
    drawn = [entry.provider or "" for entry in entries if entry.kind == "reserve"]
    task, names = engine._task, list(dict.fromkeys(drawn))
    assert task.model is not None and task.table is not None
    others: dict[str, dict[str, Any]] = {
        "another run": {"run": "0" * 32},
        "another run, consumer": {"consumer": "rival"},
        "or contract": {"contract": "0" * 32},
        "round 0 is under way": {"round": 1},
        "with the seed of the job": {"seed": 4},
        "other work": {"task": task.model_copy(update={"oracle": task.oracle.model_copy(update={"epochs": 50})})},
        "another model": {"task": task.model_copy(update={"model": None})},
        "another target": {
            "task": task.model_copy(update={"table": task.table.model_copy(update={"target": "weight"})})
        },
    }
    for why, other in others.items():
        with pytest.raises(HubError, match=why) as refused:
            asked(own, job, engine, names, **other)
        assert refused.value.status == 422
    with pytest.raises(HubError, match="is no provider of this job"):
        asked(own, job, engine, ["west-sales"])
    with own.notary(job, attempts=1) as notary, pytest.raises(HubError, match="the question cannot be read"):
        notary.ask(names, b"DBZ1 and nothing else", 30.0)
    idle = sorted({"north-sales", "south-sales"} - set(names))
    for name in idle:
        with pytest.raises(HubError, match="is not drawn in round 0"):
            asked(own, job, engine, [name])
    assert asked(own, job, engine, ["north-sales", "south-sales"], update=False)[1] == {}


def test_a_question_again_gets_the_same_answers_and_another_none(
    own: OwnMarket, begun: tuple[str, HubEngine, list[Entry]]
) -> None:
    job, engine, entries = begun
    names = list(dict.fromkeys(entry.provider or "" for entry in entries if entry.kind == "reserve"))
    first = asked(own, job, engine, names)
    assert set(first[0]) == set(names) and asked(own, job, engine, names) == first
    with pytest.raises(HubError, match="one question is all that a round buys"):
        asked(own, job, engine, names, fill=0.5)
    with own.notary(job, attempts=1) as notary:
        assert notary.connected() == ["north-sales", "south-sales"]
        assert notary.standing()["entries"] == len(entries)


def test_a_run_goes_on_from_its_own_folder_alone(
    own: OwnMarket, begun: tuple[str, HubEngine, list[Entry]], tmp_path: Path
) -> None:
    with pytest.raises(BazaarError, match="the hub has other entries"), own.playing(begun[0], tmp_path) as playing:
        playing.settle()
    with pytest.raises(BazaarError, match="another run than job"), own.playing(own.job(), tmp_path):
        pass
    with (
        own.notary(begun[0]) as notary,
        pytest.raises(BazaarError, match="--holdout"),
        playing_own(notary, NOWHERE, {}),
    ):
        pass


def test_the_opening_says_what_the_job_says(own: OwnMarket, begun: tuple[str, HubEngine, list[Entry]]) -> None:
    """Nobody chooses a seed, a price or a rule after the fact."""
    _, _, entries = begun
    job, opening = own.job(name="Begun", budget="4.00"), entries[0]
    changes: dict[str, Any] = {
        "seed": 4,
        "budget": 399,
        "per_round": 1,
        "providers": [["north-sales", "north", 4], ["south-sales", "south", 4]],
        "rules": {**opening.body["rules"], "sampler": {"kind": "uniform"}},
        "bounded_utility": False,
        "consumer": "Somebody else",
        "market": "Another",
        "most_per_round": 5,
        "format": 3,
    }
    with own.notary(job, attempts=1) as notary:
        for name, value in changes.items():
            forged = opening._replace(body={**opening.body, name: value}).sealed("0" * 64)
            with pytest.raises(HubError, match=f"another {name}|does not follow|has another") as refused:
                notary.report([forged])
            assert refused.value.status == 422
        odd = opening._replace(body={**opening.body, "rules": {**opening.body["rules"], "more": "x"}}).sealed("0" * 64)
        for wrong in (odd, opening._replace(kind="close").sealed("0" * 64), opening._replace(draw=1).sealed("0" * 64)):
            with pytest.raises(HubError):
                notary.report([wrong])
        assert notary.standing()["entries"] == 0
        notary.report([opening])
        assert own.found(job).state == JobState.RUNNING


def test_only_the_jobs_own_consumer_plays_it(own: OwnMarket, begun: tuple[str, HubEngine, list[Entry]]) -> None:
    job = begun[0]
    with own.market.database.begin() as session:
        secrets = {
            slug: members.issue_token(session, own.market[slug], label="x", scopes=["read", right], days=1)[1]
            for slug, right in {"rival": "jobs", "north": "offers", "hub": "operate"}.items()
        }
    for secret in secrets.values():
        with Notary(own.address, secret, job, attempts=1) as notary:
            for call in (notary.market, notary.standing, notary.connected, lambda n=notary: n.report(begun[2])):
                with pytest.raises(HubError) as refused:
                    call()
                assert refused.value.status == 404
    with own.notary(own.job("hosted"), attempts=1) as notary, pytest.raises(HubError, match="the hub runs this job"):
        notary.market()


def test_who_stops_pays_for_what_was_passed_on(own: OwnMarket, tmp_path: Path) -> None:
    """One answer is passed on and its round never reported: the consumer stops, and the hub settles it."""
    job = own.job(name="Stopped")
    with own.playing(job, tmp_path) as playing, pytest.raises(_EnoughError):
        _stop_before_asking(playing)
    engine = playing.arbiter.engine
    assert isinstance(engine, HubEngine)
    names = [entry.provider or "" for entry in playing.folder.entries() if entry.kind == "reserve"]
    asked(own, job, engine, names[:1])
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
        assert notary.standing()["closed"] and notary.standing()["head"] == own.found(job).run_head


def test_nothing_is_passed_on_unpaid_while_a_job_is_stopped(
    own: OwnMarket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that were let in just before the stop: an answer that is passed on is paid, and then there is none."""
    buyer, notaries, late = own.market["buyer"], own.notaries, own.job(name="Opened late")
    job = own.job(name="Stopped at once")
    let_in = {name: own.found(name) for name in (job, late)}
    with own.playing(job, tmp_path) as playing, pytest.raises(_EnoughError):
        _stop_before_asking(playing)
    entries, engine = list(playing.folder.entries()), playing.arbiter.engine
    assert isinstance(engine, HubEngine)
    names = [entry.provider or "" for entry in entries if entry.kind == "reserve"]
    with own.market.database.begin() as session:
        for name in (job, late):
            jobs.locked_job(session, name).state = "funded"  # whoever opened it has not said so yet
        for name in (job, late):
            jobs.stop(session, buyer, own.market.settings, name)
    monkeypatch.setattr(notaries, "_going", lambda _, name: let_in[name])
    asked(own, job, engine, names[:1])
    assert {job, late} <= set(notaries.close_due())
    assert own.found(job).state == own.found(late).state == JobState.SETTLING
    with pytest.raises(HubError, match="the hub has settled it"):
        asked(own, job, engine, names)
    with pytest.raises(ConflictError, match="the hub has settled it"):
        notaries.take(buyer, late, entries)
    assert settle(own.market.database, own.market.settings, job) == JobState.SETTLED and own.found(job).paid
    assert settle(own.market.database, own.market.settings, late) == JobState.REFUNDED


def test_a_silent_arbiter_is_closed_and_one_that_is_heard_is_not(
    own: OwnMarket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, idle = own.job(name="Silent"), own.job(name="Never opened")
    with own.playing(job, tmp_path) as playing, pytest.raises(_EnoughError):
        _stop_before_asking(playing)
    settings = replace(own.market.settings, own_lease=1000.0, own_begin=5000.0)
    own.notaries.close()
    now = [time.time()]
    notaries = Notaries(settings, own.market.database, clock=lambda: now[0])
    monkeypatch.setattr("databazaar.service.notary.deeds.EVERY", 0.01)
    try:
        assert job not in notaries.close_due() and own.found(job).state == JobState.RUNNING
        assert notaries.standing(own.market["buyer"], job).entries
        assert list(notaries._held) == [job]
        now[0] += 2000.0
        notaries.start()
        until = time.monotonic() + 60
        while own.found(job).state == JobState.RUNNING and time.monotonic() < until:
            time.sleep(0.01)
        assert own.found(job).state == JobState.SETTLING and own.found(idle).state == JobState.FUNDED
        with notaries._run(own.found(job)):
            pass
        while list(notaries._held) and time.monotonic() < until:  # it is settled elsewhere: its folder is let go
            time.sleep(0.01)
        assert not list(notaries._held)
        now[0] += 4000.0
        while own.found(idle).state == JobState.FUNDED and time.monotonic() < until:
            time.sleep(0.01)
    finally:
        notaries.close()
    assert settle(own.market.database, own.market.settings, job) == JobState.FAILED
    assert "was not heard of" in own.found(job).reason and own.found(job).paid == 0
    assert settle(own.market.database, own.market.settings, idle) == JobState.REFUNDED
    assert "never opened" in own.found(idle).reason and own.found(idle).refunded == own.found(idle).escrow


class _Telling:
    """In the place of a process: a site that keeps count of its privacy."""

    @contextmanager
    def of(self, job_id: str, consumer: str, about: object) -> Iterator[_Telling]:
        yield self

    def ask(self, names: list[str], *_: object) -> Answers:
        return Answers("update", {names[0]: b"a reply"}, {}, {names[0]: ""}, {names[0]: (0.5, 1e-5)})


def test_what_a_site_says_of_its_privacy_is_noted_and_a_database_that_is_away_ends_nothing(
    own: OwnMarket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job = own.job(name="Private")
    with own.playing(job, tmp_path) as playing, pytest.raises(_EnoughError):
        _stop_before_asking(playing)
    name = next(entry.provider or "" for entry in playing.folder.entries() if entry.kind == "reserve")
    monkeypatch.setattr(own.notaries, "_answerers", _Telling())
    own.notaries.ask(own.market["buyer"], job, [name], b"a question", 1.0)
    assert own.hub_folder(job).privacy() == {name: (0.5, 1e-5)}
    with own.market.database.begin() as session:
        jobs.stop(session, own.market["buyer"], own.market.settings, job)
    monkeypatch.undo()
    assert job in own.notaries.close_due() and own.found(job).state == JobState.SETTLING
    lost = Notaries(own.market.settings, Database(f"sqlite:///{tmp_path}/no/where.sqlite"))
    monkeypatch.setattr("databazaar.service.notary.deeds.EVERY", 0.01)
    lost.start()
    while "could not be looked at" not in caplog.text:
        time.sleep(0.01)
    lost.close()


class _Odd(Notary):
    """A hub that answers something else."""

    def _answer(self, method: str, path: str, **given: Any) -> Any:
        return SimpleNamespace(content=b"hello", json=lambda: {"connected": ["north"]})


def test_a_hub_that_answers_something_else_is_not_believed() -> None:
    with _Odd("http://127.0.0.1:9", "x" * 20, "0" * 32) as odd:
        with pytest.raises(HubError, match="cannot be read"):
            odd.ask(["north"], b"", 1.0)
        assert HubTransport(odd).wait_for(["north"], 0.0) == []
        assert HubTransport(odd).wait_for(["north", "south"], 0.0) == ["south"]
        assert HubTransport(odd).request([], b"", 1.0) == ({}, {})


def test_the_command_plays_a_job_and_shows_it_again(
    own: OwnMarket, undisturbed: tuple[str, RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = own.job()
    monkeypatch.setenv("BAZAAR_HUB", own.address)
    monkeypatch.setenv("BAZAAR_TOKEN", own.token)
    (tmp_path / "holdout.csv").write_bytes(HOLDOUT)
    told = bazaar("jobs", "run", job, "--holdout", "holdout.csv", "--json", cwd=tmp_path)
    assert told.code == 0, told
    assert json.loads(told.out)["ledger_head"] == undisturbed[1].report().ledger_head
    assert bazaar("jobs", "run", job, "--quiet", cwd=tmp_path).out.strip().endswith("report.html")
    assert bazaar("audit", f"runs/{job}", cwd=tmp_path).code == 0


def test_a_run_that_has_begun_keeps_its_files(own: OwnMarket, undisturbed: tuple[str, RunFolder]) -> None:
    job, folder = undisturbed
    other = folder.path.parent / "other.csv"
    other.write_bytes(HOLDOUT)
    for role, said in {
        "holdout": "has begun with .*holdout.csv: leave --holdout out",
        "audit": "without such a",
    }.items():
        with (
            own.notary(job) as notary,
            pytest.raises(BazaarError, match=said),
            playing_own(notary, folder.path, {role: other}),
        ):
            pass
    with own.playing(job, folder.path.parent) as again:  # the same file once more is no other
        assert again.folder.finished


def test_so_many_jobs_are_answered_at_once_and_one_that_is_idle_makes_room(own: OwnMarket) -> None:
    first, second = own.found(own.job()), own.found(own.job())
    answerers = Answerers(1, 2**20, patience=0.1)
    try:
        with answerers.of(first.id, "a", lambda: own.notaries._about(first)) as one:
            with (
                pytest.raises(TooManyError, match="ask again in a second"),
                answerers.of(second.id, "b", lambda: own.notaries._about(second)),
            ):
                pass
            assert one.connected() == ["north-sales", "south-sales"]
        with answerers.of(first.id, "a", dict) as again:
            assert again is one
        with answerers.of(second.id, "b", lambda: own.notaries._about(second)) as two:
            assert not one.alive
            two._process.kill()
            with pytest.raises(ConflictError, match="another one does"):
                two.connected()
        answerers.drop(first.id)
        with answerers.of(second.id, "b", lambda: own.notaries._about(second)) as three:
            assert three is not two and three.alive
        answerers.drop(second.id)
        assert not three.alive
    finally:
        answerers.close()


def test_killed_arbiters_and_killed_hubs_end_in_the_same_ledger(
    own: OwnMarket, undisturbed: tuple[str, RunFolder], tmp_path: Path
) -> None:
    """`kill -9` of the consumer's process in one round, and of the hub's in another."""
    job, expected = own.job(), undisturbed[1].audit()
    (tmp_path / "holdout.csv").write_bytes(HOLDOUT)
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    hub = started(serve, own.market.settings, own.market.database.engine.url.render_as_string(), port)
    arbiter = started(play_until, port, own.token, job, tmp_path, 2, 0)
    arbiter.join(120)
    assert arbiter.exitcode == -signal.SIGKILL and not RunFolder(tmp_path / "run").finished
    arbiter = started(play_until, port, own.token, job, tmp_path, 4, hub.pid)
    hub.join(120)
    assert hub.exitcode == -signal.SIGKILL and arbiter.is_alive()
    hub = started(serve, own.market.settings, own.market.database.engine.url.render_as_string(), port)
    try:
        arbiter.join(120)
        assert arbiter.exitcode == 0
    finally:
        hub.kill()
        hub.join()
    mine, theirs = RunFolder(tmp_path / "run").audit(), own.hub_folder(job).audit()
    assert mine.ok and theirs.ok and mine.head == theirs.head == expected.head
    assert mine.delivered == expected.delivered and own.found(job).state == JobState.SETTLING
