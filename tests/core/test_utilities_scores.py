"""Utilities: one batched pass equals one at a time, bounds hold, and the hold-out stays with the consumer."""

from __future__ import annotations

import copy
import gc
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from databazaar import Arbiter, BazaarError, Consumer, LocalSGD, Provider, build_model
from databazaar.engines import LoopEngine, VectorizedEngine
from databazaar.learners import Averaging
from databazaar.learning import models as models_module
from databazaar.learning import utilities as utilities_module
from databazaar.learning.losses import cross_entropy, squared_error
from databazaar.learning.task import Task
from databazaar.learning.utilities import Evaluator
from small_markets import MakeMarket

CPU = torch.device("cpu")


def holdout(classes: bool, size: int = 30, seed: int = 0) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.normal(size=(size, 5)).astype(np.float32))
    y = rng.integers(0, 3, size) if classes else rng.normal(size=(size, 1)).astype(np.float32)
    return x, torch.from_numpy(y)


def candidates(task: Task, count: int, scale: float = 1.0) -> Tensor:
    return torch.randn(count, task.layout.width, generator=torch.Generator().manual_seed(3)) * scale


def plain_scores(utility: str, model: nn.Module, task: Task, data: tuple[Tensor, Tensor], row: Tensor) -> float:
    """By hand, with torch's own losses on one module at a time."""
    x, y = data
    task.layout.load(model, row)
    with torch.no_grad():
        outputs = model.eval()(x)
    if utility == "accuracy":
        return float((outputs.argmax(1) == y).double().mean())
    if y.is_floating_point():
        loss = float(((outputs - y) ** 2).double().sum(1).mean() / 2)
    else:
        loss = float(nn.functional.cross_entropy(outputs.double(), y))
    return float(np.exp(-loss)) if utility == "exp-loss" else -loss


every_utility = pytest.mark.parametrize(
    ("utility", "classes"),
    [(name, True) for name in ("exp-loss", "negative-loss", "accuracy")]
    + [("exp-loss", False), ("negative-loss", False)],
)


@every_utility
@pytest.mark.parametrize("kind", ["mlp", "flat"])
def test_batched_scores_equal_scores_by_hand(utility: str, classes: bool, kind: str) -> None:
    outputs = 3 if classes else 1
    model = build_model("mlp", [5], outputs) if kind == "mlp" else build_model("linear", [5], outputs)
    task, data = Task(model, cross_entropy if classes else squared_error), holdout(classes)
    stack = candidates(task, 6)
    scores = Evaluator(task, data, utility, CPU).score(stack)
    by_hand = [plain_scores(utility, copy.deepcopy(model), task, data, row) for row in stack]
    np.testing.assert_allclose(scores.utility, by_hand, rtol=1e-4, atol=1e-6)
    alone = [Evaluator(task, data, utility, CPU).score(row[None]).utility[0] for row in stack]
    np.testing.assert_allclose(scores.utility, alone, rtol=1e-5, atol=1e-7)


@given(st.floats(1e-3, 1e6), st.booleans())
def test_exp_loss_lies_between_0_and_1(scale: float, classes: bool) -> None:
    task = Task(build_model("linear", [5], 3 if classes else 1), cross_entropy if classes else squared_error)
    utility = Evaluator(task, holdout(classes), "exp-loss", CPU).score(candidates(task, 4, scale)).utility
    assert ((utility >= 0) & (utility <= 1)).all()


@pytest.mark.parametrize("room", [1, 40, 200, 2000])
def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    task, data = Task(build_model("mlp", [5], 3), cross_entropy), holdout(True)
    stack = candidates(task, 7)
    whole = Evaluator(task, data, "accuracy", CPU).score(stack)
    monkeypatch.setattr(utilities_module, "CHUNK_FLOATS", room)
    pieces = Evaluator(task, data, "accuracy", CPU).score(stack)
    np.testing.assert_allclose(pieces.utility, whole.utility)
    assert pieces.loss is not None and whole.loss is not None
    np.testing.assert_allclose(pieces.loss, whole.loss, rtol=1e-6)


