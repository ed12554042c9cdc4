"""Blending: both models learn from the same rows, the weight is the best one, and parts add up."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from blend_rounds import first_round
from databazaar import Arbiter, BazaarError, Consumer, Provider, Uniform
from databazaar.learners import Blending
from databazaar.learning.blend import Blend
from databazaar.learning.design import FARTHEST, Design
from databazaar.models import Auto
from databazaar.sklearn import MarketClassifier
from databazaar.testing import check_learner
from databazaar.training.blending import best_weight

Rows = tuple[NDArray[np.float32], NDArray[np.generic]]
KINDS = ("binary", "multiclass", "squared")


def rows(seed: int, count: int, kind: str = "binary", linear: float = 0.5) -> Rows:
    """Numbers, a category and holes; the target is linear in this share, and else a product."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 5))
    x[:, 4] = rng.integers(0, 3, count)
    signal = 2 * linear * (x[:, 0] - x[:, 1] + (x[:, 4] == 1)) + 3 * (1 - linear) * x[:, 2] * np.sign(x[:, 3])
    noisy = signal + rng.normal(size=count)
    x[rng.random((count, 5)) < 0.05] = np.nan
    y = {"binary": (noisy > 0).astype(int), "multiclass": np.digitize(noisy, [-1.0, 1.0])}.get(kind, noisy)
    return x.astype(np.float32), y.astype(np.float32) if kind == "squared" else y


def market(kind: str, providers: dict[str, Rows], linear: float = 0.5, own: int = 150, budget: int = 60) -> Arbiter:
    consumer = Consumer(
        Auto(categorical=(4,)),
        holdout=rows(99, 200, kind, linear),
        train=rows(98, own, kind, linear) if own else None,
        budget=budget,
        per_round=3,
        utility="negative-loss",
    )
    return Arbiter(consumer, [Provider(name, table) for name, table in providers.items()], Uniform())


def blend_of(model: object) -> Blend:
    assert isinstance(model, Blend)
    return model


@pytest.mark.parametrize("learner", [Blending(), Blending(rate=0.3, leaves=4, min_rows=2)], ids=repr)
def test_blending_keeps_the_contract(learner: Blending) -> None:
    check_learner(learner)


@pytest.mark.parametrize("own", [0, 150])
@pytest.mark.parametrize("kind", KINDS)
def test_gains_are_halfway_differences_of_parts_that_add_up(kind: str, own: int) -> None:
    arbiter = market(kind, {f"p{i}": rows(i, 100 + 20 * i, kind) for i in range(3)}, own=own)
    training, lesson = first_round(arbiter)
    for number in range(3):
        learned = training.learn(replace(lesson, round=number))
        before, scores = blend_of(lesson.model), learned.scores
        lesson = replace(
            lesson, model=learned.model, memory=learned.memory, utility=float(scores.utility[0]), round=number + 1
        )
    learned, before = training.learn(lesson), blend_of(lesson.model)
    x, y = arbiter.consumer.holdout
    table = x.double().numpy()
    linear = training._linear_move(before, lesson, [0, 1]).parts
    move = training.trees.moved(before.trees, lesson, [0, 1])
    trees, grown = move.after, move.parts
    moved = Blend(before.design, blend_of(learned.model).linear, trees, before.weight)
    parts = [before.mixed(linear[i], grown[i]) for i in (0, 1)]
    others = before.mixed(linear[2:].sum(0), grown[2:].sum(0))
    start, end = before.outputs(table), moved.outputs(table)
    assert np.allclose(start + sum(parts) + others, end, atol=1e-9)
    middle, loss = (start + end) / 2, before.trees.objective.loss
    for i, times in ((0, 2), (1, 1)):
        ahead, back = (
            -loss(middle + sign * parts[i] / 2, y.double().numpy()).mean() / (2 if kind == "squared" else 1)
            for sign in (1, -1)
        )
        gain = learned.gains[i]
        assert gain is not None
        scale = 1.0 if kind != "squared" else gain * times / (ahead - back)
        assert gain == pytest.approx(scale * (ahead - back) / times, rel=1e-4, abs=1e-9)
        assert kind != "squared" or scale == pytest.approx(round(scale), rel=1e-4)


