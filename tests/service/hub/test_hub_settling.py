"""Settling: what a run's ledger says is paid, the rest goes back, once, whatever is repeated."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from databazaar.client.receipts import verify
from databazaar.config.jobs import market_job
from databazaar.runs.folder import RunFolder
from databazaar.runs.lightgbm_file import export_lightgbm
from databazaar.runs.trained import load_run
from databazaar.service import jobs, journal, members
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Contract, Job, Receipt
from databazaar.service.errors import ConflictError, DeniedError
from databazaar.service.hub import runner, settlement
from databazaar.service.hub.folder import write_market
from databazaar.service.hub.settlement import UNSOUND, UnsoundError, outcome_of, refund_unsound, settle
from databazaar.service.lifecycle import JobState, enter
from databazaar.service.receipts import HubKey
from databazaar.service.settings import Settings
from desk_market import table
from hub_market import SPECS, HubMarket, hub_market, wrong_with_books
from played_jobs import play_rounds

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_figures_here"), pytest.mark.process]


@pytest.fixture
def market(database: Database, settings: Settings) -> HubMarket:
    """One funded job, with a fee of 2.5 %."""
    made = hub_market(database, settings, ())
    with database.begin() as session:
        members.set_fee(session, made.desk["hub"], 250)
    made.add("plain")
    return made


def play(market: HubMarket, rounds: int | None, name: str = "plain") -> None:
    """Plays the job's run as a runner does, to its end or until it is broken off, and has it settled."""
    play_rounds(market, name, rounds)
    to_settling(market, name)


def to_settling(market: HubMarket, name: str = "plain", stopped: bool = False) -> None:
    with market.database.begin() as session:
        job = session.get_one(Job, market.jobs[name])
        write_market(session, market.settings, job)
        job.stopped_by = "consumer" if stopped else ""
        enter(session, job, JobState.RUNNING)
        enter(session, job, JobState.SETTLING, "given up after 5 attempts: it was killed")


def balances(market: HubMarket) -> dict[str, int]:
    names = ("cash:buyer", "earned:north", "earned:south", "fees", journal.escrow(market.jobs["plain"]))
    with market.database.read() as session:
        return {name: journal.balance(session, name) for name in names}


