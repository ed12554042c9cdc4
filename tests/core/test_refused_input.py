"""What a user gives from Python and cannot be used: one sentence that names it and says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from databazaar import Arbiter, BazaarError, Consumer, LocalSGD, Provider
from databazaar.learning.losses import squared_error
from databazaar.learning.oracles import FullGradient, StochasticGradient, compute_update
from databazaar.learning.task import Task

ROWS = [[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]]
CLASSES, NUMBERS = [0, 1, 1], [0.5, 1.5, 2.5]


def consumer(model: Any = "logistic", **more: Any) -> Consumer:
    return Consumer(model, **{"budget": 4, "per_round": 2, "holdout": (ROWS, CLASSES), **more})


def vector(first: Any = (0.0, 0.0), **more: Any) -> Consumer:
    return consumer(np.array(first), holdout=None, **{"utility": lambda w: 1.0, **more})


def data(x: Any, y: Any) -> Callable[[], object]:
    return lambda: Provider("north", data=(x, y))


def sold(x: Any, y: Any) -> Callable[[], object]:
    return lambda: Arbiter(consumer(), [Provider("north", data=(x, y))])


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "unknown utility": (
        lambda: consumer(utility="joy"),
        "utility kind 'joy' is unknown: use one of accuracy, auc, exp-loss",
    ),
    "unknown model": (
        lambda: Arbiter(consumer("forest"), [Provider("p", data=(ROWS, CLASSES))]),
        "model 'forest' is unknown: use one of auto, cnn, convnet, linear, logistic, mlp, trees, or a torch.nn.Module",
    ),
    "unknown loss": (
        lambda: consumer(loss="hinge"),
        "loss 'hinge' is unknown: use one of cross-entropy, binary-cross-entropy, squared",
    ),
    "empty vector": (lambda: vector([]), "model: a parameter vector must be finite and not empty"),
    "vector with NaN": (lambda: vector([0.0, np.nan]), "model: a parameter vector must be finite and not empty"),
    "name without hold-out": (
        lambda: consumer(holdout=None),
        "model 'logistic' is sized by the hold-out: give",
    ),
    "linear for classes": (lambda: consumer("linear"), "model 'linear' does not fit these targets: use logistic for"),
    "logistic for numbers": (lambda: consumer(holdout=(ROWS, NUMBERS)), "model 'logistic' does not fit these targets"),
    "utility without hold-out": (
        lambda: Arbiter(vector(utility="exp-loss"), [Provider("p", oracle=np.negative)], engine="loop").run(),
        "utility 'exp-loss' needs a torch model and a holdout = (x, y): give both",
    ),
    "id that is empty": (lambda: Provider(""), "provider id '' must be text that can be printed: give it a name"),
    "id of two lines": (lambda: Provider("a\nb"), r"provider id 'a\nb' must be text that can be printed"),
    "id that is a number": (lambda: Provider(7), "provider id 7 must be text"),  # type: ignore[arg-type]
    "oracle without data": (
        lambda: Provider("p", oracle=FullGradient()),
        "provider p: FullGradient needs data",
    ),
    "data that are elsewhere": (lambda: Provider("p").dataset, "provider p keeps its data to itself"),
    "rows without targets": (data(ROWS, CLASSES[:2]), "provider north: 3 rows of features and 2 targets: give one of"),
    "no rows": (data([], []), "provider north: 0 rows of features and 0 targets"),
    "NaN among features": (
        sold([[0.0, 0.0], [np.nan, 0.0]], [0, 1]),
        "provider north: the data hold NaN or infinity: remove",
    ),
    "infinity among targets": (data(ROWS, [0.0, 1.0, np.inf]), "provider north: the data hold NaN or infinity"),
    "labels beyond those of trees": (
        lambda: Arbiter(consumer("trees"), [Provider("p", data=(ROWS, [0, 1, 4]))]),
        "provider p: label 4 is none of the model's 2 classes, 0 to 1: number the classes from 0",
    ),
    "rows of another width for trees": (
        lambda: Arbiter(consumer("auto"), [Provider("p", data=(np.zeros((3, 5)), [0, 1, 1]))]),
        "provider p: a row has the shape [5], and a row of the hold-out has the shape [2]: give the same",
    ),
    "inputs by name for trees": (
        lambda: Arbiter(consumer("trees"), [Provider("p", data=({"a": np.zeros((3, 2))}, [0, 1, 1]))]),
        "provider p: inputs have names, and a row of the hold-out has the shape [2]",
    ),
    "rows of words": (data([["a"], ["b"]], [0, 1]), "provider north: the data are not numbers in rows"),
    "rows of two lengths": (data([[1.0], [1.0, 2.0]], [0, 1]), "provider north: the data are not numbers in rows"),
    "step of zero": (lambda: LocalSGD(step=0), "step = 0 must be above 0"),
    "batch of zero": (lambda: LocalSGD(batch_size=0), "batch_size = 0 must be between 1 and"),
    "epochs under zero": (lambda: LocalSGD(epochs=-1), "epochs = -1 must be between 1 and"),
    "step that is no number": (lambda: LocalSGD(step=float("nan")), "step = nan must be a finite number"),
    "no steps": (lambda: LocalSGD(steps=0), "steps = 0 must be between 1 and"),
    "an optimizer nobody knows": (
        lambda: LocalSGD(optimizer="adamm"),  # type: ignore[arg-type]
        "optimizer = 'adamm' must be one of 'sgd', 'adam'",
    ),
    "adam with momentum": (lambda: LocalSGD(optimizer="adam", momentum=0.5), "belongs to optimizer sgd"),
    "weights that grow": (lambda: LocalSGD(weight_decay=-1), "weight_decay = -1 must be at least 0"),
    "momentum of one": (lambda: LocalSGD(momentum=1.0), "momentum = 1.0 must be at least 0 and below 1: change it"),
    "stochastic batch of zero": (lambda: StochasticGradient(0), "batch_size = 0 must be between 1 and"),
    "learner of a vector": (
        lambda: Arbiter(vector(), [Provider("p", data=(ROWS, CLASSES))], engine="loop"),
        "provider p's oracle needs a torch model, not a plain vector",
    ),
    "update of a vector": (
        lambda: compute_update(
            LocalSGD(), Task(None, squared_error), Provider("p", data=(ROWS, CLASSES)).dataset, torch.zeros(2), 0, 0
        ),
        "this oracle needs a torch model, and the consumer brought a plain vector",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_one_sentence(case: str) -> None:
    attempt, words = REFUSED[case]
    with pytest.raises(BazaarError) as refused:
        attempt()
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_loss_that_nothing_implies_must_be_named() -> None:
    """Callables as oracles need none; whoever trains a model does, and is told so before or instead of a reply."""
    sentence = "the loss must be named: give loss='cross-entropy' or loss='squared-error'"
    judged: dict[str, Any] = {"model": nn.Linear(2, 1), "holdout": None, "utility": lambda model: 1.0}
    learners = [Provider("p", data=(ROWS, NUMBERS))]
    with pytest.raises(BazaarError, match=sentence):
        Arbiter(consumer(**judged), learners, engine="vectorized", device="cpu")
    report = Arbiter(consumer(**judged), learners, engine="loop", device="cpu").run()
    assert (report.status, report.spent) == ("nobody-answered", 0)
    assert sentence in str(report.rounds[0].accesses[0].failure)
    named = consumer(**judged, loss="squared-error")
    assert Arbiter(named, learners, engine="vectorized", device="cpu").run().spent == 4
