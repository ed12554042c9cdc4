"""What the watch measures where there is little to measure by: tiny models, two providers, losses beyond all bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from databazaar import Arbiter, Consumer, Defence, Provider
from databazaar.ledger import Accounts
from databazaar.market.inspection.holdout_parts import Parts
from databazaar.market.loop import play
from databazaar.market.run import MarketRun

Rows = tuple[np.ndarray, np.ndarray]


def played(consumer: Consumer, providers: list[Provider], defence: str | Defence = "standard") -> MarketRun:
    arbiter = Arbiter(consumer, providers, defence=defence, seed=1, engine="loop")
    run = arbiter.begin(Accounts(arbiter.rules))
    play(run, arbiter.engine)
    return run


def linear(rng: np.random.Generator, rows: int, scale: float = 1.0) -> Rows:
    x = rng.normal(size=(rows, 2)).astype(np.float32)
    return x, (scale * (x.sum(1) + 5 + rng.normal(size=rows))).astype(np.float32)


def regression(
    scale: float, others: Callable[[np.ndarray], np.ndarray], honest: int
) -> tuple[Consumer, list[Provider]]:
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    consumer = Consumer(
        nn.Linear(2, 1), budget=60, per_round=2, holdout=linear(rng, 60, scale), utility="negative-loss"
    )
    data = [Provider(f"honest-{i}", data=linear(rng, 50, scale)) for i in range(honest)]
    return consumer, [*data, Provider("other", oracle=others)]


@pytest.mark.parametrize("features", [1, 2, 4, 10])
def test_in_a_tiny_model_nobody_is_taken_for_anothers_name(features: int) -> None:
    """In few dimensions what is private in honest answers points the same way by chance."""
    rng = np.random.default_rng(features)
    weight = rng.normal(size=(features, 2))

    def rows(count: int) -> Rows:
        x = rng.normal(size=(count, features)).astype(np.float32)
        return x, (x @ weight + rng.gumbel(size=(count, 2))).argmax(1)

    consumer = Consumer("logistic", budget=300, per_round=5, holdout=rows(60))
    run = played(consumer, [Provider(f"p{i}", data=rows(60)) for i in range(7)])
    assert run.rules.detector(run.state.sampler).arm.tolist() == list(range(7))


def test_what_worsens_every_row_beyond_bounds_is_the_greatest_harm() -> None:
    consumer, _ = regression(1e5, np.zeros_like, 1)
    run = Arbiter(consumer, [Provider("p", oracle=np.zeros_like)], defence="standard", engine="loop")
    parts = Parts.of(consumer.evaluator(run.engine.device), seed=0)
    assert parts is not None
    params = torch.zeros(3)
    moves = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, -1e9], [0.0, 0.0, -1e15]])
    nothing, harm, overflow = parts.harm(parts.gains(params, moves)).tolist()
    assert nothing == 0 and harm > 100 and overflow > 100


@pytest.mark.parametrize("per_round", [1, 2, 3])
@pytest.mark.parametrize("honest", [1, 2, 3])
def test_who_sends_long_updates_neither_spoils_a_small_market_nor_voids_the_others(honest: int, per_round: int) -> None:
    consumer, providers = regression(1.0, lambda w: np.full_like(w, 1e12), honest)
    run = played(replace(consumer, per_round=per_round), providers)
    pay = run.accounts.book.pay
    assert pay.get("other", 0) < 20 and set(pay) >= {f"honest-{i}" for i in range(honest)}
    assert run.state.utility > -1.0
