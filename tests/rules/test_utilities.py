"""Utilities: AUC and F1 are scikit-learn's, they need no sum over rows, and the ledger says which one a market had."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score
from torch import Tensor

from databazaar import Arbiter, BazaarError, Consumer, LocalSGD, Provider, build_model
from databazaar.learning import utilities as scoring_module
from databazaar.learning.losses import cross_entropy
from databazaar.learning.task import Task
from databazaar.learning.utilities import Evaluator
from databazaar.reports.run_page import meaning
from databazaar.runs.folder import RunFolder
from databazaar.settings import setting
from databazaar.utilities import UTILITIES, Judged, Utility, utility_of
from databazaar.utilities.protocol import Scored

ROWS = 40


def judged(classes: int, models: int, seed: int, single: bool = False, ties: bool = False) -> Judged:
    rng = np.random.default_rng(seed)
    targets = np.concatenate([np.arange(classes), rng.integers(0, classes, ROWS - classes)])
    outputs = rng.normal(size=(models, ROWS, 1 if single else classes))
    if ties:
        outputs = outputs.round()
    losses = rng.random(models)
    return Judged(losses, torch.from_numpy(targets), torch.from_numpy(outputs))


def by_sklearn(kind: str, targets: Tensor, outputs: Tensor) -> float:
    y, o = targets.numpy(), outputs.numpy()
    answers = (o[:, 0] > 0).astype(int) if o.shape[1] == 1 else o.argmax(1)
    if kind == "accuracy":
        return float(accuracy_score(y, answers))
    two = o.shape[1] <= 2
    if kind == "f1":
        return float(f1_score(y, answers, average="binary" if two else "macro", zero_division=0.0))
    if two:
        return float(roc_auc_score(y, o[:, -1] - (o[:, 0] if o.shape[1] == 2 else 0)))
    return float(roc_auc_score(y, torch.softmax(outputs, -1).numpy(), multi_class="ovr", average="macro"))


@given(
    st.sampled_from(["accuracy", "auc", "f1"]), st.integers(2, 5), st.integers(0, 10**6), st.booleans(), st.booleans()
)
def test_they_are_those_of_scikit_learn(kind: str, classes: int, seed: int, single: bool, ties: bool) -> None:
    given_ = judged(classes, 3, seed, single and classes == 2, ties)
    assert given_.outputs is not None
    found = utility_of(kind).score(given_)
    wanted = [by_sklearn(kind, given_.targets, one) for one in given_.outputs]
    np.testing.assert_allclose(found, wanted, atol=1e-9)
    assert (found >= 0).all() and (found <= 1).all()


@pytest.mark.parametrize("kind", ["accuracy", "auc", "f1"])
def test_a_model_whose_outputs_are_not_finite_has_no_utility(kind: str) -> None:
    given_ = judged(3, 2, 0)
    assert given_.outputs is not None
    given_.outputs[1, 5, 0] = torch.nan
    found = utility_of(kind).score(given_)
    assert np.isfinite(found[0]) and np.isnan(found[1])


@pytest.mark.parametrize("kind", UTILITIES.kinds())
def test_the_hold_out_may_be_judged_in_pieces(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no sum over rows is scored on all of them, however few are passed at a time."""
    model = build_model("mlp", [5], 3)
    task = Task(model, cross_entropy)
    rng = np.random.default_rng(1)
    data = (torch.from_numpy(rng.normal(size=(ROWS, 5)).astype(np.float32)), torch.from_numpy(rng.integers(0, 3, ROWS)))
    stack = torch.randn(4, task.layout.width, generator=torch.Generator().manual_seed(3))
    whole = Evaluator(task, data, kind, torch.device("cpu")).score(stack)
    monkeypatch.setattr(scoring_module, "CHUNK_FLOATS", 600)
    pieces = Evaluator(task, data, kind, torch.device("cpu")).score(stack)
    np.testing.assert_allclose(pieces.utility, whole.utility, rtol=1e-6)


def test_what_a_utility_cannot_judge_is_refused() -> None:
    for kind in ("accuracy", "auc", "f1"):
        with pytest.raises(BazaarError, match=f"utility '{kind}' needs classes .* use exp-loss"):
            utility_of(kind).check(torch.zeros(3))
    with pytest.raises(BazaarError, match="'auc' needs rows of two classes"):
        utility_of("auc").check(torch.ones(5, dtype=torch.int64))
    with pytest.raises(BazaarError, match="utility kind 'acuracy' is unknown: did you mean 'accuracy'"):
        Consumer("logistic", budget=10, holdout=(np.zeros((4, 2)), np.array([0, 1, 0, 1])), utility="acuracy")


@dataclass(frozen=True)
class RecallOfClass(Utility):
    """The share of a class's rows that are found."""

    of: int = setting(1, "the class", at_least=0)
    kind: ClassVar[str] = "test-recall"
    bounded: ClassVar[bool] = True
    meaning: ClassVar[str] = "the share of a class's rows that are found"

    def score(self, judged: Judged) -> Scored:
        rows = judged.targets == self.of
        return judged.where_finite((judged.answers[:, rows] == self.of).double().mean(1))


@pytest.mark.parametrize(
    ("utility", "settings", "words"),
    [
        ("auc", {"kind": "auc"}, "Utility is the area under the ROC curve"),
        (RecallOfClass(0), {"kind": "test-recall", "of": 0}, "Utility is the share of a class's rows that are found"),
        (lambda model: 0.5, {"kind": "function", "name": "<lambda>"}, "Utility is the consumer’s own, <lambda>"),
    ],
    ids=["auc", "own class", "function"],
)
def test_the_ledger_says_which_it_was_and_the_report_reads_it_there(
    utility: object, settings: dict[str, object], words: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)), rng.integers(0, 2, 60)
    consumer = Consumer("logistic", budget=20, holdout=(x, y), utility=utility, per_round=2)  # type: ignore[arg-type]
    providers = [Provider(name, (x, y), LocalSGD()) for name in ("a", "b")]
    arbiter = Arbiter(consumer, providers, engine="loop")
    report = arbiter.run(tmp_path / "run")
    terms = RunFolder(tmp_path / "run").need_rules()
    assert terms is not None
    held = terms.rules["utility"]
    assert {name: value for name, value in held.items() if name != "from"} == settings
    assert report.rules["utility"] == held and meaning(report).startswith(words)
    assert RunFolder(tmp_path / "run").audit().ok
