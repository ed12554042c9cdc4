"""Boosting: a round's tree is the tree of all rows together, parts add up to it, and gains are halfway differences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

from databazaar import Arbiter, BazaarError, Consumer, Provider, Uniform
from databazaar.engines import Replies
from databazaar.learners import Averaging, Boosting
from databazaar.learning.trees import kernels
from databazaar.learning.trees.ensemble import Ensemble
from databazaar.ledger import Accounts, Drawn
from databazaar.models import Trees
from databazaar.roster import RoundBudget
from databazaar.sklearn import MarketClassifier, MarketRegressor
from databazaar.testing import check_learner
from databazaar.training import Lesson
from databazaar.training.boosting import BoostingTraining, refuse_large_trees
from databazaar.training.predictions import judged
from tree_rounds import Table, table

KINDS = ("binary", "multiclass", "squared")
ONE_TREE = Boosting(rate=0.1, leaves=31, trees=1)
Tables = Mapping[int, Table]


@pytest.mark.parametrize("learner", [Boosting(), Boosting(rate=0.3, leaves=4, min_rows=2)], ids=repr)
def test_boosting_keeps_the_contract(learner: Boosting) -> None:
    check_learner(learner)


def rows(given: Table, kind: str) -> tuple[np.ndarray, np.ndarray]:
    return given.x.astype(np.float32), given.y if kind == "squared" else given.y.astype(int)


def tables(kind: str, *sizes: int) -> dict[int, Table]:
    return {i: table(kind, size, seed=i + 1) for i, size in enumerate(sizes)}


def market(
    kind: str, given: Tables, per_round: int, rule: Boosting | None = None, own: int = 0, **more: object
) -> Arbiter:
    settings: dict[str, object] = {"budget": 60, "utility": "negative-loss", **more}
    if own:
        settings["train"] = rows(table(kind, own, seed=98), kind)
    consumer = Consumer(
        Trees(categorical=(2, 3)),
        holdout=rows(table(kind, 200, seed=99), kind),
        per_round=per_round,
        loss="squared-error" if kind == "squared" else None,
        **settings,  # type: ignore[arg-type]
    )
    providers = [Provider(f"p{i}", rows(one, kind)) for i, one in given.items()]
    return Arbiter(consumer, providers, Uniform(), learner=rule)


def begun(
    kind: str, given: Tables, draws: list[int], rule: Boosting | None = None, own: int = 0
) -> tuple[BoostingTraining, Lesson]:
    """A learner and a lesson after three rounds, of which every answer is a whole table."""
    arbiter = market(kind, given, len(draws), rule, own)
    run = arbiter.begin(Accounts(arbiter.rules))
    assert isinstance(run.training, BoostingTraining)
    budget = RoundBudget(len(draws), np.ones(len(given), dtype=np.int64))
    drawn = Drawn(np.array(draws), np.ones(len(draws)), budget)
    asked = list(dict.fromkeys(draws))
    answers = Replies(
        torch.empty(len(asked), 0),
        {},
        rows={i: arbiter.providers[i].dataset for i in asked},
        places={i: np.arange(len(given[i].y)) for i in asked},
    )
    state = run.state
    lesson = Lesson(state.model, state.memory, state.utility, state.loss, drawn, answers, round=0)
    for number in range(3):
        learned = run.training.learn(replace(lesson, round=number))
        lesson = replace(lesson, model=learned.model, utility=float(learned.scores.utility[0]), round=number + 1)
    return run.training, lesson


def grown(model: object) -> Ensemble:
    assert isinstance(model, Ensemble)
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_the_tree_is_that_of_all_rows_in_one_place(kind: str) -> None:
    given = tables(kind, 150, 80, 60)
    training, lesson = begun(kind, given, [0, 1, 2], ONE_TREE)
    parts = list(given.values())
    one = Table(np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts]))
    alone, joined = begun(kind, {0: one}, [0], ONE_TREE)
    joined = replace(joined, model=lesson.model)
    together, apart = (grown(each.learn(asked).model) for each, asked in ((alone, joined), (training, lesson)))
    assert together.stored.hash == apart.stored.hash
    assert len(apart.rounds) == 4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("draws", [[0, 1, 2], [0, 1, 0, 0]])
def test_gains_are_halfway_differences_and_near_shapley_values(kind: str, draws: list[int]) -> None:
    """The game: coalitions of parties reach f plus the sum of their parts, and the buyer's own part is not paid."""
    given = tables(kind, 150, 80, 60)
    training, lesson = begun(kind, given, draws, ONE_TREE)
    learned = training.learn(lesson)
    before, after = grown(lesson.model), grown(learned.model)
    x = rows(table(kind, 200, seed=99), kind)[0]
    binned = before.bins.apply(x)
    start, move = before.scores(binned), after.scores(binned) - before.scores(binned)
    times = {i: draws.count(i) for i in dict.fromkeys(draws)}
    parts = {i: shares(training, lesson, i) for i in times}
    assert np.allclose(sum(parts.values()), move, atol=1e-9)

    def utility(scores: np.ndarray) -> float:
        return float(judged(training.scorer, scores[None]).utility[0])

    middle = start + move / 2
    for i, part in parts.items():
        wanted = (utility(middle + part / 2) - utility(middle - part / 2)) / times[i]
        assert learned.gains[i] == pytest.approx(wanted, rel=1e-5, abs=1e-9)  # sums lie on a grid
    orders = list(permutations(parts))
    exact = dict.fromkeys(parts, 0.0)
    for order in orders:
        reached = start
        for i in order:
            exact[i] += (utility(reached + parts[i]) - utility(reached)) / len(orders) / times[i]
            reached = reached + parts[i]
    for i, value in exact.items():
        assert learned.gains[i] == pytest.approx(value, rel=0.05, abs=2e-5)


