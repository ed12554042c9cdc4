"""Sample orders: fair permutations, the same in NumPy and in torch, and plans that follow them to the letter."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import chi2

from databazaar import LocalSGD, Provider
from databazaar.codes import Code
from databazaar.engines import Ask, LoopEngine, VectorizedEngine
from databazaar.engines import vectorized as vectorized_module
from databazaar.engines.orders import Planner, Rows, first_of_each, sample_orders
from databazaar.learning.losses import cross_entropy
from databazaar.learning.models import build_model
from databazaar.learning.oracles import FullGradient, Oracle, StochasticGradient
from databazaar.learning.task import Task
from databazaar.randomness import oracle_key, oracle_keys, provider_tags, sample_order, words
from databazaar.testing import check_engine

CPU = torch.device("cpu")
WORD = 2**64
GOLDEN = 0x9E3779B97F4A7C15
keys_of_all_kinds = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)]))


def splitmix(state: int) -> int:
    """The generator's published form, in Python's own integers."""
    z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB % WORD
    return z ^ z >> 31


def signed(word: int) -> int:
    return word - WORD if word >= WORD // 2 else word


def test_the_mixing_is_splitmix64() -> None:
    assert [splitmix(k * GOLDEN % WORD) for k in (1, 2)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]


@given(st.integers(0, 2**70), st.integers(0, 2**40), st.text(max_size=5), st.integers(1, 20), st.integers(0, 3))
def test_keys_and_orders_are_what_they_are_said_to_be(
    seed: int, round: int, provider: str, samples: int, epoch: int
) -> None:
    tag = int.from_bytes(hashlib.sha256(f"oracle:{provider}".encode()).digest()[:8], "big")
    key = 0
    for part in (seed, round, tag):
        key = splitmix((key + part + GOLDEN) % WORD)
    assert oracle_key(seed, round, provider) == signed(key)
    ranks = [signed(splitmix((key + (epoch * 2**32 + i) * GOLDEN) % WORD)) for i in range(samples)]
    assert sample_order(signed(key), samples, epoch).tolist() == sorted(range(samples), key=ranks.__getitem__)


@given(keys_of_all_kinds, st.integers(1, 300), st.integers(0, 5))
def test_an_order_is_a_permutation(key: int, samples: int, epoch: int) -> None:
    assert sorted(sample_order(key, samples, epoch).tolist()) == list(range(samples))


def test_every_seed_round_provider_and_epoch_has_an_order_of_its_own() -> None:
    orders = [
        tuple(sample_order(oracle_key(seed, round, provider), 20, epoch).tolist())
        for seed in (0, 1, 2, 2**63, 2**64 - 1)
        for round in range(20)
        for provider in ("a", "b", "")
        for epoch in range(3)
    ]
    assert len(set(orders)) == len(orders)


def test_many_keys_at_once_are_the_keys_one_by_one() -> None:
    moments = [(0, 0), (0, 1), (1, 0), (2**63 + 5, 7), (3, 2**33)]
    tags = provider_tags(["a", "b", "a", "c", "ü"])
    seeds, rounds = zip(*moments, strict=True)
    many = oracle_keys(words(seeds), words(rounds), tags)
    assert many.tolist() == [
        oracle_key(*moment, provider) for moment, provider in zip(moments, ["a", "b", "a", "c", "ü"], strict=True)
    ]


def fair(counts: np.ndarray) -> bool:
    """Whether counts pass for draws of equal chances: false by accident once in a million."""
    expected = counts.sum() / counts.size
    return bool(((counts - expected) ** 2 / expected).sum() < chi2.isf(1e-6, counts.size - 1))


def test_orders_are_fair() -> None:
    """Rounds 0, 1, 2, … of one provider: each sample at each place, and each next to each, equally often."""
    samples, rounds = 12, 6000
    keys = oracle_keys(words([7] * rounds), words(range(rounds)), provider_tags(["bank"] * rounds))
    orders = np.stack([sample_order(key, samples) for key in keys.tolist()])
    for place in range(samples):
        assert fair(np.bincount(orders[:, place], minlength=samples))
    pairs = np.bincount(orders[:, 0] * samples + orders[:, 1], minlength=samples**2)
    assert fair(np.delete(pairs, np.arange(samples) * (samples + 1)))  # a sample never follows itself


def test_the_orders_of_two_epochs_and_of_two_seeds_have_nothing_to_do_with_each_other() -> None:
    samples, rounds = 10, 6000
    for other in ("epoch", "seed"):
        meetings = np.zeros((samples, samples), dtype=np.int64)
        for round in range(rounds):
            key = oracle_key(3, round, "bank")
            first = sample_order(key, samples)[0]
            second = (
                sample_order(key, samples, 1) if other == "epoch" else sample_order(oracle_key(4, round, "bank"), 10)
            )
            meetings[first, second[0]] += 1
        assert fair(meetings)


@given(
    st.lists(st.tuples(keys_of_all_kinds, st.integers(1, 40)), min_size=1, max_size=6),
    st.integers(1, 3),
    st.integers(0, 5),
)
@example([(0, 700), (-(2**63), 1), (2**63 - 1, 699)], 2, 0)
def test_torch_gives_numpys_orders(rows: list[tuple[int, int]], epochs: int, spare: int) -> None:
    width = max(size for _, size in rows) + spare
    keys, sizes = (torch.tensor(column) for column in zip(*rows, strict=True))
    orders = sample_orders(keys, sizes[:, None], width, epochs).view(len(rows), epochs, width)
    for (key, size), order in zip(rows, orders, strict=True):
        for epoch in range(epochs):
            assert order[epoch, :size].tolist() == sample_order(key, size, epoch).tolist()
            assert sorted(order[epoch].tolist()) == list(range(width))


@given(keys_of_all_kinds, st.integers(1, 60), st.integers(0, 3), st.integers(1, 60))
@example(0, 5000, 1, 64)
def test_the_first_of_an_order_are_found_without_the_rest(key: int, samples: int, epoch: int, first: int) -> None:
    assert sample_order(key, samples, epoch, first).tolist() == sample_order(key, samples, epoch)[:first].tolist()


@given(
    st.lists(st.tuples(keys_of_all_kinds, st.integers(1, 40)), min_size=1, max_size=6),
    st.integers(1, 3),
    st.integers(1, 40),
)
def test_torch_too_finds_the_first_alone(rows: list[tuple[int, int]], epochs: int, first: int) -> None:
    width = max(*(size for _, size in rows), first)
    keys, sizes = (torch.tensor(column) for column in zip(*rows, strict=True))
    for orders in (
        sample_orders(keys, sizes[:, None], width, epochs, first),
        first_of_each(keys, sizes[:, None], epochs, first),
    ):
        for (key, size), order in zip(rows, orders.view(len(rows), epochs, first), strict=True):
            for epoch in range(epochs):
                expected = sample_order(key, size, epoch)[:first].tolist()
                assert order[epoch, : len(expected)].tolist() == expected


oracles = st.one_of(
    st.just(FullGradient()),
    st.builds(StochasticGradient, batch_size=st.integers(1, 15)),
    st.builds(
        LocalSGD,
        step=st.just(0.1),
        batch_size=st.integers(1, 15),
        epochs=st.integers(1, 3),
        steps=st.none() | st.integers(1, 9),
    ),
)


@given(oracles, st.lists(st.integers(1, 12), min_size=1, max_size=5), st.data())
def test_a_plan_does_what_the_oracle_says(oracle: Oracle, sizes: list[int], data: st.DataObject) -> None:
    providers = data.draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=6))
    keys = [oracle_key(0, row, "p") for row in range(len(providers))]
    steps = torch.arange(1.0, len(providers) + 1)
    planner = Planner(oracle, torch.tensor(sizes), max(sizes))
    said = data.draw(st.booleans())
    largest = max(sizes[provider] for provider in providers) if said else None
    plan = planner(Rows(torch.tensor(providers), torch.tensor(keys), steps, largest))
    assert plan.providers.tolist() == providers
    assert plan.local.dtype == torch.int64 and plan.weights.dtype == plan.steps.dtype == torch.float32
    assert plan.local.shape == plan.weights.shape == (len(providers), *plan.steps.shape[1:], plan.local.shape[2])
    assert said or plan.local.shape[1:] == planner.shape
    assert plan.local.shape[1] <= planner.shape[0] and plan.local.shape[2] <= planner.shape[1]
    for row, (provider, key) in enumerate(zip(providers, keys, strict=True)):
        batches = [batch[batch >= 0].tolist() for batch in oracle.batches(sizes[provider], key)]
        for s, (local, weights) in enumerate(zip(plan.local[row], plan.weights[row], strict=True)):
            batch = batches[s] if s < len(batches) else []
            assert local[weights > 0].tolist() == batch
            assert weights[: len(batch)].tolist() == [float(np.float32(1 / len(batch))) for _ in batch]
            assert float(weights.sum()) == float(weights[: len(batch)].sum())
            assert float(plan.steps[row, s]) == (row + 1 if batch else 0)
            assert int(local.min()) >= 0 and int(local.max()) < sizes[provider]
        assert len(batches) <= plan.local.shape[1]


class Listed:
    """A schedule that knows some rounds only, and remembers which it was asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, round: int) -> float:
        self.asked.append(round)
        return {0: 0.1, 2: 0.3}[round]


