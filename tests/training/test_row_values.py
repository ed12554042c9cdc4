"""Values of single rows: the gain of a provider with that row alone, whoever the row belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from databazaar import Arbiter, Consumer, Provider
from databazaar.engines import Replies
from databazaar.learners import Blending, Boosting, InRun, Learner, Newton
from databazaar.ledger import Accounts, Drawn
from databazaar.models import Trees
from databazaar.roster import RoundBudget
from databazaar.row_values import JudgedRows, RowSums, added
from databazaar.training import Learned, Lesson
from small_markets import blobs

Table = tuple[NDArray[Any], NDArray[Any]]
Numbers = NDArray[np.float64]


def network(inputs: int, outputs: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 5), nn.Tanh(), nn.Linear(5, outputs))


@dataclass(frozen=True)
class Family:
    """A model with a learner that judges all rows, and the targets that it is for."""

    model: Any
    learner: Learner
    classes: int = 2


FAMILIES = {
    "in-run": Family(network(4, 2), InRun(rate=0.01, judged=10_000)),
    "in-run, numbers": Family(network(4, 1), InRun(optimizer="sgd", judged=10_000), 1),
    "boosting": Family("trees", Boosting(trees=1, leaves=5, min_rows=3)),
    "boosting, classes": Family("trees", Boosting(trees=2, leaves=4, min_rows=3), 3),
    "boosting, numbers": Family(Trees(rising=(0,)), Boosting(trees=1, leaves=5, min_rows=3), 1),
    "newton": Family("logistic", Newton(ridge=1.0), 3),
    "newton, numbers": Family("linear", Newton(ridge=1.0), 1),
    "blending": Family("auto", Blending(trees=1, leaves=5, min_rows=3)),
}
families = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())


def table(family: Family, seed: int, count: int) -> Table:
    rng = np.random.default_rng(seed)
    x, y = blobs(rng, count, flip=0.2)
    x = x.astype(np.float64)
    if family.classes == 1:
        return x, x[:, 0] + 0.5 * rng.normal(size=count)
    return x, y if family.classes == 2 else np.where(x[:, 1] > 0.5, 2, y)


def learned_from(family: Family, tables: Sequence[Table], draws: Sequence[int], utility: str) -> tuple[Lesson, Learned]:
    """The second round of a market in which these tables are drawn as often; the first one is of other rows."""
    holdout, other = table(family, 997, 60), table(family, 998, 80)
    consumer = Consumer(family.model, 1000, holdout, utility, per_round=1)
    every = [other, *tables]
    providers = [Provider(f"p{i}", each) for i, each in enumerate(every)]
    arbiter = Arbiter(consumer, providers, learner=family.learner)
    run, task = arbiter.begin(Accounts(arbiter.rules)), consumer.task
    state, answers = run.state, [(task.inputs(p.dataset[0]), task.targets(p.dataset[1])) for p in providers]

    def lesson(model: Any, memory: Any, scores: tuple[float, float | None], drawn: Sequence[int], round: int) -> Lesson:
        budget = RoundBudget(len(drawn), np.ones(len(every), dtype=np.int64))
        asked = dict.fromkeys(drawn)
        rows, places = {i: answers[i] for i in asked}, {i: np.arange(len(answers[i][1])) for i in asked}
        replies = Replies(torch.empty(len(asked), 0), {}, rows=rows, places=places)
        drawn_now = Drawn(np.array(drawn), np.ones(len(drawn)), budget)
        return Lesson(model, memory, *scores, drawn_now, replies, round, values_rows=round > 0)

    first = run.training.learn(lesson(state.model, state.memory, (state.utility, state.loss), [0], 0))
    assert first.scores.loss is not None and not first.rows
    scores = float(first.scores.utility[0]), float(first.scores.loss[0])
    second = lesson(first.model, first.memory, scores, [i + 1 for i in draws], 1)
    return second, run.training.learn(second)


def parts(whole: Table, places: Sequence[Sequence[int]]) -> list[Table]:
    return [(whole[0][list(at)], whole[1][list(at)]) for at in places]


@families
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 99), utility=st.sampled_from(["negative-loss", "exp-loss"]))
def test_a_row_is_worth_what_a_provider_of_this_row_alone_would_be(family: Family, seed: int, utility: str) -> None:
    whole = table(family, seed, 30)
    _, learned = learned_from(family, [whole], [0], utility)
    alone = [[place] for place in range(30)]
    _, slowly = learned_from(family, parts(whole, alone), range(30), utility)
    wanted = np.array([slowly.gains[place + 1] for place in range(30)], dtype=np.float64)
    found = learned.rows[1].gains
    size = np.abs(wanted).max() + 1e-12
    assert np.abs(found - wanted).max() <= 0.01 * size
    each = np.concatenate([slowly.rows[place + 1].gains for place in range(30)])
    np.testing.assert_allclose(each, found, rtol=1e-4, atol=1e-5 * size)


@families
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 99), names=st.lists(st.integers(0, 3), min_size=40, max_size=40))
def test_rows_under_several_names_are_worth_the_same(family: Family, seed: int, names: list[int]) -> None:
    whole = table(family, seed, 40)
    _, learned = learned_from(family, [whole], [0], "negative-loss")
    owned = [np.flatnonzero(np.array(names) == name).tolist() for name in sorted(set(names))]
    _, split = learned_from(family, parts(whole, owned), range(len(owned)), "negative-loss")
    found = np.zeros(40)
    for place, at in enumerate(owned):
        found[at] = split.rows[place + 1].gains
    size = np.abs(learned.rows[1].gains).max()
    np.testing.assert_allclose(found, learned.rows[1].gains, rtol=1e-4, atol=1e-5 * size)


@families
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 99), draws=st.lists(st.integers(0, 1), min_size=1, max_size=4))
def test_the_rows_of_a_provider_sum_to_its_gain(family: Family, seed: int, draws: list[int]) -> None:
    tables = [table(family, 3 * seed + i, 30 + 10 * i) for i in range(2)]
    lesson, learned = learned_from(family, tables, draws, "negative-loss")
    for i in lesson.drawn.asked:
        gain = learned.gains[i]
        assert gain is not None
        size = np.abs(learned.rows[i].gains).sum()
        # Newton's part is the whole step, so its gain has a third order
        assert learned.rows[i].gains.sum() == pytest.approx(gain, abs=0.1 * size)


@families
def test_the_order_of_rows_changes_no_value_and_twins_are_worth_the_same(family: Family) -> None:
    x, y = table(family, 5, 30)
    x[7], y[7] = x[20], y[20]
    order = np.random.default_rng(1).permutation(30)
    values = learned_from(family, [(x, y)], [0], "negative-loss")[1].rows[1]
    moved = learned_from(family, [(x[order], y[order])], [0], "negative-loss")[1].rows[1]
    for one, other in ((values.gains, moved.gains), (values.losses, moved.losses)):
        np.testing.assert_allclose(one[order], other, rtol=1e-4, atol=1e-6 * np.abs(one).max())
        assert one[7] == pytest.approx(one[20], rel=1e-5)


def test_in_run_values_are_products_of_gradients() -> None:
    family = FAMILIES["in-run, numbers"]
    whole = table(family, 3, 25)
    lesson, learned = learned_from(family, [whole], [0], "negative-loss")
    model = network(4, 1)

    def gradient(rows: tuple[Any, Any]) -> Tensor:
        from databazaar.training.parameters import vector_of

        leaf = vector_of(lesson.model).clone().requires_grad_()
        pieces = torch.split(leaf, [p.numel() for p in model.parameters()])
        named = {n: piece.view(p.shape) for (n, p), piece in zip(model.named_parameters(), pieces, strict=True)}
        x, y = (torch.as_tensor(each, dtype=torch.float32) for each in rows)
        errors = torch.func.functional_call(model, named, (x,)).reshape(y.shape) - y
        return torch.autograd.grad((errors**2).mean() / 2, leaf)[0]

    way = gradient(table(family, 997, 60)) / (1 - 0.9)
    slopes = np.array([float(gradient((whole[0][[j]], whole[1][[j]])) @ way) for j in range(25)])
    found = learned.rows[1].gains
    np.testing.assert_allclose(found / found.sum(), slopes / slopes.sum(), rtol=0.02, atol=1e-3)


def test_the_losses_of_rows_are_those_of_the_model_that_the_round_began_with() -> None:
    family = FAMILIES["newton, numbers"]
    x, y = table(family, 4, 20)
    lesson, learned = learned_from(family, [(x, y)], [0], "negative-loss")
    weights = lesson.model.stored.array
    np.testing.assert_allclose(learned.rows[1].losses, (x @ weights[:-1] + weights[-1] - y) ** 2 / 2, rtol=1e-4)


def test_sums_are_by_place_in_the_table() -> None:
    rows = JudgedRows(np.array([1.0, 2.0]), np.array([0.5, 0.1]))
    sums = added({}, {3: rows}, {3: np.array([4, 1, 0])}, 0.4)
    sums = added(sums, {3: rows}, {3: np.array([1, 0, 4])}, 0.4)
    kept = RowSums(sums[3])
    assert kept.times.tolist() == [1, 2, 0, 0, 1]
    assert kept.brought.tolist() == [2.0, 3.0, 0.0, 0.0, 1.0]
    np.testing.assert_allclose(kept.fit, [0.3, 0.1, 0.0, 0.0, -0.1])
