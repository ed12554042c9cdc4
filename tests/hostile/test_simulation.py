"""Whole markets over a simulated network, some hundred seeds of the 10,000 that `make simulate` plays; and that what
is broken is found."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import simulated_market
from databazaar.federation import engine
from databazaar.federation.messages import Request, VerifiedReply, decode_reply
from databazaar.federation.transport import MessageError
from databazaar.ledger import Entry, MemoryStore, Snapshot
from simulated_market import CrashingStore, simulate
from simulated_network import WAYS

SEEDS = 200


@pytest.mark.slow
def test_the_money_holds_whatever_the_network_and_its_parties_do() -> None:
    outcomes = [simulate(seed) for seed in range(SEEDS)]
    assert sum(outcome.crashes for outcome in outcomes) > SEEDS
    assert sum(outcome.spent > 0 for outcome in outcomes) > SEEDS / 2
    assert len({outcome.head for outcome in outcomes}) == SEEDS


def test_a_seed_repeats_exactly() -> None:
    assert [simulate(seed) for seed in range(20, 26)] == [simulate(seed) for seed in range(20, 26)]


def first_failure() -> BaseException:
    for seed in range(100):
        try:
            simulate(seed)
        except Exception as reason:
            assert f"python scripts/simulate.py --seed {seed}" in reason.__notes__[0]
            return reason
    pytest.fail("a market that is broken was not found")


def test_a_market_that_pays_for_answers_to_other_rounds_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgiving(data: bytes, asked: Request, provider: str, params: object, *_: object) -> VerifiedReply:
        for round in (asked.round, asked.round + 1, *range(asked.round)):
            try:
                return decode_reply(data, asked.model_copy(update={"round": round}), provider, params)  # type: ignore[arg-type]
            except MessageError as fault:
                last = fault
        raise last

    monkeypatch.setattr(engine, "decode_reply", forgiving)
    assert "never gave a valid reply" in str(first_failure())


def test_a_quarantine_that_remembers_what_the_ledger_does_not_say_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "is_honest", lambda reason: False)
    assert "by the ledger alone" in str(first_failure())


def test_a_store_that_keeps_half_a_step_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def append(self: CrashingStore, entries: Sequence[Entry], snapshot: Snapshot | None) -> None:
        for entry in entries:
            MemoryStore.append(self, [entry], None)
            self.maybe_crash(0.1)
        MemoryStore.append(self, [], snapshot)

    monkeypatch.setattr(CrashingStore, "append", append)
    first_failure()


def test_a_run_that_pays_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def append(self: CrashingStore, entries: Sequence[Entry], snapshot: Snapshot | None) -> None:
        MemoryStore.append(self, [*entries, *(entry for entry in entries if entry.kind == "post")], snapshot)
        simulated_market.check_money(list(self.entries()))

    monkeypatch.setattr(CrashingStore, "append", append)
    assert "settled before" in str(first_failure())


def test_every_way_to_misbehave_is_played() -> None:
    """Else the seeds would show less than they say."""
    played = {
        way
        for seed in range(60)
        for party in simulated_market.Simulation(seed).network.parties.values()
        for way in party.ways
    }
    assert played == set(WAYS)