def shares(training: BoostingTraining, lesson: Lesson, party: int) -> np.ndarray:
    """A party's part of the move on the hold-out, by the slow way: sums over its rows, leaf by leaf."""
    before, after = grown(lesson.model), grown(training.learn(lesson).model)
    draws = lesson.drawn.draws.tolist()
    holdout = before.bins.apply(training.consumer.holdout[0].double().numpy())
    part = np.zeros((len(holdout), before.objective.classes))
    sums = {}
    for i, (x, y) in lesson.replies.rows.items():
        assert isinstance(x, torch.Tensor)
        binned, weight = before.bins.apply(x.double().numpy()), np.full(len(y), float(draws.count(i)))
        gradients = before.objective.gradients(before.scores(binned), y.double().numpy(), weight)
        sums[i] = (*gradients, binned)
    for place, tree in enumerate(after.rounds[-1]):
        hessian = np.zeros(tree.leaves)
        for _, h, binned in sums.values():
            np.add.at(hessian, tree.leaf_of(binned), h[:, place])
        own = np.zeros(tree.leaves)
        g, _, binned = sums[party]
        np.add.at(own, tree.leaf_of(binned), g[:, place])
        value = training.rule.rate * own / (hessian + training.rule.l2)
        part[:, place] = value[tree.leaf_of(holdout)]
    return part


def test_rows_under_several_names_have_the_same_gain_in_sum() -> None:
    one = table("binary", 120, seed=1)
    other = table("binary", 60, seed=2)
    cut = [Table(one.x[part], one.y[part]) for part in (slice(0, 30), slice(30, 70), slice(70, None))]
    rule = ONE_TREE
    whole, lesson = begun("binary", {0: one, 1: other}, [0, 1], rule)
    split, apart = begun("binary", {0: cut[0], 1: other, 2: cut[1], 3: cut[2]}, [0, 1, 2, 3], rule)
    alone, several = whole.learn(lesson).gains, split.learn(replace(apart, model=lesson.model)).gains
    assert several[1] == pytest.approx(alone[1], rel=1e-6)
    # halfway differences of small parts: equal to first order, and to the third the sum of cubes differs
    assert several[0] + several[2] + several[3] == pytest.approx(alone[0], rel=1e-3)  # type: ignore[operator]


@settings(max_examples=25)
@given(
    seed=st.integers(0, 1000),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    kind=st.sampled_from(KINDS),
    far=st.floats(0, 300, allow_nan=False),
    constant=st.booleans(),
)
def test_any_tables_leave_a_finite_model_and_finite_gains(
    seed: int, sizes: list[int], kind: str, far: float, constant: bool
) -> None:
    given = {}
    for i, size in enumerate(sizes):
        one = table(kind, size, seed=seed + i, missing=0.5)
        x = one.x * (1.0 if constant else 10**far if far < 30 else 1.0)
        given[i] = Table(np.clip(np.zeros_like(x) if constant else x, -3e38, 3e38), one.y)
    training, lesson = begun(kind, given, list(given), own=5)
    learned = training.learn(lesson)
    assert math.isfinite(float(learned.scores.utility[0]))
    assert all(gain is not None and math.isfinite(gain) for gain in learned.gains.values())
    assert np.isfinite(training.outputs(learned.model, training.consumer.holdout[0])).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_market_of_trees_buys_audits_and_predicts(kind: str) -> None:
    """A third of the providers has targets of other rows: they earn little, and the model beats own rows alone."""
    rng, given = np.random.default_rng(0), tables(kind, *[150] * 6)
    for i in (0, 3):
        given[i] = replace(given[i], y=rng.permutation(given[i].y))
    consumer = market(kind, given, 3, own=100, budget=240).consumer
    arbiter = Arbiter(consumer, [Provider(f"p{i}", rows(one, kind)) for i, one in given.items()])
    report = arbiter.run()
    wrong = sum(report.payouts[i].accesses for i in (0, 3))
    assert wrong < 0.2 * sum(one.accesses for one in report.payouts)
    training = arbiter.training()
    alone, bought = training.own_rows_alone(), arbiter.model
    new = table(kind, 2_000, seed=500)

    def loss(model: object) -> float:
        ensemble = grown(model)
        return float(ensemble.objective.loss(ensemble.scores(ensemble.bins.apply(new.x)), new.y).mean())

    assert loss(bought) < loss(alone)


