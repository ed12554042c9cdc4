"""Valuations whose coalitions, walks and rounds' models others work out: the values of those worked out here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from databazaar import Consumer, Provider
from databazaar.engines import Ask, Engine, LoopEngine, Replies
from databazaar.engines.errands import Errand, Start, Vector
from databazaar.learning.utilities import Evaluator
from databazaar.valuation import MaxPermutations, compare
from databazaar.valuation.comparison import Comparison
from databazaar.valuation.round_game import Block, Scorer, block_size, score_combinations
from small_markets import torch_market

METHODS = ("loo", "exact", "tmc", "g-shapley")
CPU = torch.device("cpu")
BY_ROUND = ("fedsv", "fedsv-exact", "gtg")
OPTIONS = {name: {"stop": MaxPermutations(6)} for name in ("tmc", "g-shapley", "fedsv", "gtg")}


class Errands(Engine):
    """Runs errands in this process, one after the other, and counts what else it is asked."""

    name, device = "errands", torch.device("cpu")

    def __init__(self, consumer: Consumer, providers: list[Provider]) -> None:
        self._inner = LoopEngine(consumer.task.copied(), providers, self.device)
        self.asked = 0
        self.run: list[Errand] = []

    def query(self, ask: Ask) -> Replies:
        self.asked += 1
        return self._inner.query(ask)

    def errands(self, evaluator: Evaluator, start: Start, errands: Sequence[Errand]) -> list[Vector] | None:
        self.run.extend(errands)
        return [errand.run(self._inner, evaluator, start) for errand in errands]


def assert_alike(found: Comparison, right: Comparison) -> None:
    for one, other in zip(found.outcomes, right.outcomes, strict=True):
        for ours, theirs in zip(one.results, other.results, strict=True):
            assert ours.values == pytest.approx(theirs.values, abs=1e-5)
            assert replace(ours.cost, seconds=0.0) == replace(theirs.cost, seconds=0.0)


def test_values_and_what_they_cost_are_those_of_an_engine_without_errands() -> None:
    consumer, providers = torch_market(flips=(0.0, 0.2, 0.6))
    providers.append(Provider("broken", oracle=lambda w: w * np.float32(np.nan)))
    engine = Errands(consumer, providers)
    found = compare(consumer, providers, METHODS, engine=engine, seeds=2, options=OPTIONS)
    right = compare(consumer, providers, METHODS, engine="loop", seeds=2, options=OPTIONS)
    assert engine.asked == 0
    assert_alike(found, right)


@pytest.mark.parametrize("model", ["logistic", "norm"])
def test_rounds_are_valued_alike_wherever_their_models_are_scored(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORTH_A_TRIP", "SENT"):
        monkeypatch.setattr(f"databazaar.valuation.round_game.{name}", 0)
    made = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 2)) if model == "norm" else model
    consumer, providers = torch_market(flips=(0.0, 0.2, 0.6, 0.4), per_round=5, model=made)
    providers.append(Provider("broken", oracle=lambda w: w * np.float32(np.nan)))
    work = Scorer(consumer.evaluator(CPU), *round_of(consumer, 4)).work
    monkeypatch.setattr("databazaar.valuation.round_game.BLOCK", 3 * work)
    engine = Errands(consumer, providers)
    found = compare(consumer, providers, BY_ROUND, engine=engine, seeds=2, options=OPTIONS)
    assert max(errand.length for errand in engine.run) == 3
    assert {type(errand) for errand in engine.run} == {Block}
    assert_alike(found, compare(consumer, providers, BY_ROUND, engine="loop", seeds=2, options=OPTIONS))


def round_of(consumer: Consumer, updates: int) -> tuple[torch.Tensor, torch.Tensor]:
    w = consumer.initial_parameters()
    return w, torch.randn(updates, len(w), generator=torch.Generator().manual_seed(0))


def test_few_cheap_models_and_utilities_of_a_users_own_are_scored_here() -> None:
    consumer, providers = torch_market()
    scorer = Scorer(consumer.evaluator(CPU), *round_of(consumer, 4))
    assert block_size(scorer, 100) is None
    many = block_size(scorer, 10**7)
    assert many is not None
    assert many > 1000
    own = replace(consumer, utility=lambda model: 0.5)
    engine = Errands(own, providers)
    scored = score_combinations(engine, Scorer(own.evaluator(CPU), *round_of(own, 4)), np.ones((2, 4)))
    assert scored.tolist() == [0.5, 0.5]
    assert engine.run == []