def test_a_run_that_ended_is_paid_as_its_ledger_says(market: HubMarket) -> None:
    play(market, None)
    assert settle(market.database, market.settings, market.jobs["plain"]) == JobState.SETTLED
    before = balances(market)
    assert settle(market.database, market.settings, market.jobs["plain"]) == JobState.SETTLED  # nothing happens twice
    assert balances(market) == before and wrong_with_books(market) is None
    job, report = market.job("plain"), RunFolder(market.run("plain")).report()
    assert (job.paid, job.fee) == (report.spent, -(-report.spent * 250 // 10_000)) and report.spent > 0
    assert (job.run_head, job.model_hash, job.reason) == (report.ledger_head, report.model_hash, report.message)
    assert before["fees"] == job.fee and before["cash:buyer"] == 100_000 - report.spent - before["fees"]
    with market.database.read() as session:
        contracts = session.scalars(select(Contract)).all()
        receipts = session.scalars(select(Receipt)).all()
    key = HubKey.of(market.settings).public
    assert {(c.paid, c.accesses) for c in contracts} == {(p.pay, p.accesses) for p in report.payouts}
    bodies = [verify({"body": receipt.body, "signature": receipt.signature}, key) for receipt in receipts]
    assert len(bodies) == 2 and {body["run_head"] for body in bodies} == {report.ledger_head}


@pytest.mark.parametrize("stopped", [False, True])
def test_an_open_run_is_closed_and_its_posts_are_paid(market: HubMarket, stopped: bool) -> None:
    play(market, 3)
    with market.database.begin() as session:
        session.get_one(Job, market.jobs["plain"]).stopped_by = "consumer" if stopped else ""
    assert settlement.attempt(market.settings, market.jobs["plain"]) == 0
    job = market.job("plain")
    assert job.state == ("settled" if stopped else "failed")
    assert 0 < (job.paid or 0) < job.budget and (stopped or job.reason.startswith("given up after 5"))
    assert wrong_with_books(market) is None and RunFolder(market.run("plain")).audit().ok
    assert (market.run("plain") / "report.html").exists()


def test_without_a_round_all_goes_back(market: HubMarket) -> None:
    to_settling(market, stopped=True)
    assert settle(market.database, market.settings, market.jobs["plain"]) == JobState.REFUNDED
    job = market.job("plain")
    assert (job.paid, job.fee, job.refunded) == (0, 0, job.escrow) and "before the first round" in job.reason
    assert wrong_with_books(market) is None and balances(market)["cash:buyer"] == 100_000


def test_a_run_that_never_began_and_was_given_up_has_failed(market: HubMarket) -> None:
    with market.database.begin() as session:
        path = write_market(session, market.settings, session.get_one(Job, market.jobs["plain"]))
    job = market_job(path)
    RunFolder.create(market.run("plain"), {**job.recipe, "id": market.jobs["plain"]})
    to_settling(market)
    assert settlement.attempt(market.settings, market.jobs["plain"]) == 0
    assert market.job("plain").state == "failed" and wrong_with_books(market) is None


def test_every_learner_of_rows_is_played_and_settled(
    sqlite_database: Database, settings: Settings, tmp_path: Path
) -> None:
    """`auto` is what the other tests of jobs on rows are about. Trees can be taken away as LightGBM's."""
    specs: dict[str, dict[str, Any]] = {
        "in-run": {"model": {"kind": "mlp", "hidden": [4]}, "learner": {"kind": "in-run", "rows": 40}},
        "newton": {"model": {"kind": "logistic"}, "learner": {"kind": "newton"}},
        "boosting": {"model": {"kind": "trees", "rising": ["distance"]}},
    }
    market = hub_market(sqlite_database, settings, ())
    for kind, spec in specs.items():
        every = {"market": {"budget": "0.40", "per_round": 2, "seed": 3}, "data": SPECS["plain"]["data"]}
        market.add(kind, {**every, **spec, "defence": {"kind": "standard"}})
        with market.database.begin() as session:
            write_market(session, market.settings, session.get_one(Job, market.jobs[kind]))
        assert runner.attempt(market.settings, market.jobs[kind]) == 0
        to_settling(market, kind)
        assert settle(market.database, market.settings, market.jobs[kind]) == JobState.SETTLED
    assert wrong_with_books(market) is None
    assert export_lightgbm(load_run(market.run("boosting")), tmp_path / "model.txt") is not None


def test_a_runner_counts_a_rounds_work_once_it_knows_the_tables(sqlite_database: Database, settings: Settings) -> None:
    """46 passes over 60 rows of each provider, and over the buyer's own 80, of which 17 are kept for the end."""
    market = hub_market(sqlite_database, settings, ("rows",))
    with market.database.begin() as session:
        write_market(session, market.settings, session.get_one(Job, market.jobs["rows"]))
    allowed = 46 * 63
    assert runner.attempt(replace(market.settings, most_visits=allowed - 1), market.jobs["rows"]) == 2
    why = str(runner.why_failed(market.settings, market.jobs["rows"], 2))
    assert why == "learner: a round makes 2,898 visits of your own 63 rows, and this hub allows 2,897: send fewer rows"
    assert not market.run("rows").exists()
    assert runner.attempt(replace(market.settings, most_visits=allowed), market.jobs["rows"]) == 0
    assert RunFolder(market.run("rows")).finished


def test_a_run_by_another_learner_than_agreed_pays_nobody(market: HubMarket) -> None:
    """Its ledger holds, and its providers have agreed to other accesses."""
    play(market, None)
    with market.database.begin() as session:
        job = session.get_one(Job, market.jobs["plain"])
        job.needs = {**job.needs, "learner": "boosting"}
    with pytest.raises(UnsoundError, match="its learner is not the one that the contracts name"):
        settle(market.database, market.settings, market.jobs["plain"])
    held = market.job("plain")
    assert (held.state, held.reason_code, held.paid) == ("settling", UNSOUND, None)


def test_a_ledger_that_does_not_hold_pays_nobody_until_the_operator_decides(market: HubMarket) -> None:
    play(market, None)
    ledger = market.run("plain") / "ledger.sqlite"
    whole = ledger.read_bytes()
    ledger.write_bytes(whole.replace(b'"utility"', b'"utilitx"', 1))
    job_id, operator = market.jobs["plain"], market.desk["hub"]
    for _ in range(2):
        assert settlement.attempt(market.settings, job_id) == UnsoundError.exit_code
    job = market.job("plain")
    assert job.state == "settling" and job.reason_code == UNSOUND
    assert balances(market)[journal.escrow(job_id)] == job.escrow
    with market.database.read() as session:
        told = jobs.events_of(session, market.caller("plain"), job_id)
    assert sum(event.code == UNSOUND for event in told) == 1
    with market.database.begin() as session, pytest.raises(DeniedError):
        refund_unsound(session, market.desk["buyer"], job_id)
    ledger.write_bytes(whole)  # the operator has found the copy
    assert settlement.attempt(market.settings, job_id) == 0
    assert market.job("plain").state == "settled" and wrong_with_books(market) is None
    with market.database.begin() as session, pytest.raises(ConflictError, match="others settle themselves"):
        refund_unsound(session, operator, job_id)


def test_the_operator_refunds_a_ledger_that_is_lost(market: HubMarket) -> None:
    play(market, 2)
    shutil.copyfile(market.run("plain") / "run.json", market.run("plain") / "ledger.sqlite")
    with pytest.raises(UnsoundError, match="ledger"):
        settle(market.database, market.settings, market.jobs["plain"])
    with market.database.begin() as session:
        refunded = refund_unsound(session, market.desk["hub"], market.jobs["plain"])
        assert (refunded.state, refunded.refunded) == ("refunded", refunded.escrow)
    assert wrong_with_books(market) is None and balances(market)["cash:buyer"] == 100_000


def test_the_ledger_of_another_job_pays_nobody(market: HubMarket) -> None:
    market.add("rows", buyer="buyer")
    play(market, 2, "rows")
    to_settling(market)
    shutil.copytree(market.run("rows"), market.run("plain"))
    with pytest.raises(UnsoundError, match="run is not the run of this job but another's"):
        settle(market.database, market.settings, market.jobs["plain"])


def test_a_ledger_over_another_budget_pays_nobody(market: HubMarket) -> None:
    play(market, 2)
    with market.database.begin() as session:
        session.get_one(Job, market.jobs["plain"]).budget += 1
    with pytest.raises(UnsoundError, match="its budget or its providers are not those of the job"):
        settle(market.database, market.settings, market.jobs["plain"])


def test_a_run_of_the_consumers_own_arbiter_needs_no_model(market: HubMarket) -> None:
    play(market, None)
    run = market.run("plain")
    for name in ("summary.json", "worth.json"):
        (run / name).unlink(missing_ok=True)
    shutil.rmtree(run / "model")
    found = outcome_of(RunFolder(run), own=True)
    assert found.audit is not None and found.audit.closed and found.by_itself and sum(found.pay.values()) > 0


def test_a_report_shows_nothing_of_providers_tables(
    sqlite_database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a hold-out without ships the profile names them, and says how many of its rows a provider has."""
    market = hub_market(sqlite_database, settings, ())
    short = {**SPECS["plain"], "market": {"budget": "0.20", "per_round": 2, "seed": 3}}
    job_id = market.add("plain", short, content=table(0, rows=80).replace(b"ship", b"van"))
    with market.database.begin() as session:
        write_market(session, market.settings, session.get_one(Job, job_id))
    page_when_played: list[bool] = []
    page = market.run("plain") / "report.html"
    monkeypatch.setattr(runner, "_go_behind", lambda: page_when_played.append(page.exists()))
    assert runner.attempt(market.settings, job_id) == 0
    assert page_when_played == [False], "it gives way to others before it judges and draws"
    by_runner = page.read_text()
    page.unlink()
    to_settling(market)
    assert settlement.attempt(market.settings, job_id) == 0
    assert "ship" in (market.run("plain") / "profile.json").read_text()
    for shown in (by_runner, page.read_text()):
        assert "north-sales" in shown and "ship" not in shown and "hold-out rows are in this table" not in shown
