"""The vectorized engine, in both its forms, equals the loop for any mix of models, oracles and sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from databazaar import LocalSGD, Provider, build_model
from databazaar.codes import Code
from databazaar.engines import Ask, Engine, LoopEngine, Replies, VectorizedEngine
from databazaar.engines import vectorized as vectorized_module
from databazaar.learning.losses import binary_cross_entropy, cross_entropy, squared_error
from databazaar.learning.oracles import FullGradient, Oracle, StochasticGradient, compute_update
from databazaar.learning.task import Cosine, Halving, Task
from databazaar.randomness import oracle_key
from databazaar.testing import check_engine

CPU = torch.device("cpu")


class Tanh(nn.Module):
    """A module of the user's own, with a plain parameter and a parameter that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 5)
        self.scale = nn.Parameter(torch.full((5,), 0.7))
        self.second = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(x.flatten(1))) * self.scale
        outputs: Tensor = self.second(torch.tanh(hidden) * self.scale)
        return outputs


def _custom() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return Tanh()


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], bool]] = {
    "linear": (lambda: build_model("linear", [6], 2), (6,), False),
    "logistic": (lambda: build_model("logistic", [6], 3), (6,), True),
    "mlp": (lambda: build_model("mlp", [2, 3], 3, hidden=[7, 5]), (2, 3), True),
    "mlp-regression": (lambda: build_model("mlp", [6], 1, hidden=[4]), (6,), False),
    "one-logit": (lambda: build_model("mlp", [6], 1, hidden=[4]), (6,), True),
    "no-bias": (lambda: nn.Sequential(nn.Linear(6, 4, bias=False), nn.Tanh(), nn.Linear(4, 3)), (6,), True),
    "cnn": (lambda: build_model("cnn", [1, 8, 8], 3), (1, 8, 8), True),
    "custom": (_custom, (6,), True),
}

oracles = st.one_of(
    st.just(FullGradient()),
    st.builds(StochasticGradient, batch_size=st.integers(1, 9)),
    st.builds(
        LocalSGD,
        step=st.sampled_from([0.05, 0.2, Halving(0.2, 2), Halving(0.1, 1)]),
        batch_size=st.integers(1, 9),
        epochs=st.integers(1, 3),
        momentum=st.sampled_from([0.0, 0.5, 0.9]),
        steps=st.sampled_from([None, 1, 2, 4, 64]),
        weight_decay=st.sampled_from([0.0, 0.1]),
    ),
    st.builds(
        LocalSGD,
        step=st.sampled_from([0.01, Cosine(0.05, 3)]),
        batch_size=st.integers(1, 9),
        epochs=st.integers(1, 2),
        steps=st.sampled_from([None, 3]),
        optimizer=st.just("adam"),
        weight_decay=st.sampled_from([0.0, 0.1]),
    ),
)


def make(name: str, oracles: Sequence[Oracle], sizes: list[int], seed: int = 0) -> tuple[Task, list[Provider]]:
    build, shape, classes = MODELS[name]
    torch.manual_seed(0)
    model, rng = build(), np.random.default_rng(seed)
    outputs, kinds = 2 if name == "linear" else 1, 2 if name == "one-logit" else 3
    providers = [
        Provider(
            f"p{i}",
            data=(
                rng.normal(size=(size, *shape)).astype(np.float32),
                rng.integers(0, kinds, size) if classes else rng.normal(size=(size, outputs)).astype(np.float32),
            ),
            oracle=oracle,
        )
        for i, (oracle, size) in enumerate(zip(oracles, sizes, strict=True))
    ]
    by_class = binary_cross_entropy if name == "one-logit" else cross_entropy
    return Task(model, by_class if classes else squared_error), providers


def start(task: Task) -> Tensor:
    assert task.model is not None
    return task.layout.flatten(task.model)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[str, list[Oracle], list[int], int]:
    name = draw(st.sampled_from([key for key in MODELS if key != "cnn"]))
    n = draw(st.integers(1, 5))
    kinds = draw(st.lists(oracles, min_size=1, max_size=3))
    mixed = [kinds[draw(st.integers(0, len(kinds) - 1))] for _ in range(n)]
    sizes = draw(st.lists(st.integers(1, 11), min_size=n, max_size=n))
    return name, mixed, sizes, draw(st.integers(0, 99))


