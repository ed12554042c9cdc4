"""Ways to combine updates: the mean is line 10, and a rule with a memory is resumed to the same hashes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from databazaar import OSMD, Arbiter, Mean
from databazaar.aggregators import Aggregator
from databazaar.engines import Ask, Engine, Replies
from databazaar.runs.folder import RunFolder
from databazaar.testing import check_aggregator
from small_markets import MakeMarket


@dataclass(frozen=True)
class ServerMomentum:
    """The mean, and on top of it a share of the last move (FedAvgM). Its state is the last move."""

    share: float = 0.9
    kind: ClassVar[str] = "test-server-momentum"

    def init(self, params: Tensor) -> Tensor:
        return torch.zeros_like(params)

    def combine(self, state: Tensor, updates: Tensor, step: float) -> tuple[Tensor, Tensor]:
        move = step * updates.mean(0) + self.share * state
        return move, move


@dataclass(frozen=True)
class InPlace(ServerMomentum):
    kind: ClassVar[str] = "test-in-place-aggregator"

    def combine(self, state: Tensor, updates: Tensor, step: float) -> tuple[Tensor, Tensor]:
        state += step * updates.mean(0)
        return state, state.clone()


@dataclass(frozen=True)
class Restless(ServerMomentum):
    kind: ClassVar[str] = "test-restless"

    def combine(self, state: Tensor, updates: Tensor, step: float) -> tuple[Tensor, Tensor]:
        return state, updates.mean(0) + 1


@dataclass(frozen=True)
class Doubling(ServerMomentum):
    kind: ClassVar[str] = "test-doubling"

    def combine(self, state: Tensor, updates: Tensor, step: float) -> tuple[Tensor, Tensor]:
        return state, updates.mean(0).double()


@pytest.mark.parametrize("aggregator", [Mean(), ServerMomentum(0.5)], ids=repr)
def test_check_aggregator_passes(aggregator: Aggregator) -> None:
    check_aggregator(aggregator)


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (InPlace(), "must not change its arguments"),
        (Restless(), "must not move the model"),
        (Doubling(), "must be like the parameters"),
    ],
)
def test_check_aggregator_catches(broken: Aggregator, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_aggregator(broken)


@given(rows=st.integers(1, 6), step=st.floats(0.01, 2.0), seed=st.integers(0, 99))
def test_the_mean_is_line_10(rows: int, step: float, seed: int) -> None:
    updates = torch.randn(rows, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    state, move = Mean().combine(torch.empty(0), updates, step)
    assert len(state) == 0
    np.testing.assert_allclose(move, step / rows * sum(updates[k].numpy() for k in range(rows)), atol=1e-12)


def test_a_rule_with_a_memory_moves_the_model_by_it(make_vector_market: MakeMarket) -> None:
    consumer, providers = make_vector_market((0.0,), budget=3, per_round=1, oracles={0: lambda w: np.ones(3)}, step=0.5)
    arbiter = Arbiter(consumer, providers, engine="loop", aggregator=ServerMomentum(0.5))
    report = arbiter.run()
    np.testing.assert_allclose(arbiter.last_parameters, np.full(3, 0.5 + 0.75 + 0.875))
    assert report.rules["aggregator"]["kind"] == "test-server-momentum"


class Stopping(Engine):
    """Another engine until some round, where the process dies."""

    name, device = "stopping", torch.device("cpu")

    def __init__(self, inner: Engine, dies_in: int) -> None:
        self._inner, self._dies_in = inner, dies_in

    def query(self, ask: Ask) -> Replies:
        if ask.round == self._dies_in:
            raise KeyboardInterrupt
        return self._inner.query(ask)


@pytest.mark.parametrize("dies_in", [1, 4, 7])
def test_the_memory_survives_a_stop(make_vector_market: MakeMarket, tmp_path: Path, dies_in: int) -> None:
    def arbiter() -> Arbiter:
        consumer, providers = make_vector_market(budget=24)
        return Arbiter(consumer, providers, OSMD(0.5, 0.1), engine="loop", aggregator=ServerMomentum(0.3))

    whole = arbiter().run()
    stopped = arbiter()
    stopped.engine = Stopping(stopped.engine, dies_in)
    with pytest.raises(KeyboardInterrupt):
        stopped.run(tmp_path / "run")
    report = arbiter().run(tmp_path / "run")
    assert (report.model_hash, report.ledger_head) == (whole.model_hash, whole.ledger_head)
    assert RunFolder(tmp_path / "run").audit().ok
