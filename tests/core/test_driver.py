"""One driver for one run, many seeds in lockstep, or the jobs of several consumers: each ends as if played alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from databazaar import OSMD, Arbiter, Ask, Consumer, Engine, Provider, Replies, TargetUtility, Uniform, VectorizedEngine
from databazaar.ledger import Accounts, Ledger, audit_entries
from databazaar.market.driver import play, score_together
from small_markets import blobs, torch_market

CPU = torch.device("cpu")


class Counting(Engine):
    """Another engine, which notes how many asks come at a time."""

    name, device = "counting", CPU

    def __init__(self, inner: Engine) -> None:
        self._inner = inner
        self.together: list[int] = []

    def query(self, ask: Ask) -> Replies:
        return self.query_many([ask])[0]

    def query_many(self, asks: Sequence[Ask]) -> list[Replies]:
        self.together.append(len(asks))
        return self._inner.query_many(asks)


def test_seeds_in_lockstep_make_the_draws_that_they_make_alone() -> None:
    consumer, providers = torch_market(budget=60)
    engine = Counting(VectorizedEngine(consumer.task, providers, CPU))
    arbiters = [Arbiter(consumer, providers, OSMD(0.5, 0.1), engine=engine, seed=seed) for seed in range(4)]
    evaluator = consumer.evaluator(CPU)
    runs = [arbiter.begin(Ledger(arbiter.rules), evaluator=evaluator) for arbiter in arbiters]
    play(runs, engine)
    assert engine.together == [4] * 15
    for seed, run in enumerate(runs):
        alone = Arbiter(consumer, providers, OSMD(0.5, 0.1), device="cpu", seed=seed)
        report = alone.run()
        assert isinstance(run.accounts, Ledger)
        audit = audit_entries(run.accounts.store.entries())
        assert audit.ok and audit.closed, audit.message
        drawn = [[access.provider for access in played.accesses] for played in audit.history]
        assert drawn == [[access.provider for access in played.accesses] for played in report.rounds]
        np.testing.assert_allclose(run.state.params, alone.last_parameters, rtol=1e-4, atol=1e-5)


def test_consumers_with_their_own_holdouts_budgets_and_rules_share_an_engine() -> None:
    """Each is scored by its own evaluator, ends when its own rules say so, and leaves the others going."""
    _, providers = torch_market()
    rng = np.random.default_rng(9)
    consumers = [
        Consumer("logistic", holdout=blobs(rng, 40 + 10 * i, flip=0.2 * i), budget=budget, per_round=2)
        for i, budget in enumerate((8, 40, 20))
    ]
    rules: list[dict[str, Any]] = [{}, {"stops": [TargetUtility(0.8)]}, {"sampler": Uniform()}]

    def arbiters(engine: Engine | str) -> list[Arbiter]:
        return [
            Arbiter(consumer, providers, engine=engine, device="cpu", seed=3, **own)
            for consumer, own in zip(consumers, rules, strict=True)
        ]

    shared = Counting(VectorizedEngine(consumers[0].task, providers, CPU))
    runs = [arbiter.begin(Accounts(arbiter.rules)) for arbiter in arbiters(shared)]
    play(runs, shared)
    for run, arbiter in zip(runs, arbiters("vectorized"), strict=True):
        report = arbiter.run()
        assert run.accounts.book.closed and run.accounts.book.pay == {
            p.provider: p.pay for p in report.payouts if p.pay
        }
        assert run.state.round == len(report.rounds)
        np.testing.assert_allclose(run.state.params, arbiter.last_parameters, rtol=1e-4, atol=1e-5)
    lengths = sorted(run.state.round for run in runs)
    assert len(set(lengths)) == 3, "the three runs end in different rounds"
    assert shared.together == [sum(length > t for length in lengths) for t in range(lengths[-1])]


@pytest.mark.parametrize("share", [True, False])
def test_stacks_are_scored_each_by_its_own_evaluator(share: bool) -> None:
    rng = np.random.default_rng(2)
    consumers = [Consumer("logistic", holdout=blobs(rng, 30), budget=8, per_round=2) for _ in range(2)]
    first, second = (consumer.evaluator(CPU) for consumer in consumers)
    evaluators = [first, first if share else second, second, first]
    stacks = [torch.randn(rows, 10) for rows in (2, 3, 2, 1)]
    for own, stack, scores in zip(evaluators, stacks, score_together(evaluators, stacks), strict=True):
        np.testing.assert_allclose(scores.utility, own.score(stack).utility, rtol=1e-5)


def test_a_provider_that_fails_in_one_run_does_not_touch_the_other() -> None:
    def broken(w: np.ndarray) -> np.ndarray:
        raise ValueError("no")

    def fine(w: np.ndarray) -> np.ndarray:
        return 1.0 - w

    consumer = Consumer(np.zeros(2), budget=12, per_round=2, utility=lambda w: float(-((w - 1) ** 2).sum()), step=0.5)
    providers = [Provider("broken", oracle=broken), Provider("fine", oracle=fine)]
    arbiters = [Arbiter(consumer, providers, Uniform(), engine="loop", seed=seed) for seed in (0, 1)]
    runs = [arbiter.begin(Accounts(arbiter.rules)) for arbiter in arbiters]
    play(runs, arbiters[0].engine)
    for run, arbiter in zip(runs, arbiters, strict=True):
        report = arbiter.run()
        assert run.accounts.book.failures == {"broken": report.payouts[0].failures}
        assert run.state.model_hash == report.model_hash
