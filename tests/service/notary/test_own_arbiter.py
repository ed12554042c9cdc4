"""A consumer plays its job itself, over HTTP: the hub keeps the ledger, passes questions on, and pays."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from cli_markets import bazaar

from databazaar import BazaarError
from databazaar.cli.own_arbiter import playing_own
from databazaar.reports.run_page import write_report
from databazaar.runs.folder import RunFolder
from databazaar.service.errors import ConflictError, TooManyError
from databazaar.service.hub import runner
from databazaar.service.hub.folder import write_market
from databazaar.service.hub.settlement import settle
from databazaar.service.lifecycle import JobState, locked_job
from databazaar.service.notary.answerers import Answerers
from own_arbiters import (
    HOLDOUT,
    OwnMarket,
    play_until,
    serve,
    started,
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_figures_here"), pytest.mark.process]


def hosted(own: OwnMarket, **market: Any) -> RunFolder:
    """The same job as the hub runs it, one provider after the other: stacks differ in the last bits."""
    job_id, settings = own.job("hosted", **market), own.market.settings
    with own.market.database.begin() as session:
        path = write_market(session, settings, locked_job(session, job_id))
    path.write_text(path.read_text() + '\n[engine]\nkind = "loop"\n')
    runner.play(settings.job_folder(job_id), settings.run_folder(job_id), job_id, settings.most_visits)
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
    answerers = Answerers(1, patience=0.1)
    try:
        with answerers.turn(first.id, "a", lambda: own.notaries._about(first)) as one:
            with (
                pytest.raises(TooManyError, match="ask again in a second"),
                answerers.turn(second.id, "b", lambda: own.notaries._about(second)),
            ):
                pass
            assert one.connected() == ["north-sales", "south-sales"]
        with answerers.turn(first.id, "a", dict) as again:
            assert again is one
        with answerers.turn(second.id, "b", lambda: own.notaries._about(second)) as two:
            assert not one.alive
            two._process.kill()
            with pytest.raises(ConflictError, match="another one does"):
                two.connected()
        answerers.drop(first.id)
        with answerers.turn(second.id, "b", lambda: own.notaries._about(second)) as three:
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
