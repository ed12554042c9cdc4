"""A small model is computed on one thread wherever it is computed, and the caller has its number of threads back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from databazaar import Arbiter, BazaarError, Consumer, LocalSGD, MarketClassifier, Provider, judge_purchase
from databazaar.config.jobs import demo_job
from databazaar.config.play import begun
from databazaar.learning.losses import cross_entropy
from databazaar.learning.torch_state import SMALL_MODEL, VARIABLE
from databazaar.runs.trained import load_model
from databazaar.valuation import compare
from small_markets import blobs


@pytest.fixture(autouse=True)
def _two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(VARIABLE, raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    after = torch.get_num_threads()
    torch.set_num_threads(before)
    assert after == 2


def counted_market(hidden: int = 1) -> tuple[Arbiter, set[int]]:
    """A market whose loss notes with how many threads it is computed, wherever that is."""
    rng, seen = np.random.default_rng(0), set[int]()

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        seen.add(torch.get_num_threads())
        return cross_entropy(outputs, targets)

    model = nn.Sequential(nn.Linear(4, hidden), nn.Linear(hidden, 2))
    consumer = Consumer(
        model, loss=loss, budget=4, per_round=2, train=blobs(rng, 20), holdout=blobs(rng, 20), audit=blobs(rng, 20)
    )
    providers = [Provider(f"p{i}", blobs(rng, 20), LocalSGD(steps=2)) for i in range(3)]
    arbiter = Arbiter(consumer, providers, engine="loop", device="cpu")
    seen.clear()  # a consumer tries a batch of its rows when it is made
    return arbiter, seen


@pytest.mark.parametrize("folder", [None, "run"])
def test_a_run_and_its_judgement_keep_a_small_model_on_one_thread(folder: str | None, tmp_path: Path) -> None:
    arbiter, seen = counted_market()
    report = arbiter.run(None if folder is None else tmp_path / folder)
    assert seen == {1} and torch.get_num_threads() == 2
    judge_purchase(arbiter, report)
    assert seen == {1}


def test_a_large_model_keeps_torchs_number_of_threads() -> None:
    hidden = SMALL_MODEL // 14 + 1  # 7 parameters for each of the hidden, two models a round
    arbiter, seen = counted_market(hidden)
    assert len(arbiter.parameters) * 2 >= SMALL_MODEL
    seen.clear()
    arbiter.run()
    assert seen == {2}


def test_the_variable_sets_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    arbiter, seen = counted_market()
    monkeypatch.setenv(VARIABLE, "3")
    arbiter.run()
    assert seen == {3}
    for wrong in ("0", "-1", "many", "1.5", "1025"):
        monkeypatch.setenv(VARIABLE, wrong)
        with pytest.raises(BazaarError, match=f"DATABAZAAR_THREADS = {wrong!r} must be a whole number from 1 to 1024"):
            arbiter.run()


def test_methods_that_value_providers_use_one_thread() -> None:
    arbiter, seen = counted_market()
    compare(arbiter.consumer, arbiter.providers, ["osmd", "loo", "uniform"], seeds=2, engine="loop", device="cpu")
    assert seen == {1}


def test_the_ledger_names_the_number_of_threads_of_the_run(tmp_path: Path) -> None:
    with begun(demo_job(20, 0), tmp_path / "run") as playing:
        playing.settle()
        rules = playing.folder.need_rules()
    assert rules is not None and rules.environment["threads"] == "1"


def test_a_bought_model_answers_on_one_thread(tmp_path: Path) -> None:
    with begun(demo_job(20, 0), tmp_path / "run") as playing:
        playing.settle()
    trained, x, y = load_model(tmp_path / "run" / "model"), *blobs(np.random.default_rng(0), 40)
    fitted = MarketClassifier(budget=8, per_round=2, device="cpu").fit(x, y)
    assert trained.model is not None and trained.card.form is not None
    seen = list[int]()
    for model in (trained.model, fitted.model_):
        model.register_forward_hook(lambda *_: seen.append(torch.get_num_threads()))
    trained.predict(np.zeros((3, *trained.card.form.inputs)))
    fitted.predict(x)
    assert seen == [1, 1]
