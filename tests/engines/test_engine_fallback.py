"""What cannot be stacked falls back to the loop with the reason; what fails is a reply, never an exception."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from databazaar import Arbiter, BazaarError, Consumer, LocalSGD, Provider, Uniform
from databazaar.engines import Ask, LoopEngine, Replies, VectorizedEngine, make_engine
from databazaar.engines.protocol import LIMIT
from databazaar.learning.losses import cross_entropy
from databazaar.learning.task import Task

CPU = torch.device("cpu")


def some_data(size: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(size) % 2
    return (rng.normal(size=(size, 4)) + y[:, None]).astype(np.float32), y


def learners(n: int = 3, **more: Any) -> list[Provider]:
    return [Provider(f"p{i}", data=some_data(5 + 2 * i, i), oracle=LocalSGD(0.1, 3), **more) for i in range(n)]


def seeded(build: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build()


def norm_net() -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2)))


def dropout_net() -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 2)))


@pytest.mark.parametrize(
    ("task", "providers", "reason"),
    [
        (
            Task(seeded(lambda: nn.Linear(4, 2)), cross_entropy),
            [*learners(1), Provider("caller", oracle=lambda w: w)],
            "provider caller answers through a callable",
        ),
        (Task(norm_net(), cross_entropy), learners(), "(?i)batch.?norm"),
        (Task(dropout_net(), cross_entropy), learners(), "(?i)random"),
        (Task(None, cross_entropy), [Provider("caller", oracle=lambda w: w)], "plain vector"),
        (
            Task(seeded(lambda: nn.Linear(4, 2)), cross_entropy),
            [*learners(1), Provider("odd", data=(np.zeros((3, 5)), [0, 1, 0]))],
            "provider odd's samples have another shape",
        ),
    ],
    ids=["callable", "batch norm", "dropout", "vector", "other columns"],
)
def test_falls_back_with_a_reason(task: Task, providers: list[Provider], reason: str) -> None:
    with pytest.warns(UserWarning, match="falls back from vectorized to loop") as caught:
        engine = make_engine("vectorized", task, providers, "cpu")
    assert isinstance(engine, LoopEngine)
    assert re.search(reason, str(caught[0].message))


def test_unknown_engines_and_devices_are_refused() -> None:
    task = Task(seeded(lambda: nn.Linear(4, 2)), cross_entropy)
    with pytest.raises(BazaarError, match="warp"):
        make_engine("warp", task, learners(), "cpu")
    with pytest.raises(BazaarError, match="tpu9"):
        make_engine("loop", task, learners(), "tpu9")


def test_a_batch_norm_model_trains_in_the_loop_and_its_running_statistics_travel() -> None:
    model = norm_net()
    consumer = Consumer(model, holdout=some_data(40, 99), budget=40, per_round=4)
    arbiter = Arbiter(consumer, learners(), Uniform(), engine="loop")
    report = arbiter.run()
    trained = arbiter.model
    assert not torch.allclose(trained[1].running_mean, model.get_buffer("1.running_mean"))
    assert torch.isfinite(trained[1].running_var).all()
    assert report.final_loss is not None
    assert report.rounds[0].loss is not None
    assert report.final_loss < report.rounds[0].loss
    assert (model.get_buffer("1.running_mean") == 0).all()  # the user's own module is left alone


def test_running_statistics_of_one_step_are_those_of_torch() -> None:
    model = norm_net()
    task, provider = Task(model, cross_entropy), Provider("p", data=some_data(6), oracle=LocalSGD(0.1, 6))
    start = task.layout.flatten(model)
    update = LoopEngine(task, [provider], CPU).query(Ask(start, [0], 0, 0)).updates[0]
    moved = task.layout.unflatten(start + update)
    own = norm_net().train()
    own(provider.dataset[0])
    torch.testing.assert_close(moved["1.running_mean"], own.get_buffer("1.running_mean"))
    torch.testing.assert_close(moved["1.running_var"], own.get_buffer("1.running_var"))


def test_dropout_draws_from_the_providers_own_stream() -> None:
    task, providers = Task(dropout_net(), cross_entropy), learners()
    assert task.model is not None
    ask = Ask(task.layout.flatten(task.model), [0, 1, 2], 1, 7)
    engine = LoopEngine(task, providers, CPU)
    torch.manual_seed(1)
    first = engine.query(ask).updates
    torch.manual_seed(2)
    state = torch.random.get_rng_state()
    assert torch.equal(first, engine.query(ask).updates)
    assert torch.equal(state, torch.random.get_rng_state())  # and nobody else's randomness is used up


class SinisterError(Exception):
    def __str__(self) -> str:
        return "two\nlines\t and \ud800"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda w: w * np.nan, "NaN"),
        (lambda w: w + np.inf, "infinity"),
        (lambda w: np.full_like(w, 1e38), "beyond"),
        (lambda w: np.full_like(w, -2 * LIMIT), "beyond"),
        (lambda w: w[:-1], "shape"),
        (lambda w: w[None], "shape"),
        (lambda w: w.tolist(), "list"),
        (lambda w: None, "NoneType"),
        (lambda w: "free money", "str"),
        (lambda w: w.astype(object), "object"),
        (lambda w: w.astype(complex), "complex"),
        (lambda w: w.astype(bool), "bool"),
        (lambda w: w.astype("U8"), "<U8"),
        (lambda w: 1 / 0, "ZeroDivisionError"),
        (lambda w: (_ for _ in ()).throw(SinisterError()), "SinisterError"),
    ],
)
def test_a_bad_reply_is_a_failure_with_its_reason(answer: Callable[[np.ndarray], Any], reason: str) -> None:
    good = Provider("good", oracle=lambda w: np.ones_like(w))
    engine = LoopEngine(Task(None, cross_entropy), [Provider("bad", oracle=answer), good], CPU)
    replies = engine.query(Ask(torch.ones(3, dtype=torch.float64), [0, 1], 3, 0))
    assert list(replies.failures) == [0]
    assert reason in str(replies.failures[0])
    assert (replies.updates[0] == 0).all()
    assert (replies.updates[1] == 1).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.float16])
def test_any_kind_of_real_number_is_taken(dtype: type) -> None:
    """A NumPy oracle answers in float64 by habit: that is converted, not refused."""
    engine = LoopEngine(Task(None, cross_entropy), [Provider("p", oracle=lambda w: np.ones(3, dtype))], CPU)
    replies = engine.query(Ask(torch.zeros(3, dtype=torch.float32), [0], 0, 0))
    assert not replies.failures
    assert replies.updates.dtype == torch.float32


def test_a_torch_oracle_may_answer_with_a_tensor() -> None:
    def oracle(w: np.ndarray) -> Any:
        return (torch.from_numpy(w).requires_grad_() * 2).float()

    engine = LoopEngine(Task(None, cross_entropy), [Provider("p", oracle=oracle)], CPU)
    replies = engine.query(Ask(torch.ones(3, dtype=torch.float64), [0], 0, 0))
    assert not replies.failures and not replies.updates.requires_grad
    assert torch.equal(replies.updates, torch.full((1, 3), 2.0, dtype=torch.float64))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ([0.0, 0.0, 0.0], "the update is a list, not a vector"),
        (torch.zeros(2), "the update has shape [2], not [3]"),
        (torch.zeros(3, dtype=torch.int64), "the update holds torch.int64, not torch.float32"),
        (torch.tensor([0.0, 0.0, float("nan")]), "the update holds NaN or infinity"),
    ],
)
def test_an_engine_of_ones_own_cannot_slip_a_bad_update_in(answer: Any, reason: str) -> None:
    """Whoever computed it, an update is looked at where the replies are collected."""
    replies = Replies.of(Ask(torch.ones(3), [4, 7], 0, 0), [answer, torch.ones(3)])
    assert {who: str(code) for who, code in replies.failures.items()} == {4: reason}
    assert torch.equal(replies.updates, torch.tensor([[0.0] * 3, [1.0] * 3]))


def test_an_oracle_cannot_change_the_arbiters_parameters() -> None:
    def greedy(w: np.ndarray) -> np.ndarray:
        w += 100
        return np.zeros(3)

    engine = LoopEngine(Task(None, cross_entropy), [Provider("p", oracle=greedy)], CPU)
    params = torch.zeros(3, dtype=torch.float64)
    engine.query(Ask(params, [0], 0, 0))
    assert (params == 0).all()


def test_a_bazaar_error_of_an_oracle_is_a_failed_reply_too() -> None:
    def oracle(w: np.ndarray) -> np.ndarray:
        raise BazaarError("my own market is closed")

    engine = LoopEngine(Task(None, cross_entropy), [Provider("p", oracle=oracle)], CPU)
    replies = engine.query(Ask(torch.zeros(3, dtype=torch.float64), [0], 0, 0))
    assert "my own market is closed" in str(replies.failures[0])


def bad_schedule(round: int) -> float:
    if round >= 2:
        raise RuntimeError("no step for this round")
    return 0.1


@pytest.mark.parametrize("name", ["loop", "vectorized"])
def test_a_schedule_that_raises_fails_that_provider_only(name: str) -> None:
    task = Task(seeded(lambda: nn.Linear(4, 2)), cross_entropy)
    assert task.model is not None
    providers = [Provider("bad", data=some_data(), oracle=LocalSGD(bad_schedule, 3)), *learners(2)]
    engine = make_engine(name, task, providers, "cpu")
    replies = engine.query(Ask(task.layout.flatten(task.model), [0, 1, 2], 2, 0))
    assert list(replies.failures) == [0]
    assert "no step for this round" in str(replies.failures[0])
    assert (replies.updates[1:] != 0).any(1).all()


@dataclass
class Decay:
    """A schedule as users write one: a dataclass, which has no hash."""

    first: float

    def __call__(self, round: int) -> float:
        return self.first / (1 + round)


def test_a_schedule_without_a_hash_is_taken() -> None:
    task = Task(seeded(lambda: nn.Linear(4, 2)), cross_entropy)
    assert task.model is not None
    providers = [Provider("p", data=some_data(), oracle=LocalSGD(Decay(0.1), 3))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # stacked or in the loop, both will do
        engine = make_engine("vectorized", task, providers, "cpu")
    assert not engine.query(Ask(task.layout.flatten(task.model), [0], 2, 0)).failures


class HasASpare(nn.Module):
    """A model with a head that this loss does not use: a usual sight in pretrained networks."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare = nn.Linear(4, 2), nn.Linear(4, 7)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.used(x)
        return outputs


