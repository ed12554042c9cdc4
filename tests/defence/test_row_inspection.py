"""The watch of rows: near copies are found and chance ones are not, and held-back pay follows gains."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from databazaar import Arbiter, Consumer, Defence, Provider
from databazaar.learners import Boosting, InRun
from databazaar.market.inspection.rows import NEARER, RowInspection, Space, copies
from databazaar.market.run import Progress
from databazaar.runs.report import Report

Rows = tuple[NDArray[np.float32], NDArray[np.int64]]
STANDARD = Defence.named("standard").of_rows()
SMALL = Boosting(rate=0.3, leaves=8)
"""Few trees, of one size: three are tried where none is given."""


def rows(seed: int, count: int, features: int = 8) -> Rows:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, features))
    signal = x[:, 0] + x[:, 1] * x[:, 2] + 0.7 * np.abs(x[:, 3]) - 0.5
    return x.astype(np.float32), (rng.random(count) < 1 / (1 + np.exp(-2 * signal))).astype(np.int64)


def jittered(given: Rows, by: float, seed: int = 0) -> Rows:
    x, y = given
    order = np.random.default_rng(seed).permutation(len(y))
    return (x + by * np.random.default_rng(seed).normal(size=x.shape)).astype(np.float32)[order], y[order]


def played(providers: Mapping[str, Rows], model: str = "trees", budget: int = 200, **more: Any) -> Report:
    consumer = Consumer(model, holdout=rows(1000, 400), train=rows(1001, 300), budget=budget, per_round=4)
    sellers = [Provider(name, table) for name, table in providers.items()]
    given = {"learner": SMALL if model == "trees" else InRun(), "defence": "standard", **more}
    return Arbiter(consumer, sellers, **given).run()


def honest(count: int = 6) -> dict[str, Rows]:
    return {f"p{i}": rows(i, 400) for i in range(count)}


@given(
    seed=st.integers(0, 99),
    features=st.integers(1, 5),
    scale=st.floats(1e-3, 1e3),
    missing=st.floats(0, 0.5),
)
def test_near_copies_are_those_of_the_obvious_way(seed: int, features: int, scale: float, missing: float) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(30, features)) * scale
    x[rng.random(x.shape) < missing] = np.nan
    space = Space.of(torch.from_numpy(x))
    table, asked = space(torch.from_numpy(x[:20])), space(torch.from_numpy(x[15:]))
    wanted = []
    for row in asked.numpy():
        first, second = sorted(np.sqrt(((table.numpy() - row) ** 2).sum(1)).tolist())[:2]
        wanted.append(first < NEARER * second)
    assert copies(asked, table).tolist() == wanted


def test_units_and_orders_hide_nothing() -> None:
    """Copies are found in any units, since the consumer's rows set the scale; wide rows by random combinations."""
    for features in (6, 300):
        x = torch.from_numpy(rows(1, 200, features)[0])
        near = x + 0.02 * torch.from_numpy(rows(2, 200, features)[0])
        units = torch.logspace(-4, 4, features)
        space = Space.of(x * units)
        assert copies(space(near * units)[torch.randperm(200)], space(x * units)).mean() > 0.95
        other = torch.from_numpy(rows(3, 200, features)[0])
        assert copies(space(other * units), space(x * units)).mean() < 0.1


@pytest.mark.parametrize("model", ["trees", "mlp"])
@pytest.mark.parametrize("by", [0.0, 0.05, 0.3])
def test_who_sells_the_hold_out_is_flagged(model: str, by: float) -> None:
    report = played({**honest(), "leak": jittered(rows(1000, 400), by)}, model, budget=80)
    assert report.defended is not None
    assert {one.provider: one.what for one in report.defended.flagged} == {"leak": "leak"}
    (said,) = report.defended.flagged
    assert "near copies of hold-out rows" in said.sentence()
    pay = {one.provider: one.pay for one in report.payouts}
    assert pay["leak"] <= 0.05 * sum(pay.values())


