"""A linear model of the grams of texts: AdaGrad as a slow reading of it says, parts that add up, and blends with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from blend_rounds import first_round
from databazaar import Arbiter, BazaarError, Consumer, Provider, Uniform
from databazaar.learning.blend import Blend, Linear
from databazaar.learning.design import Design
from databazaar.learning.grams import BATCH, FIRST, RATE, Bags, Passes, Seen, TextRows, begun, buckets_for
from databazaar.learning.linear import LinearProblem
from databazaar.learning.losses import binary_cross_entropy, cross_entropy, squared_error
from databazaar.models import GRAM_BUCKETS, Auto
from databazaar.training.linear_part import Party, TextPart

SLOTS, VOCABULARY = 6, 40
LOSSES = {"binary": (binary_cross_entropy, 1), "classes": (cross_entropy, 3), "numbers": (squared_error, 1)}


def rows(seed: int, count: int, kind: str = "binary", noise: float = 0.0) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """A number, and up to six different words of forty; every word speaks for one answer."""
    rng = np.random.default_rng(seed)
    x = np.full((count, 1 + SLOTS), np.nan)
    x[:, 0] = rng.normal(size=count)
    spoken = np.random.default_rng(1).normal(size=VOCABULARY)
    signal = x[:, 0].copy()
    for row in range(count):
        there = rng.permutation(VOCABULARY)[: rng.integers(0, SLOTS + 1)]
        x[row, 1 : 1 + len(there)] = there * 5_003
        signal[row] += 2 * spoken[there].sum()
    signal = np.where(rng.random(count) < noise, -signal, signal)
    y = {"binary": (signal > 0).astype(int), "classes": np.digitize(signal, [-1.0, 1.0])}.get(kind, signal)
    return x.astype(np.float32), y.astype(np.float32) if kind == "numbers" else y


def text_rows(x: NDArray[np.float32], y: NDArray[Any], buckets: int, times: Tensor, party: Tensor) -> TextRows:
    columns = torch.from_numpy(np.column_stack([x[:, 0], np.ones(len(x))])).double()
    return TextRows(columns, Bags.of(torch.from_numpy(x[:, 1:]), buckets), torch.from_numpy(y).double(), times, party)


@pytest.mark.parametrize("kind", LOSSES)
@given(seed=st.integers(0, 99), count=st.integers(1, 2 * BATCH + 9))
def test_a_pass_is_adagrad_row_by_row(kind: str, seed: int, count: int) -> None:
    loss, outputs = LOSSES[kind]
    problem, (x, y) = LinearProblem(loss, outputs, 2, ridge=1.0), rows(seed, count, kind)
    rng = np.random.default_rng(seed)
    times, party = torch.from_numpy(rng.integers(1, 3, count)).double(), torch.from_numpy(rng.integers(0, 3, count))
    table = text_rows(x, y, buckets_for(outputs), times, party)
    order = torch.from_numpy(rng.permutation(count))
    seen = Seen.of(table.columns, table.bags, buckets_for(outputs))
    at, squares = begun(problem)
    passes = Passes(problem, table, order, 3, seen)
    parts = [passes.over(at, squares)[0] for _ in range(2)]

    words = {place * 5_003 for place in range(VOCABULARY)}
    dense = np.stack([np.isin(x[:, 1:], [word]).any(1) for word in sorted(words)], 1).astype(float)
    dense /= np.maximum(1, dense.sum(1, keepdims=True)) ** 0.5
    features = np.concatenate([dense, table.columns.numpy()], 1)
    rates = np.append(np.full(len(words), RATE), [RATE / 2**0.5] * 2)
    w, total = np.zeros((outputs, features.shape[1])), np.full((outputs, features.shape[1]), FIRST)
    batches = -(-count // BATCH)
    for place in [*range(batches)] * 2:
        batch = order[place::batches].numpy()
        scores = torch.from_numpy(features[batch] @ w.T)
        slopes = problem.slopes(scores, table.y[batch])[0].numpy() * times[batch].numpy()[:, None]
        gradient = slopes.T @ features[batch] / times[batch].sum().item()
        total += gradient**2
        w += rates * gradient / np.sqrt(total)
    expected = features @ w.T
    found = at.scores(table.columns, table.bags).numpy()
    np.testing.assert_allclose(found, expected, atol=2e-3 * max(1, np.abs(expected).max()))
    np.testing.assert_allclose(torch.stack(parts).sum((0, 1)).numpy(), found, atol=1e-4 * max(1, np.abs(found).max()))


@given(st.lists(st.integers(0, 9), max_size=5))
def test_rows_of_bags_are_taken_as_of_a_table(chosen: list[int]) -> None:
    x, places = torch.from_numpy(rows(3, 10)[0][:, 1:]), torch.tensor(chosen, dtype=torch.int64)
    weights = torch.arange(VOCABULARY * 5_003).float()[:, None]
    whole, part = Bags.of(x, len(weights)), Bags.of(x[places], len(weights))
    taken = whole[places]
    assert torch.equal(taken.buckets, part.buckets) and torch.equal(taken.sizes, part.sizes)
    assert torch.equal(taken.scores(weights), whole.scores(weights)[places])


def test_more_outputs_have_fewer_buckets() -> None:
    assert buckets_for(8) == GRAM_BUCKETS > buckets_for(9) and buckets_for(1000) * 1000 <= 2**21


@pytest.mark.parametrize("aside", [False, True])
def test_passes_end_where_rows_set_aside_are_no_better(aside: bool) -> None:
    """Where labels are a coin, one pass teaches nothing that holds; without rows to judge by, one is made."""
    x, y = rows(0, 600)
    coin = np.random.default_rng(5).integers(0, 2, 600)
    design = Design.of(x[:, :1].astype(float))
    part = TextPart(design, LinearProblem(binary_cross_entropy, 1, 2, ridge=1.0), first=1)
    holdout, start = (torch.from_numpy(x[:50]), torch.from_numpy(y[:50])), part.unfitted(np.zeros((1, 2)))
    set_aside = np.arange(600) % 4 == 0 if aside else np.zeros(600, dtype=bool)
    moves = {}
    for name, labels in (("told", y), ("coin", coin)):
        table = torch.from_numpy(x), torch.from_numpy(labels)
        moved = part.moved(start, part.init(), [Party(table, 1.0, set_aside)], 1, holdout)
        after, memory, parts = moved.after, moved.memory, moved.parts
        moves[name] = np.abs(parts).max()
        assert (moves[name] > 0) == any(not torch.equal(memory[key], part.init()[key]) for key in memory)
        scores = after.scores(design(x[:50, :1].astype(float)), x[:50, 1:].astype(float))
        np.testing.assert_allclose(scores, parts.sum(0), atol=1e-4)
    assert moves["told"] > 1 and (moves["coin"] == 0) == aside


def market(kind: str, budget: int = 60, own: int = 150) -> Arbiter:
    providers = {"honest": rows(1, 400, kind), "more": rows(2, 300, kind), "wrong": rows(3, 400, kind, noise=0.8)}
    consumer = Consumer(
        Auto(grams=SLOTS),
        holdout=rows(99, 300, kind),
        train=rows(98, own, kind) if own else None,
        budget=budget,
        per_round=3,
        utility="negative-loss",
    )
    return Arbiter(consumer, [Provider(name, table) for name, table in providers.items()], Uniform())


@pytest.mark.parametrize("own", [0, 150])
@pytest.mark.parametrize("kind", LOSSES)
def test_parts_of_a_blend_with_grams_add_up(kind: str, own: int) -> None:
    arbiter = market(kind, own=own)
    training, lesson = first_round(arbiter)
    learned = training.learn(lesson)
    lesson = replace(
        lesson, model=learned.model, memory=learned.memory, utility=float(learned.scores.utility[0]), round=1
    )
    before, after = lesson.model, training.learn(lesson)
    assert isinstance(before, Blend) and isinstance(after.model, Blend)
    move = training._linear_move(before, lesson, [0, 1])
    linear, parts = move.after, move.parts
    x = arbiter.consumer.holdout[0].double().numpy()
    moved = replace(before, linear=linear).linear_scores(x) - before.linear_scores(x)
    np.testing.assert_allclose(parts.sum(0), moved, atol=1e-4)
    towards = np.random.default_rng(0).normal(size=parts[0].shape)
    for place, times in ((0, 2), (1, 1)):
        values, whole = move.row_gains(place, towards) * times, float((parts[place] * towards).sum())
        assert len(values) == len(arbiter.providers[place].dataset[1]) and np.isfinite(values).all()
        assert values.sum() == pytest.approx(whole, rel=0.25, abs=0.1 * np.abs(values).sum())
    assert len(parts) == 2 + (own > 0) and np.abs(parts).max() > 0
    assert np.array_equal(after.model.linear.grams, linear.grams)


def test_words_are_learned_from_what_is_bought_and_bring_pay() -> None:
    arbiter = market("binary", budget=120, own=0)
    report = arbiter.run()
    brought = {one.provider: one.gain for one in report.brought}
    assert brought["honest"] > 0 > brought["wrong"]
    assert isinstance(arbiter.model, Blend)
    x, y = rows(55, 500)
    assert ((arbiter.model.outputs(x)[:, 0] > 0) == y).mean() > 0.85
    assert "linear" in arbiter.model.size_in_words


def test_a_blend_with_grams_is_stored_whole_and_strange_bytes_are_refused() -> None:
    arbiter = market("binary", budget=9)
    arbiter.run()
    blend, x = arbiter.model, rows(5, 30)[0]
    assert isinstance(blend, Blend)
    again = Blend.restored(blend.stored.array)
    assert again.stored.hash == blend.stored.hash and np.array_equal(again.outputs(x), blend.outputs(x))
    for grams in (blend.linear.grams[:, :0], blend.linear.grams[:, 0], blend.linear.grams * np.nan):
        with pytest.raises(BazaarError, match="these bytes are no blend"):
            Blend.restored(replace(blend, linear=Linear(blend.linear.columns, grams)).stored.array)


def test_the_same_seed_gives_the_same_model() -> None:
    found = []
    for _ in range(2):
        arbiter = market("classes", budget=12)
        arbiter.run()
        found.append(arbiter.model.stored.hash)
    assert found[0] == found[1]
