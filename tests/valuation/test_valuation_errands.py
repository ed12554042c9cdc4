"""Valuations whose coalitions and walks somebody else works out whole: the values of those worked out side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from databazaar import Ask, Consumer, Engine, LoopEngine, Provider, Replies
from databazaar.engines.errands import Errand, Vector
from databazaar.learning.utilities import Evaluator
from databazaar.valuation import MaxPermutations, compare
from small_markets import torch_market

METHODS = ("loo", "exact", "tmc", "g-shapley")
OPTIONS = {name: {"stop": MaxPermutations(6)} for name in ("tmc", "g-shapley")}


class Errands(Engine):
    """Runs errands in this process, one after the other, and is asked nothing else."""

    name, device = "errands", torch.device("cpu")

    def __init__(self, consumer: Consumer, providers: list[Provider]) -> None:
        self._inner = LoopEngine(consumer.task.copied(), providers, self.device)
        self.asked = 0

    def query(self, ask: Ask) -> Replies:
        self.asked += 1
        return self._inner.query(ask)

    def errands(self, evaluator: Evaluator, start: Tensor, errands: Sequence[Errand]) -> list[Vector] | None:
        return [errand.run(self._inner, evaluator, start) for errand in errands]


def test_values_and_what_they_cost_are_those_of_an_engine_without_errands() -> None:
    consumer, providers = torch_market(flips=(0.0, 0.2, 0.6))
    providers.append(Provider("broken", oracle=lambda w: w * np.float32(np.nan)))
    engine = Errands(consumer, providers)
    found = compare(consumer, providers, METHODS, engine=engine, seeds=2, options=OPTIONS)
    right = compare(consumer, providers, METHODS, engine="loop", seeds=2, options=OPTIONS)
    assert engine.asked == 0
    for one, other in zip(found.outcomes, right.outcomes, strict=True):
        for ours, theirs in zip(one.results, other.results, strict=True):
            assert ours.values == pytest.approx(theirs.values, abs=1e-5)
            assert replace(ours.cost, seconds=0.0) == replace(theirs.cost, seconds=0.0)
