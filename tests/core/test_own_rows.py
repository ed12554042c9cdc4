"""The consumer's own rows: divided among their purposes, fitted, and part of every round's average."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from databazaar import Arbiter, BazaarError, Callback, Consumer, Progress, Provider, Uniform
from databazaar.learning.inputs import NamedInputs
from databazaar.learning.oracles import FullGradient, LocalSGD, compute_update
from databazaar.learning.own_rows import OWN_ROWS, fit_own_rows, joined, refit
from databazaar.learning.split import split_rows
from databazaar.learning.task import Task
from databazaar.randomness import oracle_key
from databazaar.runs.folder import RunFolder
from small_markets import blobs

Shares = tuple[float, ...]
SHARES: st.SearchStrategy[Shares] = st.sampled_from([(0.5, 0.5), (0.5, 0.3, 0.2), (0.0, 1.0), (0.1, 0.0, 0.9), (1.0,)])


@given(
    labels=st.lists(st.integers(0, 3), min_size=30, max_size=80),
    shares=SHARES,
    floats=st.booleans(),
)
def test_rows_are_divided_once_each_and_every_class_alike(labels: list[int], shares: Shares, floats: bool) -> None:
    y = np.array(labels, dtype=np.float64 if floats else np.int64)
    parts = split_rows(y, shares)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(y)))
    assert all(part.tolist() == sorted(part.tolist()) for part in parts)
    groups = [np.ones(len(y), dtype=bool)] if floats else [y == label for label in set(labels)]
    for share, part in zip(shares, parts, strict=True):
        for group in groups:
            assert abs(group[part].sum() - share * group.sum()) <= 1
    np.random.seed(len(labels))  # the process's own generator plays no part
    for part, again in zip(parts, split_rows(y.copy(), shares), strict=True):
        np.testing.assert_array_equal(part, again)


@pytest.mark.parametrize(
    ("rows", "shares", "sentence"),
    [
        (10, (0.5, 0.6), "sum to 1"),
        (10, (1.2, -0.2), "zero or more"),
        (10, (), "sum to 1"),
        (2, (0.9, 0.1), "too few to keep 10% of them apart: add rows"),
    ],
)
def test_shares_that_cannot_be_had_are_refused(rows: int, shares: Shares, sentence: str) -> None:
    with pytest.raises(BazaarError, match=f"the hold-out: .*{sentence}"):
        split_rows(np.zeros(rows, dtype=np.int64), shares, "the hold-out")


def test_rows_to_start_from_need_rows_to_judge_by() -> None:
    for name in ("train", "audit"):
        given: dict[str, Any] = {name: ([[0.0]], [0])}
        with pytest.raises(BazaarError, match=f"{name} = \\(x, y\\) needs a holdout"):
            Consumer(np.zeros(2), budget=4, utility=lambda w: 0.0, **given)


def own_market(seed: int = 0, flip: float = 0.1, **more: Any) -> tuple[Consumer, list[Provider]]:
    rng = np.random.default_rng(seed)
    settings: dict[str, Any] = {"budget": 24, "per_round": 3, "holdout": blobs(rng, 40, flip=flip), **more}
    model = torch.nn.Linear(4, 2)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    consumer = Consumer(model, train=blobs(rng, 30, flip=flip), audit=blobs(rng, 60, flip=flip), **settings)
    providers = [Provider(f"p{i}", data=blobs(rng, 20, flip=i / 4), oracle=FullGradient()) for i in range(4)]
    return consumer, providers


def loss_on(consumer: Consumer, params: torch.Tensor, rows: Any) -> float:
    task = consumer.task
    assert task.model is not None
    model = task.model
    task.layout.load(model, params)
    with torch.no_grad():
        return float(torch.nn.functional.cross_entropy(model(rows[0]), rows[1]))


def test_own_rows_give_a_model_that_is_better_on_rows_that_took_no_part() -> None:
    consumer, _ = own_market()
    start, fit = consumer.untrained_parameters(), consumer.own_fit
    assert fit is not None and fit.steps > 0
    assert loss_on(consumer, fit.params, consumer.audit) < 0.6 * loss_on(consumer, start, consumer.audit)
    assert fit.loss == pytest.approx(loss_on(consumer, fit.params, consumer.holdout), rel=1e-5)
    again = own_market()[0].own_fit
    assert again is not None and torch.equal(again.params, fit.params)
    assert torch.equal(consumer.initial_parameters(), fit.params)


def test_the_pass_is_chosen_by_the_rows_that_judge() -> None:
    """No pass of any rate is better by them than the one that was found."""
    consumer, _ = own_market()
    assert consumer.train is not None and consumer.own_fit is not None
    for step in (0.3, 0.1, 0.03):
        params = consumer.untrained_parameters()
        for number in range(20):
            oracle = LocalSGD(step=step, batch_size=32, steps=None)
            key = oracle_key(0, number, OWN_ROWS)
            params = params + compute_update(oracle, consumer.task, consumer.train, params, number, key)
            assert loss_on(consumer, params, consumer.holdout) >= consumer.own_fit.loss - 1e-6


def test_refit_makes_as_many_passes_over_all_rows() -> None:
    consumer, _ = own_market(flip=0.0)
    fit, start = consumer.own_fit, consumer.untrained_parameters()
    assert fit is not None and consumer.train is not None and consumer.holdout is not None
    expected, rows = start, joined([consumer.train, consumer.holdout])
    for number in range(fit.steps):  # 30 rows are one batch, so a step is a pass
        oracle, key = LocalSGD(step=fit.step, batch_size=32, steps=None), oracle_key(0, number, OWN_ROWS)
        expected = expected + compute_update(oracle, consumer.task, rows, expected, number, key)
    found = refit(consumer.task, start, consumer.train, consumer.holdout, fit)
    assert torch.equal(found, expected)
    assert loss_on(consumer, found, consumer.audit) < loss_on(consumer, start, consumer.audit)


def regression(scale: float) -> tuple[Task, torch.Tensor, list[Any]]:
    rng = np.random.default_rng(3)
    consumer = Consumer("linear", holdout=(np.zeros((2, 2)), np.zeros(2)), budget=9)
    rows = []
    for n in (60, 30):
        x = torch.from_numpy(scale * rng.normal(size=(n, 2)).astype(np.float32))
        rows.append((x, x[:, 0] - x[:, 1]))
    return consumer.task, consumer.untrained_parameters(), rows


def test_learning_rates_that_diverge_are_survived() -> None:
    task, start, (train, judge) = regression(scale=4.0)  # 0.3 · 16 is far beyond 2
    fit = fit_own_rows(task, start, train, judge)
    assert torch.isfinite(fit.params).all() and fit.step < 0.3 and fit.loss < 0.01
    task, start, (train, judge) = regression(scale=100.0)  # every rate diverges: the model stays as it was brought
    fit = fit_own_rows(task, start, train, judge)
    assert torch.equal(fit.params, start) and fit.steps == 0
    torch.testing.assert_close(refit(task, start, train, judge, fit), start)


@pytest.mark.parametrize("scale", [8.0, 1e18])
def test_a_refit_that_fails_leaves_what_was_found(scale: float) -> None:
    """Rows on which the rate diverges: what comes of them is worse on rows that it has learned from, or no number."""
    task, start, (train, judge) = regression(scale=1.0)
    fit = fit_own_rows(task, start, train, judge)
    assert fit.step == 0.3
    assert torch.equal(refit(task, start, (scale * train[0], scale * train[1]), judge, fit), fit.params)


def test_a_plain_vector_has_nothing_to_fit() -> None:
    with pytest.raises(BazaarError, match="leave train out"):
        fit_own_rows(Task(None, lambda outputs, y: outputs), torch.zeros(3), *regression(1.0)[2])


def test_tables_are_joined_row_after_row_also_by_name() -> None:
    a, b = torch.arange(3.0)[:, None], torch.arange(4.0)[:, None]
    x, y = joined([(a, torch.zeros(3)), (b, torch.ones(4))])
    assert isinstance(x, torch.Tensor) and x.ravel().tolist() == [0, 1, 2, 0, 1, 2, 3]
    assert y.tolist() == [0] * 3 + [1] * 4
    x, _ = joined([(NamedInputs({"n": a}), torch.zeros(3)), (NamedInputs({"n": b}), torch.ones(4))])
    assert isinstance(x, NamedInputs) and x.tensors["n"].ravel().tolist() == [0, 1, 2, 0, 1, 2, 3]


class Keeps(Callback):
    """The parameters after every round."""

    def __init__(self) -> None:
        self.params: list[torch.Tensor] = []

    def on_round(self, progress: Progress) -> None:
        self.params.append(progress.params.cpu())


@pytest.mark.parametrize("engine", ["loop", "vectorized"])
def test_the_average_is_over_the_draws_and_the_consumer(engine: str) -> None:
    consumer, providers = own_market()
    kept, seed = Keeps(), 5
    report = Arbiter(consumer, providers, Uniform(), engine=engine, device="cpu", seed=seed).run(callbacks=[kept])
    fit, w = consumer.own_fit, consumer.initial_parameters()
    assert fit is not None and consumer.train is not None
    own_oracle = LocalSGD(step=min(fit.step, 0.1))
    for played, reached in zip(report.rounds, kept.params, strict=True):
        updates = []
        for access in played.accesses:
            provider = providers[access.provider]
            key = oracle_key(seed, played.number, provider.id)
            assert provider.data is not None and isinstance(provider.oracle, FullGradient)
            updates.append(compute_update(provider.oracle, consumer.task, provider.data, w, played.number, key))
        key = oracle_key(seed, played.number, OWN_ROWS)
        updates.append(compute_update(own_oracle, consumer.task, consumer.train, w, played.number, key))
        torch.testing.assert_close(reached, w + sum(updates) / 4, atol=1e-5, rtol=1e-5)
        w = reached


def test_where_all_replies_fail_the_own_update_moves_nothing() -> None:
    consumer, _ = own_market()
    broken = [Provider(f"p{i}", oracle=lambda w: w * np.nan) for i in range(2)]
    arbiter = Arbiter(consumer, broken, Uniform(), engine="loop", patience=2)
    report = arbiter.run()
    assert report.status == "nobody-answered" and report.spent == 0
    assert torch.equal(arbiter.last_parameters, consumer.initial_parameters())


def test_own_rows_cost_nothing_and_the_market_starts_from_their_model() -> None:
    consumer, providers = own_market()
    arbiter = Arbiter(consumer, providers, device="cpu")
    report = arbiter.run()
    assert report.spent == 24 == sum(payout.pay for payout in report.payouts)
    assert consumer.own_fit is not None
    assert report.rounds[0].loss == pytest.approx(consumer.own_fit.loss, rel=1e-5)


@pytest.mark.parametrize("dies_after", [1, 4, 7])
def test_a_run_with_own_rows_is_resumed_to_the_same_head(tmp_path: Path, dies_after: int) -> None:
    def arbiter() -> Arbiter:
        consumer, providers = own_market()
        return Arbiter(consumer, providers, device="cpu", seed=1)

    def cut(progress: Progress) -> None:
        if progress.round == dies_after:
            raise KeyboardInterrupt

    whole = arbiter().run()
    with pytest.raises(KeyboardInterrupt):
        arbiter().run(tmp_path / "run", tell=cut)
    report = arbiter().run(tmp_path / "run")
    assert (report.ledger_head, report.model_hash) == (whole.ledger_head, whole.model_hash)
    assert RunFolder(tmp_path / "run").audit().ok
