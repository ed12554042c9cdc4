"""The stacks of an engine: what is chosen, and what anybody may add."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from databazaar import BazaarError, Consumer, LocalSGD, Provider
from databazaar.engines import Ask, LoopEngine, VectorizedEngine, stacks, vectorized
from databazaar.engines.stacks import BatchPlan, StackedOracle, Workload
from databazaar.engines.vectorized import NotVectorizableError
from databazaar.learning.losses import cross_entropy
from databazaar.learning.models import build_model
from databazaar.learning.oracles import FullGradient, Oracle, StochasticGradient
from databazaar.learning.task import Precision, Task

CPU = torch.device("cpu")


def market(*oracles: Oracle) -> tuple[Task, list[Provider], Tensor]:
    rng = np.random.default_rng(0)
    model = build_model("logistic", [4], 2)
    providers = [
        Provider(f"p{i}", data=(rng.normal(size=(5, 4)), rng.integers(0, 2, 5)), oracle=oracle)
        for i, oracle in enumerate(oracles)
    ]
    task = Task(model, cross_entropy)
    return task, providers, task.layout.flatten(model)


class Doubled(StackedOracle):
    """A stack of somebody's own, for full gradients alone, that is easy to tell from ours."""

    kind = "doubled"

    @classmethod
    def make(cls, work: Workload, oracle: Oracle, shape: tuple[int, int]) -> Doubled | None:  # type: ignore[override]
        return cls(work.task, oracle, work.data) if isinstance(oracle, FullGradient) else None

    def __call__(self, params: Tensor, plan: BatchPlan) -> Tensor:
        return 2 * super().__call__(params, plan)


def test_a_stack_of_ones_own_is_taken_for_the_oracles_that_it_suits() -> None:
    local, full = LocalSGD(0.1, 2), FullGradient()
    task, providers, w = market(local, full)
    engine = VectorizedEngine(task, providers, CPU, stacks=[Doubled])
    assert engine.stacks == {local: "stacked", full: "doubled"}
    plain = LoopEngine(task, providers, CPU).query(Ask(w, [0, 1], 0, 0)).updates
    got = engine.query(Ask(w, [0, 1], 0, 0)).updates
    torch.testing.assert_close(got, plain * torch.tensor([[1.0], [2.0]]))


def test_a_closed_engine_says_so() -> None:
    task, providers, w = market(FullGradient())
    engine = VectorizedEngine(task, providers, CPU)
    engine.close()
    with pytest.raises(BazaarError, match="closed"):
        engine.query(Ask(w, [0], 0, 0))


class Mixed(nn.Module):
    """Embeds words and attends to all of them; `scale` is trained nowhere else than here."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.out, self.norm = nn.Embedding(11, 6), nn.Linear(6, 3), nn.LayerNorm(6)
        self.scale = nn.Parameter(torch.ones(6))

    def forward(self, x: Tensor) -> Tensor:
        h = self.words(x)
        h = self.norm(nn.functional.scaled_dot_product_attention(h, h, h * self.scale))
        outputs: Tensor = self.out(h.mean(1))
        return outputs


def sequences(oracle: Oracle, precision: Precision = "float32") -> tuple[Task, list[Provider], Tensor]:
    torch.manual_seed(0)
    sizes = (7, 4, 9)
    providers = [
        Provider(f"p{i}", data=(torch.randint(0, 11, (size, 5)), torch.arange(size) % 3), oracle=oracle)
        for i, size in enumerate(sizes)
    ]
    task = Task(Mixed(), cross_entropy, precision)
    assert task.model is not None
    return task, providers, task.layout.flatten(task.model)


def large_from(parameters: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (stacks, vectorized):
        monkeypatch.setattr(module, "LARGE", parameters)


@pytest.mark.parametrize(
    "oracle",
    [
        LocalSGD(0.3, 4, momentum=0.9, steps=None, epochs=2),
        LocalSGD(0.01, 4, optimizer="adam", weight_decay=0.1, steps=3),
        FullGradient(),
        StochasticGradient(3),
    ],
)
def test_rows_computed_alone_are_those_of_the_loop(oracle: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    large_from(1, monkeypatch)
    task, providers, w = sequences(oracle)
    engine = VectorizedEngine(task, providers, CPU)
    plain = LoopEngine(task, providers, CPU)
    for ask in (Ask(w, [0, 1, 2], 0, 0), Ask(w + 0.1, [2, 0], 3, 1)):
        torch.testing.assert_close(engine.query(ask).updates, plain.query(ask).updates)


def test_a_model_that_draws_numbers_is_not_computed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    large_from(1, monkeypatch)
    task, providers, _ = sequences(LocalSGD())
    assert task.model is not None
    random = replace(task, model=nn.Sequential(task.model, nn.Dropout()))
    with pytest.raises(NotVectorizableError, match="the model draws random numbers"):
        VectorizedEngine(random, providers, CPU)


@pytest.mark.parametrize("large", [1, 2**22])
def test_bf16_is_the_same_in_every_engine_and_near_float32(large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    large_from(large, monkeypatch)
    oracle = LocalSGD(0.1, 4, momentum=0.5, steps=4)
    task, providers, w = sequences(oracle, "bf16")
    ask = Ask(w, [0, 1, 2], 0, 0)
    exact = LoopEngine(replace(task, precision="float32"), providers, CPU).query(ask).updates
    plain = LoopEngine(task, providers, CPU).query(ask).updates
    stacked = VectorizedEngine(task, providers, CPU).query(ask).updates
    assert plain.dtype == stacked.dtype == torch.float32
    assert not torch.equal(plain, exact), "bf16 has no effect"
    far = 2**-6 * float(exact.abs().max())
    torch.testing.assert_close(plain, exact, atol=far, rtol=0.1)
    torch.testing.assert_close(stacked, exact, atol=far, rtol=0.1)


def test_a_precision_that_is_unknown_is_refused() -> None:
    with pytest.raises(BazaarError, match="precision 'fp8' is unknown: use one of float32, bf16"):
        Consumer("logistic", 1, holdout=([[0.0], [1.0]], [0, 1]), precision="fp8")  # type: ignore[arg-type]