def test_data_that_first_layers_would_blow_up_are_kept_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (x, y) = nn.Sequential(nn.Flatten(), nn.Linear(5, 3)), holdout(True)
    whole = Evaluator(Task(copy.deepcopy(model), cross_entropy), (x, y), "exp-loss", CPU)
    monkeypatch.setattr(models_module, "FIXED_FLOATS", x.numel() - 1)
    task = Task(model, cross_entropy)
    plain, stack = Evaluator(task, (x, y), "exp-loss", CPU), candidates(task, 4)
    assert len(list(plain.module.children())) == 2 and len(list(whole.module.children())) == 1  # type: ignore[union-attr]
    np.testing.assert_array_equal(plain.score(stack).utility, whole.score(stack).utility)


def test_accuracy_is_nan_where_outputs_are_not_finite() -> None:
    task = Task(build_model("logistic", [5], 3), cross_entropy)
    stack = candidates(task, 3)
    stack[1] = torch.nan
    stack[2] = 3e38
    utility = Evaluator(task, holdout(True), "accuracy", CPU).score(stack).utility
    assert np.isfinite(utility[0])
    assert np.isnan(utility[1:]).all()


def test_accuracy_needs_classes() -> None:
    """A share of right answers means nothing for numbers: it would be 0 for every model, and teach nothing."""
    with pytest.raises(BazaarError, match="accuracy"):
        Consumer("linear", holdout=([[0.0], [1.0]], [0.5, 1.5]), utility="accuracy", budget=5, per_round=1).evaluator(
            CPU
        )


def test_a_callable_gets_the_module_with_the_candidates_parameters() -> None:
    model = build_model("linear", [5], 1)
    seen: list[float] = []

    def utility(module: nn.Module) -> float:
        assert isinstance(module, nn.Module)
        assert not module.training
        assert not torch.is_grad_enabled()
        seen.append(float(module.get_parameter("1.bias")))
        return seen[-1]

    task = Task(model, squared_error)
    before = task.layout.flatten(model).clone()
    consumer = Consumer(model, utility=utility, budget=5, per_round=1)
    stack = candidates(task, 3)
    scores = consumer.evaluator(CPU).score(stack)
    assert scores.loss is None
    np.testing.assert_allclose(scores.utility, stack[:, -1].numpy())
    assert torch.equal(task.layout.flatten(model), before)  # the user's module is not touched


def test_a_callable_gets_the_vector_where_there_is_no_module() -> None:
    consumer = Consumer(np.zeros(3), utility=lambda w: float(w.sum()), budget=5, per_round=1)
    scores = consumer.evaluator(CPU).score(torch.arange(6.0).view(2, 3).double())
    np.testing.assert_allclose(scores.utility, [3, 12])


def test_a_callable_cannot_change_the_model_it_judges() -> None:
    def meddling(w: np.ndarray) -> float:
        value = float(w.sum())
        w[:] = 7
        return value

    consumer = Consumer(np.zeros(3), utility=meddling, budget=2, per_round=1, step=1.0)
    arbiter = Arbiter(consumer, [Provider("p", oracle=lambda w: np.ones(3))], engine="loop")
    arbiter.run()
    np.testing.assert_array_equal(arbiter.model, [2, 2, 2])


def test_regression_runs_end_to_end(make_torch_market: MakeMarket) -> None:
    rng = np.random.default_rng(0)
    slope = np.array([1.0, -2.0, 0.5])

    def sample(n: int) -> tuple[np.ndarray, np.ndarray]:
        x = rng.normal(size=(n, 3))
        return x, x @ slope

    providers = [Provider(f"p{i}", data=sample(20), oracle=LocalSGD(0.1, 5)) for i in range(3)]
    consumer = Consumer("linear", holdout=sample(40), budget=60, per_round=3, utility="negative-loss")
    arbiter = Arbiter(consumer, providers)
    report = arbiter.run()
    np.testing.assert_allclose(arbiter.model[1].weight.detach().numpy().ravel(), slope, atol=1e-2)
    assert report.final_loss is not None
    assert report.final_loss == pytest.approx(-report.final_utility)
    assert report.final_loss < 1e-3