SGD = LocalSGD(step=0.1, batch_size=4, epochs=2, momentum=0.9)


@settings(max_examples=60)
@given(worlds())
@example(("mlp", [SGD] * 4, [1, 3, 4, 11], 0))
@example(("no-bias", [SGD, FullGradient(), StochasticGradient(2), SGD], [5, 6, 7, 2], 0))
@example(("logistic", [LocalSGD(Halving(0.2, 1), 5)] * 3, [2, 5, 6], 0))
def test_vectorized_equals_loop(world: tuple[str, list[Oracle], list[int], int]) -> None:
    name, mixed, sizes, seed = world
    task, providers = make(name, mixed, sizes, seed)
    engine = VectorizedEngine(task, providers, CPU)
    check_engine(engine, task, providers, start(task))


@pytest.mark.parametrize("oracle", [FullGradient(), StochasticGradient(3), LocalSGD(0.1, 4, 2, 0.5)], ids=repr)
def test_vectorized_equals_loop_on_images(oracle: Oracle) -> None:
    task, providers = make("cnn", [oracle] * 3, [3, 7, 5])
    check_engine(VectorizedEngine(task, providers, CPU), task, providers, start(task))


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    task, providers = make("mlp", [LocalSGD(0.1, 3, momentum=0.5)] * 5 + [FullGradient()] * 2, [2, 9, 4, 4, 7, 3, 5])
    ask = Ask(start(task), [6, 0, 3, 1, 2, 5, 4], 3, 11)
    expected = VectorizedEngine(task, providers, CPU).query(ask).updates
    of_one = vectorized_module.CHUNK_BYTES["cpu"] // VectorizedEngine(task, providers, CPU)._groups[0].most
    for rows, room in ((1, 1), (2, 2 * of_one + 100)):
        monkeypatch.setitem(vectorized_module.CHUNK_BYTES, "cpu", room)
        engine = VectorizedEngine(task, providers, CPU)
        assert engine._groups[0].most == rows
        torch.testing.assert_close(engine.query(ask).updates, expected, rtol=1e-5, atol=1e-6)


def test_query_all_equals_separate_queries() -> None:
    mixed: list[Oracle] = [SGD, FullGradient(), SGD, StochasticGradient(2)]
    task, providers = make("mlp", mixed, [5, 6, 7, 2])
    engine = VectorizedEngine(task, providers, CPU)
    w = start(task)
    asks = [Ask(w, [0, 1, 2], 0, 1), Ask(w * 1.1, [3], 5, 2), Ask(w - 0.1, [2, 0], 1, 1)]
    for ask, reply in zip(asks, engine.query_all(asks), strict=True):
        torch.testing.assert_close(reply.updates, engine.query(ask).updates, rtol=1e-5, atol=1e-6)
        assert reply.failures == {}


def test_query_all_names_failures_by_ask() -> None:
    task, providers = make("linear", [LocalSGD(1e12, 1), LocalSGD(0.1, 1)], [9, 9])
    engine = VectorizedEngine(task, providers, CPU)
    w = start(task)
    first, second = engine.query_all([Ask(w, [1], 0, 0), Ask(w, [0, 1], 0, 0)])
    assert first.failures == {}
    assert list(second.failures) == [0]
    assert (second.updates[0] == 0).all()
    torch.testing.assert_close(second.updates[1], first.updates[0], rtol=1e-5, atol=1e-6)
    assert list(LoopEngine(task, providers, CPU).query(Ask(w, [0, 1], 0, 0)).failures) == [0]


SAME_IN_TORCH: list[tuple[LocalSGD, Callable[..., torch.optim.Optimizer]]] = [
    (LocalSGD(0.05, 4, 3, 0.9), lambda w: torch.optim.SGD(w, lr=0.05, momentum=0.9)),
    (LocalSGD(0.05, 4, 3, steps=4), lambda w: torch.optim.SGD(w, lr=0.05)),
    (LocalSGD(0.05, 4, 2, 0.5, weight_decay=0.2), lambda w: torch.optim.SGD(w, 0.05, 0.5, weight_decay=0.2)),
    (LocalSGD(0.01, 4, 3, optimizer="adam"), lambda w: torch.optim.Adam(w, lr=0.01)),
    (
        LocalSGD(0.01, 4, 3, optimizer="adam", weight_decay=0.3),
        lambda w: torch.optim.AdamW(w, lr=0.01, weight_decay=0.3),
    ),
]