def test_a_fifth_of_the_rows_is_enough() -> None:
    (x, y), (near, known) = rows(50, 400), jittered(rows(1000, 400), 0.05)
    x[:80], y[:80] = near[:80], known[:80]
    report = played({**honest(), "leak": (x, y)}, budget=80)
    assert report.defended is not None and [one.provider for one in report.defended.flagged] == ["leak"]


def test_copies_of_a_competitor_share_its_place() -> None:
    report = played({**honest(), **{f"copy{i}": jittered(rows(0, 400), 0.03, i) for i in range(3)}}, budget=400)
    assert report.defended is not None
    stand = next(one for one in report.defended.stands if one.provider == "p0")
    assert set(stand.shares_with) == {"copy0", "copy1", "copy2"}
    assert {"p0", "copy0", "copy1", "copy2"} >= {
        name for one in report.defended.merged for name in (one.provider, one.other)
    }


@pytest.mark.parametrize("kind", ["numbers", "few values", "one column", "the same people"])
def test_honest_markets_have_no_verdict_but_clearance(kind: str) -> None:
    """Also where rows repeat by chance: of few values, in one dimension, or of people that several have met."""
    rng = np.random.default_rng(0)

    def table(seed: int, count: int) -> Rows:
        x, y = rows(seed, count, 1 if kind == "one column" else 8) if kind != "one column" else _column(seed, count)
        if kind == "few values":
            x = np.round(x[:, :5]).clip(-1, 1)
        if kind == "the same people":
            x[:, 4:] = people[np.random.default_rng(seed).integers(0, 50, count)]
        return x, y

    people = rng.normal(size=(50, 4))
    consumer = Consumer("trees", holdout=table(1000, 400), train=table(1001, 300), budget=160, per_round=4)
    providers = [Provider(f"p{i}", table(i, 400)) for i in range(6)]
    report = Arbiter(consumer, providers, learner=SMALL, defence="standard").run()
    assert report.defended is not None
    assert {one.what for one in report.defended.rulings} <= {"cleared"}
    assert sum(one.pay for one in report.payouts) == 160


def _column(seed: int, count: int) -> Rows:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 1))
    return x.astype(np.float32), (rng.random(count) < 1 / (1 + np.exp(-2 * np.sin(3 * x[:, 0])))).astype(np.int64)


def test_rows_that_do_harm_are_not_paid_beyond_the_floor() -> None:
    """Labels that are wrong in nine of ten rows."""
    x, y = rows(60, 400)
    wrong = np.where(np.random.default_rng(0).random(400) < 0.9, 1 - y, y)
    report = played({**honest(), "wrong": (x, wrong)}, budget=600, patience=100, learner=None)
    assert report.defended is not None
    by = {one.provider: one for one in report.payouts}
    assert by["wrong"].pay <= 0.02 * sum(one.pay for one in report.payouts)
    assert all(one.provider == "wrong" for one in report.defended.rulings if one.what != "cleared")


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("after", [1, 2, 5])
def test_a_run_that_was_stopped_measures_the_same(after: int, known: bool, tmp_path: Path) -> None:
    """What the watch keeps is in the snapshot."""
    own = rows(1001, 60) if known else None
    consumer = Consumer("trees", holdout=rows(1000, 60), train=own, budget=36, per_round=3)
    providers = [Provider(f"p{i}", rows(i, 50)) for i in range(4)]

    def stop(progress: Progress) -> None:
        if progress.round == after:
            raise KeyboardInterrupt

    def market() -> Arbiter:
        return Arbiter(consumer, providers, learner=SMALL, defence="standard")

    with pytest.raises(KeyboardInterrupt):
        market().run(tmp_path / "stopped", tell=stop)
    reports = [market().run(tmp_path / name) for name in ("stopped", "whole")]
    assert reports[0].ledger_head == reports[1].ledger_head and len(reports[0].rounds) > after


def test_inputs_by_name_and_few_rows_are_not_compared() -> None:
    small = Consumer("trees", holdout=rows(1, 19), budget=8)
    assert RowInspection.of(STANDARD, small).space is None
    large = Consumer("trees", holdout=rows(1, 40), budget=8)
    assert RowInspection.of(STANDARD, large).space is not None