def test_a_parameter_that_is_not_used_stays_as_it_is() -> None:
    task = Task(seeded(HasASpare), cross_entropy)
    assert task.model is not None
    ask = Ask(task.layout.flatten(task.model), [0], 0, 0)
    for engine in (LoopEngine(task, learners(1), CPU), VectorizedEngine(task, learners(1), CPU)):
        replies = engine.query(ask)
        assert not replies.failures
        moved = task.layout.unflatten(replies.updates[0])
        assert (moved["used.weight"] != 0).any()
        assert (moved["spare.weight"] == 0).all()


@pytest.mark.parametrize("name", ["loop", "vectorized"])
def test_a_frozen_parameter_stays_as_it_is(name: str) -> None:
    model = seeded(lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)))
    model.get_submodule("0").requires_grad_(False)
    task = Task(model, cross_entropy)
    engine = make_engine(name, task, learners(1), "cpu")
    moved = task.layout.unflatten(engine.query(Ask(task.layout.flatten(model), [0], 0, 0)).updates[0])
    assert (moved["2.weight"] != 0).any()
    assert set(moved) == {"2.weight", "2.bias"}  # the module keeps the rest, and only what is trained travels


def test_a_provider_without_data_or_oracle_is_named() -> None:
    with pytest.raises(BazaarError, match="provider remote"):
        LoopEngine(Task(None, cross_entropy), [Provider("remote")], CPU)
