"""A hub's job is composed once and its ledger is replayed twice, from the submission to the settlement."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import pytest

from databazaar.config.market_file import parse_market
from databazaar.errors import LedgerError
from databazaar.ledger import audit_entries
from databazaar.service import jobs, specification, submission
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Job
from databazaar.service.hub import runner, settlement
from databazaar.service.hub.folder import write_market
from databazaar.service.lifecycle import JobState, enter
from databazaar.service.settings import Settings
from desk_market import table
from hub_market import OFFERS, SPECS, HubMarket, hub_market

SHORT = {**SPECS["plain"], "market": {"budget": "0.20", "per_round": 2, "seed": 3}}


@contextmanager
def counted(**functions: Callable[..., Any]) -> Iterator[Counter[str]]:
    """How often each of these is called meanwhile, by any name."""
    names: dict[CodeType, str] = {function.__code__: name for name, function in functions.items()}
    calls: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in names:
            calls[names[frame.f_code]] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def drafted(market: HubMarket) -> str:
    with market.database.begin() as session:
        files = {"holdout": market.desk.upload(session, "buyer", table(99, rows=80))}
        given: dict[str, Any] = {"spec": SHORT, "files": files, "offers": list(OFFERS)}
        return jobs.draft(session, market.desk["buyer"], market.settings, name="plain", **given).id


def test_a_job_is_composed_once_and_its_ledger_replayed_twice(sqlite_database: Database, settings: Settings) -> None:
    """Its market is parsed when it is submitted, quoted and run: once in each process that needs it."""
    market = hub_market(sqlite_database, settings, ())
    buyer, settings = market.desk["buyer"], market.settings
    job_id = market.jobs["plain"] = drafted(market)
    with counted(compose=specification.compose, parse=parse_market, replay=audit_entries) as calls:
        with market.database.begin() as session:
            submission.look(session, buyer, settings, job_id)
            submission.submit(session, buyer, settings, job_id)
            for _ in range(3):
                jobs.quote(session, buyer, settings, job_id)
            jobs.fund(session, buyer, job_id)
            write_market(session, settings, session.get_one(Job, job_id))
        assert calls == {"compose": 1, "parse": 2}
        assert runner.attempt(settings, job_id) == 0
        assert calls == {"compose": 1, "parse": 3, "replay": 1}
        with market.database.begin() as session:
            for state in (JobState.RUNNING, JobState.SETTLING):
                enter(session, session.get_one(Job, job_id), state)
        assert settlement.attempt(settings, job_id) == 0
    assert market.job("plain").state == "settled"
    assert calls == {"compose": 1, "parse": 3, "replay": 2}


def test_what_was_submitted_is_what_the_runner_gets(sqlite_database: Database, settings: Settings) -> None:
    """Whatever offers say later; and one that was altered in the database is refused."""
    market = hub_market(sqlite_database, settings, ())
    job_id = market.add("plain", SHORT)
    kept = market.job("plain")
    with market.database.begin() as session:
        path = write_market(session, market.settings, session.get_one(Job, job_id))
    assert hashlib.sha256(path.read_bytes()).hexdigest() == kept.market_hash
    kept.market = kept.market.replace('budget = "0.20"', 'budget = "0.40"')
    with pytest.raises(LedgerError, match="not the one that was submitted"):
        specification.text_of(kept)