def test_rising_and_falling_hold_in_the_bought_model() -> None:
    given = tables("binary", 300, 300)
    arbiter = market("binary", given, 2)
    plain = arbiter.run()
    consumer = replace(arbiter.consumer, model=Trees(rising=(0,), falling=(1,), categorical=(2, 3)))
    bound = Arbiter(consumer, arbiter.providers, Uniform())
    assert bound.run().model_hash != plain.model_hash
    x = np.repeat(table("binary", 40, seed=7, missing=0).x, 50, axis=0)
    for place, sign in ((0, 1), (1, -1)):
        moved = x.copy()
        moved[:, place] = np.tile(np.linspace(-4, 4, 50), 40)
        curves = grown(bound.model).predict(moved).reshape(40, 50)
        assert (sign * np.diff(curves, axis=1) >= 0).all()


@pytest.mark.parametrize("loops", [True, False])
def test_the_buyers_own_rows_never_leave_a_bought_row_alone(loops: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The buyer knows its own rows. It makes some that would divide off a single bought row, which the leaf's sums
    would then tell."""
    if not loops:
        monkeypatch.setattr(kernels, "compiled", lambda: None)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2)).astype(np.float32)
    x[0] = 9.0
    near = np.full((60, 2), 9.0, np.float32) + rng.normal(0, 0.01, (60, 2)).astype(np.float32)
    own = np.concatenate([near, rng.normal(size=(60, 2)).astype(np.float32)])
    theirs, mine = np.zeros(200, int), np.r_[np.ones(60, int), np.zeros(60, int)]
    theirs[0] = 1
    consumer = Consumer("trees", budget=10, per_round=1, holdout=(own, mine), train=(own, mine))
    arbiter = Arbiter(consumer, [Provider("p", (x, theirs))], learner=Boosting(leaves=31))
    arbiter.run()
    ensemble = grown(arbiter.reached)
    trees = [tree for each in ensemble.rounds for tree in each]
    binned = ensemble.bins.apply(x.astype(float))
    for tree in trees:
        assert tree.leaf_sums[:, 2].min() >= 20
    bought = [np.bincount(tree.leaf_of(binned), minlength=len(tree.value)) for tree in trees]
    assert trees and min(int(each.min()) for each in bought) >= 20


def test_who_scores_parameters_cannot_grow_trees() -> None:
    x, y = rows(table("binary", 50), "binary")
    seller = [Provider("p", (x, y))]
    with pytest.raises(BazaarError, match="scores predictions: use one of the named utilities"):
        Arbiter(Consumer("trees", budget=20, holdout=(x, y), per_round=1, utility=lambda model: 0.5), seller).run()
    with pytest.raises(BazaarError, match='use model "trees"'):
        Arbiter(Consumer("logistic", budget=20, holdout=(np.nan_to_num(x), y)), seller, learner=Boosting())
    with pytest.raises(BazaarError):
        Arbiter(Consumer("trees", budget=20, holdout=(x, y)), seller, learner=Averaging())


def test_trees_whose_sums_no_machine_holds_are_refused() -> None:
    (x, y), rule = rows(table("binary", 50), "binary"), Boosting(leaves=10_000)
    ensemble = grown(rule.begin(Consumer("trees", budget=20, holdout=(x, y))))
    sums = 10_000 * 3 * 4 * ensemble.bins.width * 8
    refuse_large_trees(rule, ensemble, room=sums)
    with pytest.raises(BazaarError, match=r"trees of 10,000 leaves over 4 features take .*: lower learner.leaves, or"):
        refuse_large_trees(rule, ensemble, room=sums - 1)


def test_estimators_grow_trees_too() -> None:
    """Within reach of the same rows in one place, also with missing values."""
    for load, estimator in ((load_breast_cancer, MarketClassifier), (load_wine, MarketClassifier)):
        x, y = load(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(x))
        x, y = x[order].copy(), y[order]
        x[::7, 0] = np.nan
        whose = np.arange(len(x)) % 4 - 1
        half = len(x) // 2
        fitted = estimator("trees", budget=120, per_round=3, random_state=0).fit(
            x[:half], y[:half], provider_of=whose[:half]
        )
        assert isinstance(fitted.model_, Ensemble)
        assert fitted.score(x[half:], y[half:]) > 0.9
        assert np.allclose(fitted.predict_proba(x[half:]).sum(1), 1)
    x, y = load_diabetes(return_X_y=True)
    fitted = MarketRegressor("trees", budget=90, per_round=3, random_state=0).fit(
        x[:300], y[:300], provider_of=np.arange(300) % 4 - 1
    )
    assert fitted.score(x[300:], y[300:]) > 0.3
