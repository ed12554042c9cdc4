"""Values from one training run, of providers and of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_diabetes
from torch import Tensor, nn

from databazaar import BazaarError, Consumer, Provider
from databazaar.engines import LoopEngine
from databazaar.learners import Averaging, Boosting, InRun, Newton
from databazaar.valuation import ExactShapley, InRunShapley, compare, row_values
from small_markets import blobs

WRONG = (0.0, 0.2, 0.5)


def market(model: Any = "logistic", utility: str = "negative-loss") -> tuple[Consumer, list[Provider]]:
    rng = np.random.default_rng(0)
    providers = [Provider(f"p{i}", blobs(rng, 80, flip=flip)) for i, flip in enumerate(WRONG)]
    return Consumer(model, 90, blobs(rng, 100), utility, per_round=3), providers


@pytest.mark.parametrize("model", ["logistic", "trees", "mlp"])
def test_one_training_ranks_providers_as_exact_values_do(model: str) -> None:
    consumer, providers = market(model)
    result = InRunShapley(rounds=10).run(consumer, providers)
    assert result.ranking() == ExactShapley(rounds=2).run(consumer, providers).ranking() == ("p0", "p1", "p2")
    assert result.trained is not None and np.isfinite(result.trained.utility)
    assert (result.cost.trainings, result.cost.oracle_calls, result.cost.utility_evaluations) == (1, 30, 10)
    assert "10 rounds" in result.stopped and not result.standard_errors.any()
    again = InRunShapley(rounds=10).run(consumer, providers)
    assert np.array_equal(result.values, again.values)


def test_a_provider_in_two_names_is_worth_what_it_is_whole() -> None:
    consumer, providers = market()
    x, y = blobs(np.random.default_rng(5), 60, flip=0.1)
    whole = [*providers, Provider("whole", (x, y))]
    halves = [*providers, Provider("one", (x[:20], y[:20])), Provider("two", (x[20:], y[20:]))]
    method = InRunShapley(rounds=4, learner=Newton(ridge=100.0))
    one, two = (method.run(consumer, every).values for every in (whole, halves))
    np.testing.assert_allclose(np.append(two[:3], two[3:].sum()), one, rtol=0.01)


def test_it_is_compared_with_the_others() -> None:
    consumer, providers = market()
    found = compare(consumer, providers, ["in-run", "loo"], options={"in-run": {"rounds": 5}})
    assert found["in-run"].payouts.sum() == 90 and found["in-run"].mean("trainings") == 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rounds": 0}, "rounds = 0 must be at least 1"),
        ({"learner": Averaging()}, "in-run values what trains on rows"),
        ({"engine": "theirs"}, "in-run needs the providers' rows here"),
    ],
)
def test_what_it_cannot_value_is_refused(settings: dict[str, Any], words: str) -> None:
    consumer, providers = market()
    if "engine" in settings:
        settings["engine"] = LoopEngine.make(consumer.task.copied(), providers, "cpu")
    with pytest.raises(BazaarError, match=words):
        InRunShapley(**settings).run(consumer, providers)


def with_wrong_labels(y: np.ndarray, share: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    wrong = np.random.default_rng(1).choice(len(y), round(share * len(y)), replace=False)
    y = y.copy()
    y[wrong] = 1 - y[wrong]
    return y, wrong


@pytest.mark.parametrize(
    ("model", "more"), [("trees", {}), ("logistic", {"learner": Newton(), "rounds": 5}), ("mlp", {"rounds": 20})]
)
def test_wrong_labels_fit_worst(model: str, more: dict[str, Any]) -> None:
    x, y = load_breast_cancer(return_X_y=True)
    y, wrong = with_wrong_labels(y)
    values = row_values((x - x.mean(0)) / x.std(0), y, model=model, **more)
    lowest = np.argsort(values.fit)[: len(wrong)]
    assert len(np.intersect1d(lowest, wrong)) > 0.8 * len(wrong)
    assert len(values.times) == len(y)


def test_wrong_numbers_fit_worst() -> None:
    x, y = load_diabetes(return_X_y=True)
    wrong = np.arange(0, len(y), 9)
    y = y / y.std()
    y[wrong] += 4.0
    assert len(np.intersect1d(np.argsort(row_values(x, y).fit)[:40], wrong)) >= 38


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 99))
def test_the_order_of_rows_does_not_matter(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = blobs(rng, 70, flip=0.2)
    x[rng.random(x.shape) < 0.1] = np.nan
    order = rng.permutation(70)
    one, other = (row_values(x[at], y[at], rounds=6) for at in (np.arange(70), order))
    for name in ("fit", "brought"):
        np.testing.assert_allclose(getattr(one, name)[order], getattr(other, name), rtol=1e-6, atol=1e-9)


def test_what_rows_bring_to_those_who_judge_is_what_their_provider_brings() -> None:
    rng = np.random.default_rng(3)
    rows, holdout = blobs(rng, 60, flip=0.2), blobs(rng, 40)
    learner = Boosting(rows=60, trees=1, leaves=4, rate=0.05)
    values = row_values(*rows, holdout, learner=learner, rounds=8)
    consumer = Consumer("trees", 1, holdout, "negative-loss", per_round=1)
    whole = InRunShapley(rounds=8, learner=learner).run(consumer, [Provider("rows", rows)])
    assert values.brought.sum() == pytest.approx(whole.values[0], rel=0.01)


def test_rows_that_judge_each_other_get_what_they_give() -> None:
    """To first order, what a row brings to all rows is what the rounds bring to it."""
    x, y = blobs(np.random.default_rng(4), 120, flip=0.2)
    learner = Boosting(rows=120, trees=1, leaves=4, rate=0.01)
    total = row_values(x, y, learner=learner, rounds=30)
    p = y.mean()
    begun = -np.where(y == 1, np.log(p), np.log(1 - p))
    longer = row_values(x, y, learner=learner, rounds=31)
    losses_of_last = 31 * longer.fit - 30 * total.fit  # L − l of the model after 30 rounds
    fallen = losses_of_last - losses_of_last.mean() + begun - begun.mean()
    brought = 120 * total.brought
    np.testing.assert_allclose(fallen, brought - brought.mean(), atol=0.06 * np.ptp(brought))


def test_a_module_of_ones_own_values_rows_too() -> None:
    x, y = blobs(np.random.default_rng(6), 100)
    y[:3] = 1 - y[:3]
    torch.manual_seed(0)
    values = row_values(x, y, model=nn.Linear(4, 2), learner=InRun(rate=0.05, least_steps=1), rounds=15)
    assert set(np.argsort(values.fit)[:3].tolist()) == {0, 1, 2}


class Diverging(nn.Linear):
    """A model that has no number for some rows."""

    def __init__(self) -> None:
        super().__init__(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / (x[:, :1] < 1).float()


def test_what_has_no_values_is_refused() -> None:
    x, y = blobs(np.random.default_rng(7), 30)
    with pytest.raises(BazaarError, match='learner "averaging" trains on no rows'):
        row_values(x, y, model="logistic", learner=Averaging())
    with pytest.raises(BazaarError, match="rounds = 0 must be at least 1"):
        row_values(x, y, rounds=0)
    with pytest.raises(BazaarError, match="the model has no finite loss on these rows"):
        row_values(x, y, model=Diverging(), rounds=3)
