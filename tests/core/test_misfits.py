"""Targets, models and losses that do not fit are named, or made right: never a utility beyond its bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from databazaar import Arbiter, BazaarError, Consumer, LocalSGD, Provider, Report
from databazaar.engines import Ask, LoopEngine, VectorizedEngine
from databazaar.learners import Averaging, InRun
from databazaar.learning.losses import PerSample, binary_cross_entropy, cross_entropy, per_sample, squared_error

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)
NUMBERS = (X @ np.array([1.0, -1.0, 0.5])).astype(np.float32)


def linear(outputs: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Linear(3, outputs)


def run(model: Any, y: Any, theirs: Any = None, engine: str = "vectorized", **more: Any) -> Report:
    consumer = Consumer(model, holdout=(X, y), budget=60, per_round=3, **more)
    data = [(X, y if theirs is None else theirs)] * 3
    providers = [Provider(f"p{i}", one, LocalSGD(0.3, 8)) for i, one in enumerate(data)]
    return Arbiter(consumer, providers, engine=engine, device="cpu").run()


Case = Callable[[], Any]
ONE_HOT = np.eye(2)[Y]
REFUSED: dict[str, tuple[Case, str]] = {
    "labels −1 and 1": (
        lambda: run(linear(2), 2 * Y - 1),
        "holdout: label -1 is none of the model's 2 classes",
    ),
    "too few outputs": (lambda: run(linear(2), Y + 1), "holdout: label 2 is none of the model's 2 classes"),
    "a logistic's negative labels": (lambda: run("logistic", 2 * Y - 1), "holdout: label -1 is none of"),
    "a provider's labels": (lambda: run(linear(2), Y, Y + 5), "provider p0: label 6 is none of the model's 2 classes"),
    "a provider's labels, by name": (lambda: run("mlp", Y, Y - 1, "loop"), "provider p0: label -1 is none of"),
    "one logit with three classes": (lambda: run(linear(1), Y + 1), "label 2 is none of the model's 2 classes"),
    "torch's loss and labels": (lambda: run(linear(2), 2 * Y - 1, loss=nn.CrossEntropyLoss()), "label -1 is none of"),
    "fractions as classes": (
        lambda: run(linear(2), NUMBERS, loss="cross-entropy"),
        "needs classes 0, 1, 2, … as targets",
    ),
    "one-hot classes": (
        lambda: run(linear(2), ONE_HOT.astype(int)),
        "targets of shape [40, 2] do not fit outputs of [2]",
    ),
    "a target too wide": (
        lambda: run(linear(1), np.stack([NUMBERS] * 2, 1)),
        "a target is 2 numbers and the model gives 1",
    ),
    "a model too wide": (lambda: run(linear(2), NUMBERS), "a target is 1 numbers and the model gives 2"),
    "inputs too wide": (lambda: run(nn.Linear(4, 2), Y), "holdout: the model cannot take these inputs (RuntimeError"),
    "a model of two tensors": (lambda: run(nn.LSTM(3, 2), Y), "the model gives a tuple, not a tensor"),
    "outputs without rows": (
        lambda: run(nn.Sequential(nn.Linear(3, 2), nn.Flatten(0)), Y),
        "its first dimension must be",
    ),
    "a mean of one's own": (
        lambda: run(linear(2), Y, loss=lambda o, y: cross_entropy(o, y).mean()),
        "the loss gives shape [] for a batch of 3 samples and must give one number for each",
    ),
    "spread over others' targets": (
        lambda: run(linear(1), NUMBERS, loss=lambda o, y: (o - y) ** 2),
        "the loss gives shape [3, 3] for a batch of 3",
    ),
    "a loss that is a float": (lambda: run(linear(1), NUMBERS, loss=lambda o, y: 0.5), "the loss gives float"),
    "a loss that cannot compare": (
        lambda: run(linear(2), Y, loss=lambda o, y: o @ y),
        "the loss cannot compare outputs",
    ),
    "a loss below zero": (
        lambda: run(linear(2), Y, loss=lambda o, y: -7 - o[:, 0]),
        "exp(−loss) needs one that is never",
    ),
    "accuracy of pixels": (
        lambda: run(nn.Unflatten(1, (3, 1)), Y, loss=lambda o, y: o.flatten(1).sum(1) ** 2, utility="accuracy"),
        "utility 'accuracy' needs one class per row",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_one_sentence_before_anything_is_paid(case: str) -> None:
    attempt, words = REFUSED[case]
    with pytest.raises(BazaarError) as refused:
        attempt()
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("engine", ["loop", "vectorized"])
@pytest.mark.parametrize("utility", ["accuracy", "exp-loss"])
def test_one_logit_is_two_classes(engine: str, utility: str) -> None:
    for y in (Y, Y[:, None], Y.astype(bool)):
        report = run(linear(1), y, engine=engine, utility=utility)
        assert report.rounds[0].utility < report.final_utility <= 1
        assert report.final_loss is not None and 0 < report.final_loss < 0.5
    given = run(linear(1), Y.astype(np.float32), engine=engine, loss=nn.BCEWithLogitsLoss())
    assert given.final_loss == pytest.approx(run(linear(1), Y, engine=engine).final_loss, rel=1e-5)


def test_the_accuracy_of_a_probability_is_counted_from_one_half() -> None:
    report = run(nn.Sequential(linear(1), nn.Sigmoid()), Y, utility="accuracy", loss=nn.BCELoss())
    assert report.final_utility > 0.9


@pytest.mark.parametrize("engine", ["loop", "vectorized"])
@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), nn.functional.cross_entropy], ids=["module", "function"])
def test_torchs_mean_over_a_batch_is_taken_apart(engine: str, loss: Any) -> None:
    ours, theirs = run(linear(2), Y, engine=engine), run(linear(2), Y[:, None], engine=engine, loss=loss)
    assert theirs.final_loss == pytest.approx(ours.final_loss, rel=1e-5)
    assert isinstance(loss, nn.CrossEntropyLoss) is (getattr(loss, "reduction", "") == "mean")


@pytest.mark.parametrize("engine", ["loop", "vectorized"])
@pytest.mark.parametrize("column", [False, True])
@pytest.mark.parametrize("loss", [None, nn.MSELoss()], ids=["implied", "torch's"])
def test_a_column_of_targets_is_never_spread_over_the_samples(engine: str, column: bool, loss: Any) -> None:
    y = NUMBERS[:, None] if column else NUMBERS
    report = run(linear(1), y, engine=engine, loss=loss)
    assert report.final_loss is not None and report.final_loss < 0.05
    flat = nn.Sequential(linear(1), nn.Flatten(0))
    assert run(flat, y, engine=engine, loss=loss).final_loss == pytest.approx(report.final_loss, rel=1e-4)


def test_whole_numbers_are_predicted_as_numbers_where_the_loss_says_so() -> None:
    whole = np.round(3 * NUMBERS).astype(int)
    expected = run("linear", whole.astype(np.float32))
    for model, loss in (("linear", "squared-error"), (linear(1), nn.MSELoss())):
        report = run(model, whole, loss=loss)
        assert report.final_loss is not None and report.final_loss < 1
    assert run("linear", whole, loss="squared-error").final_loss == pytest.approx(expected.final_loss, rel=1e-6)


def test_classes_that_are_written_as_floats_are_classes_where_the_loss_says_so() -> None:
    expected = run(linear(2), Y).model_hash
    assert run(linear(2), Y.astype(np.float64)[:, None], loss="cross-entropy").model_hash == expected


def test_a_hold_out_of_one_class_still_has_two() -> None:
    assert Consumer("logistic", 10, holdout=(X, np.zeros(40, dtype=int))).initial_parameters().shape == (8,)


def test_a_utility_of_exp_loss_never_passes_one() -> None:
    """A loss that falls below zero on the way, not in the first rows: those replies have no utility."""
    report = run(linear(2), Y, loss=lambda o, y: cross_entropy(o, y) + torch.where(o.abs().amax(1) > 2.5, -50.0, 0.0))
    assert all(0 <= one.utility <= 1 for one in report.rounds) and 0 <= report.final_utility <= 1


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=9), st.data())
def test_binary_cross_entropy_is_that_of_torch(odds: list[float], data: st.DataObject) -> None:
    y = torch.tensor(data.draw(st.lists(st.integers(0, 1), min_size=len(odds), max_size=len(odds))))
    outputs = torch.tensor(odds)[:, None]
    expected = nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], y.float(), reduction="none")
    torch.testing.assert_close(binary_cross_entropy(outputs, y), expected)


def test_a_loss_of_ones_own_with_one_number_per_sample_is_taken_as_it_is() -> None:
    def own(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets[:, None]).abs()

    taken = per_sample(own)
    assert isinstance(taken, PerSample) and per_sample(taken) is taken and per_sample(squared_error) is squared_error
    assert taken(torch.ones(4, 1), torch.zeros(4)).tolist() == [1.0] * 4
    several = per_sample(nn.MSELoss())(torch.tensor([[1.0, 3.0], [0.0, 0.0]]), torch.zeros(2, 2))
    assert several.tolist() == [5.0, 0.0]
    assert per_sample(max).__class__ is PerSample  # a builtin without a signature


def test_one_logit_above_other_layers_is_stacked_as_it_is_looped() -> None:
    rng = np.random.default_rng(2)
    x, model = rng.normal(size=(12, 64)).astype(np.float32), nn.Sequential(nn.Linear(64, 3), nn.ReLU(), nn.Linear(3, 1))
    consumer = Consumer(model, budget=4, per_round=2, holdout=(x, x[:, 0] > 0))
    providers = [Provider(f"p{i}", (x[i:], x[i:, 0] > 0), LocalSGD(0.1, 4)) for i in range(2)]
    ask = Ask(consumer.initial_parameters(), [0, 1], round=1, seed=3)
    engines = [kind(consumer.task, providers, torch.device("cpu")) for kind in (VectorizedEngine, LoopEngine)]
    stacked, looped = (engine.query(ask).updates for engine in engines)
    torch.testing.assert_close(stacked, looped, rtol=1e-4, atol=1e-6)


def test_inputs_that_do_not_fit_fail_as_replies_and_the_others_are_bought_from() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(40, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(int)
    consumer = Consumer("logistic", budget=20, per_round=4, holdout=(x, y))
    providers = [Provider("wide", (np.zeros((9, 7)), np.arange(9) % 2)), Provider("fine", (x, y))]
    with pytest.warns(UserWarning, match="another shape"):
        updates = Arbiter(consumer, providers, learner=Averaging()).run()
    for report in (updates, Arbiter(consumer, providers, learner=InRun()).run()):
        wide, fine = report.payouts
        assert (wide.pay, fine.failures) == (0, 0) and wide.failures and fine.pay
