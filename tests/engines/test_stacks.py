"""The engine's registry of stacks: what is chosen, what anybody may add, and that no kernel is loaded without a GPU."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from databazaar import Ask, BazaarError, Consumer, FullGradient, LocalSGD, LoopEngine, Provider, VectorizedEngine
from databazaar.engines.scoring import evaluator_for
from databazaar.engines.stacked import StackedOracle
from databazaar.engines.stacks import STACKS, BatchPlan, Workload
from databazaar.engines.vectorized import NotVectorizableError
from databazaar.learning.losses import cross_entropy
from databazaar.learning.models import build_model
from databazaar.learning.oracles import Oracle
from databazaar.learning.task import Task
from databazaar.learning.utilities import Utility

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


def test_without_a_gpu_no_kernel_is_loaded() -> None:
    code = """
import sys, torch
from databazaar import Arbiter, Consumer, Provider
from databazaar.engines.scoring import evaluator_for

images = torch.rand(6, 1, 8, 8), torch.arange(6) % 3
consumer = Consumer("cnn", 4, holdout=images, per_round=2)
Arbiter(consumer, [Provider("bank", images)], device="cpu").run()
evaluator_for(consumer, torch.device("cpu")).score(consumer.initial_parameters()[None])
assert "databazaar.engines.stacked" in sys.modules
assert not [name for name in sys.modules if name.startswith("databazaar.engines.kernels")]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


class Doubled(StackedOracle):
    """A stack of somebody's own, for full gradients alone, that is easy to tell from ours."""

    kind = "doubled"

    @classmethod
    def make(cls, work: Workload, oracle: Oracle, shape: tuple[int, int]) -> Doubled | None:  # type: ignore[override]
        return cls(work.task, oracle, work.data) if isinstance(oracle, FullGradient) else None

    def __call__(self, params: Tensor, plan: BatchPlan) -> Tensor:
        return 2 * super().__call__(params, plan)


def test_a_stack_of_ones_own_is_taken_for_the_oracles_that_it_suits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STACKS._own, Doubled.kind, Doubled)
    local, full = LocalSGD(0.1, 2), FullGradient()
    task, providers, w = market(local, full)
    engine = VectorizedEngine(task, providers, CPU, stacks=["doubled", "stacked"])
    assert engine.stacks == {local: "stacked", full: "doubled"}
    plain = LoopEngine(task, providers, CPU).query(Ask(w, [0, 1], 0, 0)).updates
    got = engine.query(Ask(w, [0, 1], 0, 0)).updates
    torch.testing.assert_close(got, plain * torch.tensor([[1.0], [2.0]]))


def test_stacks_that_are_unknown_or_do_not_suit_are_named() -> None:
    task, providers, _ = market(FullGradient())
    with pytest.raises(BazaarError, match="stack kind 'duel' is unknown: did you mean 'dual'"):
        VectorizedEngine(task, providers, CPU, stacks=["duel"])
    with pytest.raises(NotVectorizableError, match="dual suits FullGradient"):
        VectorizedEngine(task, providers, CPU, stacks=["dual"])


def test_a_closed_engine_says_so() -> None:
    task, providers, w = market(FullGradient())
    engine = VectorizedEngine(task, providers, CPU)
    engine.close()
    with pytest.raises(BazaarError, match="closed"):
        engine.query(Ask(w, [0], 0, 0))


@pytest.mark.parametrize("utility", ["accuracy", "exp-loss", lambda model: float(model[-1].bias.sum())])
def test_the_engines_evaluator_scores_as_the_consumers_own(utility: str | Utility) -> None:
    images = torch.rand(9, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(9) % 3
    consumer = Consumer("cnn", 4, holdout=images, utility=utility, per_round=2)
    assert isinstance(consumer.model, nn.Module)
    stack = consumer.initial_parameters() * torch.tensor([[1.0], [2.0], [-1.0]])
    own, engines = consumer.evaluator(CPU).score(stack), evaluator_for(consumer, CPU).score(stack)
    np.testing.assert_allclose(engines.utility, own.utility, rtol=1e-6)