@pytest.mark.parametrize(("oracle", "optimizer_of"), SAME_IN_TORCH)
def test_the_loops_local_oracle_is_that_of_torch_optim(
    oracle: LocalSGD, optimizer_of: Callable[..., torch.optim.Optimizer]
) -> None:
    """The reference against torch's own optimizer and autograd."""
    task, providers = make("custom", [oracle], [10])
    assert task.model is not None
    x, y = providers[0].dataset
    batches = oracle.batches(10, oracle_key(3, 2, "p0"))
    got = compute_update(oracle, task, (x, y), start(task), 2, oracle_key(3, 2, "p0"))
    model = _custom()
    optimizer = optimizer_of(model.parameters())
    for batch in batches:
        rows = torch.from_numpy(batch[batch >= 0])
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model(x[rows]), y[rows]))
        optimizer.step()
    torch.testing.assert_close(got, task.layout.flatten(model) - start(task), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("oracle", [FullGradient(), StochasticGradient(4)], ids=repr)
def test_gradient_oracles_give_the_negative_gradient(oracle: Oracle) -> None:
    task, providers = make("mlp", [oracle], [9])
    x, y = providers[0].dataset
    (batch,) = oracle.batches(9, oracle_key(0, 1, "p0"))
    got = compute_update(oracle, task, (x, y), start(task), 1, oracle_key(0, 1, "p0"))
    model = build_model("mlp", [2, 3], 3, hidden=[7, 5])
    rows = torch.from_numpy(batch)
    torch.autograd.backward(nn.functional.cross_entropy(model(x[rows]), y[rows]))
    expected = torch.cat([-p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-6)


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 3))
def test_every_epoch_uses_every_sample_once(samples: int, batch: int, epochs: int) -> None:
    batches = LocalSGD(0.1, batch, epochs, steps=None).batches(samples, oracle_key(0, 0, "p0"))
    per_epoch = batches.reshape(epochs, -1)
    for order in per_epoch:
        assert sorted(order[order >= 0].tolist()) == list(range(samples))
    assert (batches >= 0).any(1).all()  # no step without a sample


def test_randomness_follows_seed_round_and_provider_only() -> None:
    task, providers = make("mlp", [StochasticGradient(2)] * 3, [8, 8, 8])
    engine, w = LoopEngine(task, providers, CPU), start(task)
    both = engine.query(Ask(w, [0, 2], 4, 9)).updates
    assert torch.equal(both[1], engine.query(Ask(w, [2], 4, 9)).updates[0])
    assert not torch.equal(both[1], engine.query(Ask(w, [2], 5, 9)).updates[0])
    assert not torch.equal(both[1], engine.query(Ask(w, [2], 4, 10)).updates[0])


class Repeats(nn.Module):
    """Two biases whose gradients are the same tensor to autograd."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3, bias=False)
        self.one = nn.Parameter(torch.zeros(3))
        self.two = nn.Parameter(torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.linear(x) + (self.one + self.two)
        return outputs


class Spreads(nn.Module):
    """A parameter that only enters through its sum, so that its gradient is one number spread out."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.tilt = nn.Parameter(torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.linear(x) * (1 + self.tilt.sum())
        return outputs


def _shared_activation() -> nn.Module:
    activation = nn.Tanh()
    return nn.Sequential(nn.Linear(6, 5), activation, nn.Linear(5, 4), activation, nn.Linear(4, 3))


def _tied() -> nn.Module:
    tied = nn.Linear(6, 6)
    return nn.Sequential(tied, nn.Tanh(), tied, nn.Tanh(), nn.Linear(6, 3))


def _tied_above() -> nn.Module:
    tied = nn.Linear(6, 6)
    return nn.Sequential(nn.Linear(6, 6), nn.Tanh(), tied, nn.Tanh(), tied, nn.Linear(6, 3))


def _shared_weight() -> nn.Module:
    first, second = nn.Linear(6, 6), nn.Linear(6, 6)
    second.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), nn.Linear(6, 3))


