"""Defended runs that end before their end: resumed from any round, or closed by the consumer, in any database."""

from __future__ import annotations

from pathlib import Path

import pytest

from databazaar import Arbiter, Progress, Report
from databazaar.defence import Defence
from databazaar.ledger import Entry, Ledger, RuleBook, audit_entries
from databazaar.ledger.book import NOT_SETTLED
from databazaar.ledger.rulebook import BY_CONSUMER
from databazaar.ledger.sql import SqlStore
from databazaar.ledger.store import Store
from databazaar.runs.close import close_run
from databazaar.runs.folder import RunFolder
from databazaar.vectors import unpack
from defended_markets import (
    Measured,
    offers_of,
    play,
    play_round,
    random_measures,
    rules_with,
    scripted,
    scripted_rules,
    standing_at,
)
from forging import reseal
from postgres import Server
from small_markets import torch_market

pytestmark = pytest.mark.process


def resumed(rules: RuleBook, measure: Measured, store: Store) -> Ledger:
    """A process that goes on with a run where its store says that it is."""
    ledger, snapshot = Ledger(rules, store), store.snapshot()
    play(rules, measure, ledger, rules.start() if snapshot is None else unpack(snapshot.state)["sampler"])
    return ledger


def killed_after(rules: RuleBook, measure: Measured, store: Store, rounds: int) -> None:
    """So many rounds are played, and the last is lost: it is written with the next one's reservation."""
    ledger, state = Ledger(rules, store), rules.start()
    for _ in range(rounds):
        state = play_round(rules, ledger, state, measure)


@pytest.mark.parametrize("rounds", [1, 4, 5, 8, 12])
def test_a_defended_run_killed_between_two_rounds_comes_to_the_same_head(rounds: int, tmp_path: Path) -> None:
    rules, store = scripted_rules(), SqlStore.file(tmp_path / "ledger.sqlite", "run")
    killed_after(rules, scripted, store, rounds)
    half = audit_entries(store.entries(), store.snapshot())
    assert half.ok and half.rounds == rounds - 1 and not half.closed, half.message
    assert half.book is not None and (half.book.held_back or not half.rounds)
    ledger = resumed(rules, scripted, store)
    whole = play(rules, scripted)
    assert isinstance(whole, Ledger) and ledger.head == whole.head
    assert list(store.entries()) == list(whole.store.entries())
    audit = audit_entries(store.entries(), store.snapshot())
    assert audit.ok and audit.closed, audit.message
    store.dispose()


@pytest.mark.slow
def test_postgres_holds_the_same_defended_ledger(postgres_server: Server) -> None:
    server = postgres_server.url()
    store = SqlStore(server, "defended")
    killed_after(scripted_rules(), scripted, store, 6)
    ledger, whole = resumed(scripted_rules(), scripted, store), play(scripted_rules(), scripted)
    assert isinstance(whole, Ledger) and ledger.head == whole.head
    store.dispose()
    reader = SqlStore(server, "defended", create=False)
    assert list(reader.entries()) == list(whole.store.entries())
    reader.dispose()


class StopError(Exception):
    """Stands in for a kill."""


def arbiter() -> Arbiter:
    consumer, providers = torch_market(flips=(0.0, 0.1, 0.2, 0.3, 0.5, 1.0), budget=120)
    return Arbiter(consumer, providers, defence=Defence(owners=True, alike=0.9, data=0.5, leak=0.01), seed=2)


def stopped(folder: Path, rounds: int) -> None:
    def stop(progress: Progress) -> None:
        if progress.round == rounds:
            raise StopError

    with pytest.raises(StopError):
        arbiter().run(folder, tell=stop)


@pytest.fixture(scope="module")
def unbroken() -> Report:
    return arbiter().run()


@pytest.mark.parametrize("rounds", [3, 20])
def test_a_run_that_watches_its_providers_is_resumed_to_the_same_head(
    rounds: int, unbroken: Report, tmp_path: Path
) -> None:
    """What the watch remembers of answers is in the snapshot: the findings after the stop are those of before."""
    assert len(unbroken.rounds) > 20
    stopped(tmp_path / "run", rounds)
    assert arbiter().run(tmp_path / "run").ledger_head == unbroken.ledger_head
    kinds = {entry.kind for entry in RunFolder(tmp_path / "run").entries()}
    assert "release" in kinds or "return" in kinds


def test_whoever_listens_hears_of_pay_that_was_released() -> None:
    """A provider is paid in a round if its pay has risen, by its access or by a release."""
    told: list[Progress] = []
    arbiter().run(tell=told.append)
    before: dict[str, int] = {}
    for progress in told:
        risen = {name for name, pay in progress.pay.items() if pay > before.get(name, 0)}
        assert set(progress.paid) == risen
        before = dict(progress.pay)


def test_the_consumers_close_settles_what_is_held_back(tmp_path: Path) -> None:
    stopped(tmp_path / "run", 6)
    report = close_run(tmp_path / "run")
    entries = list(RunFolder(tmp_path / "run").entries())
    audit = RunFolder(tmp_path / "run").audit()
    assert audit.ok and audit.closed and audit.book is not None, audit.message
    assert report.spent == audit.book.spent == sum(audit.book.pay.values())
    last = [entry for entry in entries if entry.round is None][1:]
    assert [one.kind for one in last] == ["release"] * (len(last) - 1) + ["close"] and len(last) > 1
    released = sum(one.amount or 0 for one in last)
    assert released == sum(access.held for round in report.rounds for access in round.accesses)
    for forged in (_moved_before_the_voids(entries), _without_releases(entries)):
        assert not audit_entries(reseal(forged)).ok


def _moved_before_the_voids(entries: list[Entry]) -> list[Entry]:
    at = next(i for i, one in enumerate(entries) if one.body == NOT_SETTLED)
    freed = [one for one in entries if one.kind == "release" and one.round is None]
    rest = [one for one in entries[at:] if one not in freed]
    return [*entries[:at], *freed, *rest]


def _without_releases(entries: list[Entry]) -> list[Entry]:
    return [one for one in entries if one.kind != "release" or one.round is not None]


def test_a_run_that_is_open_says_what_is_held_back() -> None:
    rules = rules_with(Defence(data=2.5), offers_of([4, 4], 2), budget=400)
    ledger, state = Ledger(rules), rules.start()
    for _ in range(4):
        state = play_round(rules, ledger, state, random_measures(1, failing=0.0, flags=0.0))
    assert sum(ledger.book.held_back.values()) + ledger.book.spent == ledger.book.asked
    with pytest.raises(Exception, match="is still held back"):
        ledger.close(BY_CONSUMER, standing_at(4, state))
