"""A provider that keeps failing in a local run is set aside as in a federation, and a resumed run knows it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from databazaar import OSMD, Arbiter, Consumer, Progress, Provider, Report, Uniform
from databazaar.codes import QUARANTINED, Code
from databazaar.engines import LoopEngine
from databazaar.ledger import Drawn
from databazaar.market.methods import MarketMethod
from own_samplers import Valued
from small_markets import vector_market

STOPPED = "stopped by the test"


class Calls:
    """A provider that fails in some rounds of its own, and counts how often it was asked."""

    def __init__(self, fails: range) -> None:
        self.fails = fails
        self.count = 0

    def __call__(self, w: np.ndarray) -> np.ndarray:
        self.count += 1
        if self.count - 1 in self.fails:
            raise ValueError("not today")
        update: np.ndarray = np.ones(3) - w
        return update


def market(fails: range, rounds: int = 100) -> tuple[Consumer, list[Provider], Calls]:
    calls = Calls(fails)
    consumer, providers = vector_market(budget=2 * rounds, per_round=2, offsets=(0.0, 0.1), oracles={1: calls})
    return consumer, providers, calls


def reasons_of(report: Report) -> list[Code | None]:
    """Round by round, why p1 gave no update."""
    return [access.failure for one in report.rounds for access in one.accesses if access.provider == 1]


def everybody(consumer: Consumer, providers: list[Provider]) -> Arbiter:
    return Arbiter(consumer, providers, Uniform(replacement=False), engine="loop")


def test_who_always_fails_is_asked_ever_more_seldom_and_its_failures_have_one_name() -> None:
    consumer, providers, calls = market(range(1000))
    report = everybody(consumer, providers).run()
    reasons = Counter(reasons_of(report))
    # three failures, then probes after pauses of 1, 2, 4, … rounds: in rounds 3, 5, 9, 17, 33 and 65
    assert calls.count == 9
    assert reasons == {Code.of("oracle-raised", type="ValueError", text="not today"): 9, QUARANTINED: 91}
    assert {payout.provider: payout.pay for payout in report.payouts} == {"p0": 100, "p1": 0}


def test_who_is_well_again_is_asked_and_paid_again() -> None:
    consumer, providers, calls = market(range(4))
    report = everybody(consumer, providers).run()
    failed = [reason is not None for reason in reasons_of(report)]
    assert failed[:5] == [True] * 5 and not any(failed[5:])  # set aside in round 4, and well in the probe of round 5
    assert calls.count == 99


def test_a_resumed_run_sets_aside_whom_an_unbroken_one_does(tmp_path: Path) -> None:
    unbroken = everybody(*market(range(1000), 30)[:2]).run()
    for stop in (1, 3, 4, 5, 11):
        consumer, providers, _ = market(range(1000), 30)

        def tell(progress: Progress, last: int = stop) -> None:
            if progress.round == last:
                raise KeyboardInterrupt(STOPPED)

        folder = tmp_path / str(stop)
        with pytest.raises(KeyboardInterrupt, match=STOPPED):
            everybody(consumer, providers).run(folder, tell=tell)
        resumed = everybody(consumer, providers).run(folder)
        assert resumed.ledger_head == unbroken.ledger_head


def test_an_update_that_only_the_market_voids_sets_nobody_aside(tmp_path: Path) -> None:
    """Nothing is wrong with such a reply but where it leads, and a resumed run reads that from the ledger."""

    def utility(w: np.ndarray) -> float:
        return float("nan") if w.max() > 50 else float(np.exp(-np.sum(w**2)))

    def consumer_and_providers() -> tuple[Consumer, list[Provider]]:
        return vector_market(
            budget=40, per_round=2, offsets=(0.0, 0.0), oracles={1: lambda w: 1000 + 0 * w}, utility=utility
        )

    report = everybody(*consumer_and_providers()).run()
    assert set(reasons_of(report)) == {Code("no-utility")}
    kept = everybody(*consumer_and_providers()).run(tmp_path / "kept")
    assert kept.ledger_head == report.ledger_head


def test_every_run_has_its_own_quarantine() -> None:
    """Two runs share an engine; each sets aside by its own ledger."""
    consumer, providers, calls = market(range(1000), 20)
    engine = LoopEngine(consumer.task, providers, torch.device("cpu"))
    for seed in (1, 2):
        MarketMethod(sampler=Uniform(replacement=False), seed=seed, engine=engine).run(consumer, providers)
    alone = market(range(1000), 20)
    everybody(*alone[:2]).run()
    assert calls.count == 2 * alone[2].count


def test_who_never_answers_is_not_the_best_of_those_who_do_harm() -> None:
    """Shapley gains are below zero for everybody once the model is good: a void reply must not stand above them."""
    consumer, providers = vector_market(budget=600, per_round=3, offsets=(0.0, 0.1, 0.2, 0.3, 0.4))
    rng = np.random.default_rng(0)
    for sampler in (Valued(), OSMD(0.1, 0.01)):
        rules = Arbiter(consumer, providers, sampler, engine="loop").rules
        state, round_budget = rules.start(), rules.round_budget(rules.new_book())
        for _ in range(60):
            chances = sampler.probabilities(state, round_budget)
            draws = sampler.draw(state, rng, 3, round_budget)
            gains = [None if i == 0 else float(rng.normal(-1e-3, 2e-4)) for i in draws.tolist()]
            drawn = Drawn(draws, chances[draws], round_budget)
            if sampler.kind == "osmd":  # the paper's sampler takes it for zero, as before
                zeros = [gain or 0.0 for gain in gains]
                np.testing.assert_array_equal(rules.learn(state, drawn, gains), rules.learn(state, drawn, zeros))
            state = rules.learn(state, drawn, gains)
        if sampler.kind == "test-shapley":
            assert sampler.probabilities(state, round_budget)[0] < 0.25