def _shared_weight_above() -> nn.Module:
    first, second = nn.Linear(6, 6), nn.Linear(6, 6)
    second.weight = first.weight
    return nn.Sequential(nn.Linear(6, 6), nn.Tanh(), first, nn.Tanh(), second, nn.Linear(6, 3))


AWKWARD = [Repeats, Spreads, _shared_activation, _tied, _tied_above, _shared_weight, _shared_weight_above]


@pytest.mark.parametrize("build", AWKWARD, ids=lambda f: f.__name__.strip("_"))
def test_awkward_modules_are_computed_alike(build: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    model, rng = build(), np.random.default_rng(0)
    data = [(rng.normal(size=(n, 6)).astype(np.float32), rng.integers(0, 3, n)) for n in (4, 7)]
    providers = [Provider(f"p{i}", data=d, oracle=LocalSGD(0.2, 2, 1, 0.9)) for i, d in enumerate(data)]
    task = Task(model, cross_entropy)
    before = start(task)
    engine = VectorizedEngine(task, providers, CPU)
    assert torch.equal(start(task), before)  # and the module is still whole
    check_engine(engine, task, providers, before)


def test_a_weight_that_two_layers_share_is_moved_once_by_both_of_their_gradients() -> None:
    first, second = nn.Linear(6, 6), nn.Linear(6, 6)
    second.weight = first.weight
    model = nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), nn.Linear(6, 3))
    rng = np.random.default_rng(0)
    provider = Provider("p", (rng.normal(size=(7, 6)), rng.integers(0, 3, 7)), FullGradient())
    x, y = provider.dataset
    nn.functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
    expected = -torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    task = Task(model, cross_entropy)
    replies = LoopEngine(task, [provider], CPU).query(Ask(start(task), [0], 0, 0))
    torch.testing.assert_close(replies.updates[0], expected)


class OffByALittle(Engine):
    """An engine that is wrong for one provider only."""

    name, device = "off", CPU

    def __init__(self, inner: LoopEngine) -> None:
        self._inner = inner

    def query(self, ask: Ask) -> Replies:
        replies = self._inner.query(ask)
        scale = torch.tensor([1.01 if i == 2 else 1.0 for i in ask.providers])[:, None]
        return Replies(replies.updates * scale, replies.failures)

    def close(self) -> None:
        self._inner.close()


class ForgetsOrder(OffByALittle):
    def query(self, ask: Ask) -> Replies:
        ordered = Ask(ask.params, sorted(ask.providers), ask.round, ask.seed)
        return self._inner.query(ordered)


class IgnoresRound(OffByALittle):
    def query(self, ask: Ask) -> Replies:
        return self._inner.query(Ask(ask.params, ask.providers, 0, ask.seed))


class InventsFailures(OffByALittle):
    def query(self, ask: Ask) -> Replies:
        return Replies(self._inner.query(ask).updates, {ask.providers[0]: Code("lazy")})


class MixesAsks(OffByALittle):
    """Right for one ask, and for several it takes the first one's seed for all."""

    def query(self, ask: Ask) -> Replies:
        return self._inner.query(ask)

    def query_all(self, asks: Sequence[Ask]) -> list[Replies]:
        return [self.query(replace(ask, seed=asks[0].seed)) for ask in asks]


class AnswersOnce(MixesAsks):
    def query_all(self, asks: Sequence[Ask]) -> list[Replies]:
        return [self.query(asks[0])]


class LosesRows(OffByALittle):
    def query(self, ask: Ask) -> Replies:
        replies = self._inner.query(ask)
        return Replies(replies.updates[:1], replies.failures)


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (OffByALittle, "the update of p2 is off"),
        (ForgetsOrder, "is off"),
        (IgnoresRound, "is off"),
        (InventsFailures, "failures"),
        (LosesRows, "stacked"),
        (MixesAsks, "is off"),
        (AnswersOnce, "4 asks must get as many replies"),
    ],
)
def test_check_engine_catches(broken: type[OffByALittle], complaint: str) -> None:
    task, providers = make("logistic", [LocalSGD(0.1, 3)] * 4, [5, 6, 7, 8])
    engine = LoopEngine(task, providers, CPU)
    check_engine(engine, task, providers, start(task))
    with pytest.raises(AssertionError, match=complaint):
        check_engine(broken(engine), task, providers, start(task))