def picky_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss of the user's own that looks at a value, which vmap cannot trace."""
    each = cross_entropy(outputs, targets)
    return each * 2 if float(each.detach().max()) > 1e9 else each


def test_a_loss_that_cannot_be_batched_is_computed_one_candidate_at_a_time() -> None:
    task, data = Task(build_model("logistic", [5], 3), picky_loss), holdout(True)
    stack = candidates(task, 3)
    expected = Evaluator(Task(task.model, cross_entropy), data, "exp-loss", CPU).score(stack).utility
    with pytest.warns(UserWarning, match="one candidate at a time"):
        scores = Evaluator(task, data, "exp-loss", CPU).score(stack)
    np.testing.assert_allclose(scores.utility, expected, rtol=1e-5)


class PickyActivation(nn.Module):
    """Looks at a value of its own, which vmap cannot trace."""

    def forward(self, x: Tensor) -> Tensor:
        return x if float(x.detach().max()) > 1e9 else torch.tanh(x)


def test_a_model_that_cannot_be_batched_is_scored_one_candidate_at_a_time() -> None:
    plain = Task(nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)), cross_entropy)
    picky = Task(nn.Sequential(nn.Linear(5, 4), PickyActivation(), nn.Linear(4, 3)), cross_entropy)
    data, stack = holdout(True), candidates(plain, 3)
    expected = Evaluator(plain, data, "exp-loss", CPU).score(stack).utility
    evaluator = Evaluator(picky, data, "exp-loss", CPU)
    with pytest.warns(UserWarning, match="one candidate at a time: torch cannot batch this model"):
        np.testing.assert_allclose(evaluator.score(stack).utility, expected, rtol=1e-5)
    np.testing.assert_allclose(evaluator.score(stack).utility, expected, rtol=1e-5)  # and says so only once


def reachable(root: Any) -> list[Any]:
    """Every object that can be reached from one, through attributes, containers and closures."""
    seen: dict[int, Any] = {}
    todo = [root]
    while todo:
        thing = todo.pop()
        if id(thing) in seen or isinstance(thing, type | ModuleType):
            continue
        seen[id(thing)] = thing
        if isinstance(thing, FunctionType):  # a function's globals are the whole program: only what it closes over
            todo += [cell.cell_contents for cell in thing.__closure__ or ()] + list(thing.__defaults__ or ())
        else:
            todo += gc.get_referents(thing)
    return list(seen.values())


def memory(tensors: list[Any]) -> set[int]:
    return {t.untyped_storage().data_ptr() for t in tensors if isinstance(t, Tensor) and t.numel()}


@pytest.mark.parametrize("name", ["loop", "vectorized"])
def test_the_holdout_never_reaches_an_engine(make_torch_market: MakeMarket, name: str) -> None:
    marker = torch.full((50, 4), 0.123456)
    consumer, providers = make_torch_market(holdout=(marker, np.arange(50) % 2))
    arbiter = Arbiter(consumer, providers, engine=name, device="cpu", learner=Averaging())
    arbiter.run()
    engine = arbiter.engine
    assert isinstance(engine, LoopEngine if name == "loop" else VectorizedEngine)
    found = reachable(engine)
    tensors = [thing for thing in found if isinstance(thing, Tensor)]
    assert memory(list(providers[0].dataset)) <= memory(tensors) or name == "vectorized"  # the walk does find tensors
    assert tensors
    assert consumer.holdout is not None
    assert not memory(tensors) & memory(list(consumer.holdout))
    assert not any(t.shape == marker.shape and torch.equal(t, marker) for t in tensors)
    assert not any(isinstance(thing, Consumer | Evaluator) for thing in found)
    assert memory(list(consumer.holdout)) <= memory(reachable(consumer.evaluator(CPU)))  # here it is, as it should