@given(seed=st.integers(0, 999), kind=st.sampled_from(KINDS), far=st.sampled_from([0.0, 1.0, 30.0]))
def test_the_weight_is_the_best_drawn_to_the_middle(seed: int, kind: str, far: float) -> None:
    rng = np.random.default_rng(seed)
    start = _untrained(kind)
    y = {"binary": rng.integers(0, 2, 40), "multiclass": rng.integers(0, 3, 40)}.get(kind, rng.normal(size=40))
    one, other = (rng.normal(size=(40, start.trees.objective.classes)) * (1 + far) for _ in range(2))
    weight = best_weight(start.trees, one, other, y.astype(float))

    def losses(w: float | NDArray[np.float64]) -> NDArray[np.float64]:
        return start.trees.objective.loss((1 - w) * one + w * other, y.astype(float))

    tried = np.linspace(0, 1, 1001)
    best = float(tried[losses(tried[:, None, None]).mean(1).argmin()])
    more = losses(weight) - losses(best)
    assert 0 <= weight <= 1 and more.mean() <= 0.51 * more.std() / 40**0.5 + 1e-4 * (1 + losses(best).mean())
    assert (weight - 0.5) * (best - 0.5) >= -1e-3
    middle = losses(0.5) - losses(best)
    if middle.mean() <= 0.45 * middle.std() / 40**0.5:
        assert weight == 0.5


@cache
def _untrained(kind: str) -> Blend:
    arbiter = market(kind, {"p": rows(1, 20, kind)}, budget=3)
    return blend_of(arbiter.learner.begin(arbiter.consumer))


@pytest.mark.parametrize(("linear", "share"), [(1.0, "linear"), (0.0, "trees")])
def test_the_table_decides_which_of_the_two_counts(linear: float, share: str) -> None:
    arbiter = market("binary", {f"p{i}": rows(i, 200, linear=linear) for i in range(5)}, linear, budget=90)
    arbiter.run()
    bought = blend_of(arbiter.model)
    assert (bought.weight < 0.5) == (share == "linear")
    x, y = rows(500, 3_000, linear=linear)

    def loss(scores: NDArray[np.float64]) -> float:
        return float(bought.trees.objective.loss(scores, y.astype(float)).mean())

    table = x.astype(np.float64)
    alone = loss(bought.linear_scores(table)), loss(bought.trees.outputs(table))
    assert loss(bought.outputs(table)) < min(alone) + 0.01
    own = arbiter.training().own_rows_alone()
    assert loss(bought.outputs(table)) < loss(blend_of(own).outputs(table))


numbers = st.floats(allow_nan=True, allow_infinity=True, width=32) | st.integers(-3, 3).map(float)


@given(
    own=arrays.arrays(np.float64, st.tuples(st.integers(1, 12), st.just(3)), elements=numbers),
    new=arrays.arrays(np.float64, st.tuples(st.integers(0, 5), st.just(3)), elements=numbers),
    codes=st.lists(st.integers(-1, 9), min_size=12, max_size=12),
)
def test_a_design_is_finite_whatever_the_columns_hold(
    own: NDArray[np.float64], new: NDArray[np.float64], codes: list[int]
) -> None:
    own[:, 2] = codes[: len(own)]
    design = Design.of(own, categorical=[2])
    for table in (own, new):
        columns = design(table)
        assert columns.shape == (len(table), design.width) and np.isfinite(columns).all()
        assert (np.abs(columns) <= FARTHEST).all()
    again = Design.from_arrays(design.arrays())
    assert (again(new) == design(new)).all() and design.fits(3) and not design.fits(0)


@given(data=st.data())
def test_changed_bytes_are_refused_or_predict(data: st.DataObject) -> None:
    stored = _untrained("binary").stored.array.copy()
    for _ in range(data.draw(st.integers(1, 3))):
        stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    try:
        back = Blend.restored(stored)
    except BazaarError as refusal:
        assert "no blend" in str(refusal) or "no boosted trees" in str(refusal)
    else:
        assert back.outputs(np.zeros((2, 5))).shape == (2, 1)


def test_an_estimator_blends_too() -> None:
    x, y = rows(1, 600)
    fitted = MarketClassifier("auto", budget=90, per_round=3, random_state=0).fit(
        x, y, provider_of=np.arange(600) % 4 - 1
    )
    new, known = rows(2, 500)
    assert isinstance(fitted.model_, Blend) and fitted.score(new, known) > 0.75
    assert math.isclose(fitted.predict_proba(new)[0].sum(), 1)