def market(oracle: Oracle) -> tuple[Task, list[Provider], torch.Tensor]:
    rng = np.random.default_rng(0)
    sets = [(rng.normal(size=(size, 4)).astype(np.float32), rng.integers(0, 2, size)) for size in (5, 8, 3)]
    model = build_model("logistic", [4], 2)
    task = Task(model, cross_entropy)
    return task, [Provider(f"p{i}", data=one, oracle=oracle) for i, one in enumerate(sets)], task.layout.flatten(model)


def test_a_schedule_is_asked_once_a_round_and_fails_its_own_rows_only() -> None:
    schedule = Listed()
    task, providers, w = market(LocalSGD(schedule, 2))
    engine, loop = VectorizedEngine(task, providers, CPU), LoopEngine(task, providers, CPU)
    schedule.asked.clear()
    asks = [Ask(w, [0, 1, 2], round, seed) for seed in (1, 2) for round in (0, 2)]
    assert not any(reply.failures for reply in engine.query_all(asks))
    assert schedule.asked == [0, 2]
    good, bad, also_good = engine.query_all([asks[0], Ask(w, [2, 0], 1, 1), asks[1]])
    assert not good.failures and not also_good.failures
    assert bad.failures == dict.fromkeys((2, 0), Code.of("oracle-raised", type="KeyError", text="1"))
    assert (bad.updates == 0).all()
    torch.testing.assert_close(also_good.updates, loop.query(asks[1]).updates)


def test_rows_of_all_kinds_of_moments_are_those_of_the_loop() -> None:
    task, providers, w = market(LocalSGD(0.2, 2, epochs=2, momentum=0.5))
    engine, loop = VectorizedEngine(task, providers, CPU), LoopEngine(task, providers, CPU)
    moments, rows = [(0, 0), (2**64 + 3, 9), (2**63, 2**40), (5, 1)], [2, 0, 1, 0]
    asks = [
        Ask(w * (place + 1), [row], round, seed)
        for place, (row, (seed, round)) in enumerate(zip(rows, moments, strict=True))
    ]
    for ask, got in zip(asks, engine.query_all(asks), strict=True):
        torch.testing.assert_close(got.updates, loop.query(ask).updates, rtol=1e-4, atol=1e-6)


def test_nobody_asked_is_nobody_answered() -> None:
    task, providers, w = market(LocalSGD(0.2, 2))
    engine = VectorizedEngine(task, providers, CPU)
    nobody, somebody = engine.query_all([Ask(w, [], 0, 0), Ask(w, [1], 0, 0)])
    assert nobody.updates.shape == (0, len(w)) and not nobody.failures
    assert somebody.updates.shape == (1, len(w)) and not somebody.failures
    in_the_loop = LoopEngine(task, providers, CPU).query(Ask(w, [], 0, 0))
    assert in_the_loop.updates.shape == (0, len(w)) and not in_the_loop.failures


def test_rows_are_parted_by_their_work_and_little_of_a_stack_is_padding() -> None:
    """Sizes as unequal as of real providers: every row is computed once, and no stack is more than half padding."""
    rng = np.random.default_rng(0)
    sizes = [900, 3, 800, 40, 5, 2, 450, 60, 1, 7]
    model = build_model("logistic", [4], 2)
    task = Task(model, cross_entropy)
    for oracle in (LocalSGD(0.1, 4, steps=None), FullGradient(), LocalSGD(0.1, 4, steps=3), LocalSGD(0.1, 4, 2)):
        providers = [
            Provider(f"p{i}", (rng.normal(size=(size, 4)), rng.integers(0, 2, size)), oracle)
            for i, size in enumerate(sizes)
        ]
        engine = VectorizedEngine(task, providers, CPU)
        group, rows = engine._groups[0], np.arange(len(sizes))
        chunks = list(engine._chunks(group, rows))
        assert sorted(place for places, _ in chunks for place in places.tolist()) == rows.tolist()
        for places, largest in chunks:
            assert largest == max(sizes[place] for place in places)
            assert len(places) * group.work[places].max() <= 2 * group.work[places].sum()
        check_engine(engine, task, providers, task.layout.flatten(model))


def test_large_batches_are_stacked_only_as_far_as_caches_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    task, providers, w = market(StochasticGradient(3))
    engine = VectorizedEngine(task, providers, CPU)
    everybody = np.arange(3)
    assert [places.tolist() for places, _ in engine._chunks(engine._groups[0], everybody)] == [[0, 1, 2]]
    whole = engine.query(Ask(w, [0, 1, 2], 0, 0)).updates
    monkeypatch.setattr(vectorized_module, "CACHED_FLOATS", 2 * 3 * 4)
    assert [places.tolist() for places, _ in engine._chunks(engine._groups[0], everybody)] == [[0, 1], [2]]
    torch.testing.assert_close(engine.query(Ask(w, [0, 1, 2], 0, 0)).updates, whole)
