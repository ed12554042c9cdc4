"""Methods on real markets: equal to slow versions written out, and to exact Shapley values where those are known."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from valuation_games import Vector, additive_market, classification_market, regression_market

from databazaar import Adaptive, Arbiter, BazaarError, Consumer, Provider, Uniform
from databazaar.engines import Ask, LoopEngine
from databazaar.market.arbiter import theory_sampler
from databazaar.market.methods import MarketMethod, OwnMarketMethod, UniformMarketMethod, WithoutReplacementMethod
from databazaar.randomness import draws_stream
from databazaar.roster import Roster, RoundBudget
from databazaar.valuation import (
    BackCheck,
    MaxOracleCalls,
    MaxPermutations,
    Rule,
    ValuationResult,
    exact_shapley,
    fed_shapley,
    g_shapley,
    leave_one_out,
    tmc_shapley,
)
from databazaar.valuation.gradient import oracle_seed
from databazaar.valuation.permutations import Shuffle
from databazaar.valuation.result import Cost
from databazaar.valuation.round_game import Scorer
from databazaar.valuation.stopping import History
from databazaar_experiments.first_layer import FirstLayer, FirstLayerFedShapley, PrefixScorer
from databazaar_experiments.gtg import gtg_shapley

Make = Callable[[], tuple[Consumer, list[Provider]]]
MARKETS = [classification_market, regression_market]
CPU = torch.device("cpu")


class Slow:
    """One provider, one model, one utility at a time."""

    def __init__(self, consumer: Consumer, providers: list[Provider]) -> None:
        self.consumer, self.n = consumer, len(providers)
        self.engine = LoopEngine(copy.deepcopy(consumer.task), providers, CPU)
        self.evaluator = consumer.evaluator(CPU)

    def update(self, w: torch.Tensor, i: int, round: int, seed: int) -> torch.Tensor:
        step = self.consumer.step
        assert isinstance(step, float)
        return step * self.engine.query(Ask(w, [i], round, seed)).updates[0]

    def utility(self, w: torch.Tensor) -> float:
        return float(self.evaluator.score(w[None]).utility[0])

    def coalition(self, members: list[int], rounds: int) -> float:
        w = self.consumer.initial_parameters()
        for t in range(rounds if members else 0):
            w = w + torch.stack([self.update(w, i, t, 0) for i in members]).mean(0)
        return self.utility(w)

    def g_shapley(self, stop: Rule, seed: int) -> tuple[Vector, int]:
        start, total, estimates = self.consumer.initial_parameters(), np.zeros(self.n), []
        for t in range(1000):
            w = start
            for i in Shuffle(self.n, seed, "g-shapley")(t).tolist():
                moved = w + self.update(w, i, 0, oracle_seed(seed, t))
                total[i] += self.utility(moved) - self.utility(w)
                w = moved
            estimates.append(total / (t + 1))
            if stop.reason(History(estimates, np.zeros(self.n), Cost(permutations=t + 1))):
                return estimates[-1], t + 1
        raise AssertionError

    def fed_shapley(self, stop: Rule, rounds: int, seed: int, mean: bool) -> tuple[Vector, int, float]:
        k, sampler = self.consumer.per_round, Uniform(replacement=False)
        values, w, count = np.zeros(self.n), self.consumer.initial_parameters(), 0
        for t in range(rounds):
            roster = Roster.equal(self.n)
            round_budget = RoundBudget(len(roster), roster.prices)
            drawn = sampler.draw(sampler.init(roster, len(roster), k), draws_stream(seed, t), k, round_budget)
            updates = torch.stack([self.update(w, i, t, seed) for i in drawn.tolist()])
            total, estimates = np.zeros(k), []
            for s in range(1000):
                order = Shuffle(k, seed, f"fedsv round {t}")(s).tolist()
                before = self.utility(w)
                for j, i in enumerate(order):
                    joined = updates[order[: j + 1]]
                    after = self.utility(w + (joined.mean(0) if mean else joined.sum(0)))
                    total[i] += after - before
                    before = after
                estimates.append(total / (s + 1))
                count += 1
                if stop.reason(History(estimates, np.zeros(k), Cost(permutations=s + 1))):
                    break
            values[drawn] += estimates[-1]
            w = w + updates.mean(0)
        return values, count, self.utility(w)


@pytest.mark.parametrize("make", MARKETS)
def test_g_shapley_equals_the_slow_version(make: Make) -> None:
    market = make()
    stop = BackCheck(3, 0.05) | MaxPermutations(12)
    expected, count = Slow(*market).g_shapley(stop, seed=2)
    result = g_shapley(*market, stop=stop, seed=2, batch=5)
    np.testing.assert_allclose(result.values, expected, atol=2e-5)
    assert result.cost.permutations == count


@pytest.mark.parametrize("aggregate", ["sum", "mean"])
@pytest.mark.parametrize("make", MARKETS)
def test_fed_shapley_equals_the_slow_version(make: Make, aggregate: str) -> None:
    market = make()
    stop = BackCheck(4, 0.2) | MaxPermutations(20)
    expected, count, utility = Slow(*market).fed_shapley(stop, 4, 1, aggregate == "mean")
    result = fed_shapley(*market, stop=stop, rounds=4, seed=1, aggregate=aggregate)  # type: ignore[arg-type]
    np.testing.assert_allclose(result.values, expected, atol=2e-5)
    assert result.cost.permutations == count
    assert result.trained is not None and result.trained.utility == pytest.approx(utility, abs=1e-5)


@pytest.mark.parametrize("make", MARKETS)
def test_coalitions_trained_side_by_side_equal_each_trained_alone(make: Make) -> None:
    market = make()
    slow = Slow(*market)
    everybody = list(range(slow.n))
    whole, nothing = slow.coalition(everybody, 2), slow.coalition([], 2)
    left_out = [whole - slow.coalition([i for i in everybody if i != out], 2) for out in everybody]
    loo = leave_one_out(*market, rounds=2)
    np.testing.assert_allclose(loo.values, left_out, atol=2e-5)
    assert loo.cost.trainings == slow.n + 1 and loo.cost.oracle_calls == 2 * (slow.n + slow.n * (slow.n - 1))
    assert exact_shapley(*market, rounds=2).values.sum() == pytest.approx(whole - nothing, abs=2e-5)


@pytest.mark.parametrize("make", MARKETS)
def test_sampling_methods_converge_to_exact_ones(make: Make) -> None:
    market = make()
    exact = exact_shapley(*market, rounds=2)
    tmc = tmc_shapley(*market, rounds=2, stop=MaxPermutations(600), truncation=0.0)
    assert (np.abs(tmc.values - exact.values) < 4.5 * tmc.standard_errors + 1e-6).all()
    assert (tmc.standard_errors < 0.1 * np.ptp(exact.values)).all()
    for aggregate in ("sum", "mean"):
        options = {"rounds": 5, "seed": 3, "aggregate": aggregate}
        federated = fed_shapley(*market, exact=True, **options)  # type: ignore[arg-type]
        sampled = fed_shapley(*market, stop=MaxPermutations(400), **options)  # type: ignore[arg-type]
        guided = gtg_shapley(*market, stop=MaxPermutations(400), within_round=0.0, **options)  # type: ignore[arg-type]
        for estimate in (sampled, guided):
            gaps = np.abs(estimate.values - federated.values)
            assert (gaps < 4.5 * estimate.standard_errors + 1e-6).all()
            assert (estimate.standard_errors < 0.1 * np.ptp(federated.values)).all()
            assert estimate.trained is not None and federated.trained is not None
            assert estimate.trained.utility == federated.trained.utility


@pytest.mark.parametrize("make", MARKETS)
def test_better_data_is_worth_more(make: Make) -> None:
    market = make()
    for result in (exact_shapley(*market), fed_shapley(*market), gtg_shapley(*market)):
        assert result.values[0] > result.values[-1], result.method


@pytest.mark.parametrize("utility", ["negative-loss", "exp-loss", "accuracy"])
@pytest.mark.parametrize("bias", [True, False])
def test_the_prefix_scorer_equals_the_plain_one(utility: str, bias: bool) -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(50, 2, 3, generator=rng)
    y = torch.randint(0, 4, (50,), generator=rng)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(6, 7, bias=bias), nn.ReLU(), nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 4)
    )
    consumer = Consumer(model, 10, holdout=(x, y), utility=utility)
    evaluator = consumer.evaluator(CPU)
    layer = FirstLayer.of(evaluator)
    assert layer is not None
    w = consumer.initial_parameters()
    updates = 0.3 * torch.randn(6, len(w), generator=rng)
    coefficients = np.random.default_rng(0).random((40, 6)) * np.random.default_rng(1).integers(0, 2, (40, 6))
    plain = Scorer(evaluator, w, updates)(coefficients)
    tolerance = 0.021 if utility == "accuracy" else 1e-5  # one of 50 samples may be a tie
    np.testing.assert_allclose(PrefixScorer(layer, w, updates)(coefficients), plain, atol=tolerance)
    assert len(set(plain.round(6))) > 5
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("databazaar_experiments.first_layer.CHUNK_FLOATS", 50 * 7 * 3)
        np.testing.assert_allclose(PrefixScorer(layer, w, updates)(coefficients), plain, atol=tolerance)


def test_the_prefix_scorer_equals_the_plain_one_for_a_cnn() -> None:
    rng = torch.Generator().manual_seed(0)
    images = torch.randn(20, 1, 8, 8, generator=rng), torch.randint(0, 3, (20,), generator=rng)
    consumer = Consumer("cnn", 10, holdout=images, utility="negative-loss")
    evaluator, w = consumer.evaluator(CPU), consumer.initial_parameters()
    layer = FirstLayer.of(evaluator)
    assert layer is not None
    updates = 0.1 * torch.randn(3, len(w), generator=rng)
    coefficients = np.random.default_rng(0).random((9, 3))
    plain = Scorer(evaluator, w, updates)(coefficients)
    np.testing.assert_allclose(PrefixScorer(layer, w, updates)(coefficients), plain, atol=1e-5)


def test_a_layer_too_large_to_keep_is_scored_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    market = classification_market()
    by_layer = FirstLayerFedShapley(exact=True, rounds=2)
    kept, plain = by_layer.run(*market), fed_shapley(*market, exact=True, rounds=2)
    np.testing.assert_allclose(kept.values, plain.values, atol=1e-5)
    monkeypatch.setattr("databazaar_experiments.first_layer.KEPT_FLOATS", 100)
    monkeypatch.setattr(PrefixScorer, "__call__", None)
    np.testing.assert_array_equal(by_layer.run(*market).values, plain.values)


def test_other_models_and_utilities_get_the_plain_scorer() -> None:
    x, y = torch.randn(4, 1, 8, 8), torch.tensor([0, 1, 0, 1])
    norm = Consumer(nn.Sequential(nn.Flatten(), nn.LayerNorm(64), nn.Linear(64, 2)), 10, holdout=(x, y))
    assert FirstLayer.of(norm.evaluator(CPU)) is None
    own = Consumer("mlp", 10, holdout=(x, y), utility=lambda model: 0.5)
    assert FirstLayer.of(own.evaluator(CPU)) is None


def test_engines_agree() -> None:
    market = classification_market()
    few = MaxPermutations(3)
    calls: list[Callable[[str], ValuationResult]] = [
        lambda engine: g_shapley(*market, stop=few, engine=engine),
        lambda engine: fed_shapley(*market, stop=few, rounds=3, engine=engine),
        lambda engine: leave_one_out(*market, rounds=1, engine=engine),
    ]
    for call in calls:
        np.testing.assert_allclose(call("vectorized").values, call("loop").values, atol=1e-4)


def test_the_same_seed_gives_the_same_values_and_another_seed_others() -> None:
    market = classification_market()
    for method in (g_shapley, fed_shapley, gtg_shapley):
        one, again, other = (method(*market, seed=s, stop=MaxPermutations(6)).values for s in (5, 5, 6))
        np.testing.assert_array_equal(one, again)
        assert (one != other).any()


def test_the_budget_ends_federated_methods_at_unequal_prices() -> None:
    consumer, providers = classification_market(4, per_round=4, budget=29)
    dear = [Provider(p.id, p.data, p.oracle, price=1 + i) for i, p in enumerate(providers)]
    assert fed_shapley(consumer, dear).stopped == "the budget paid for 2 rounds"
    result = fed_shapley(consumer, dear, rounds=50, limit=MaxOracleCalls(20))
    assert result.stopped == "the cap of 20 oracle calls, after 5 rounds"
    assert result.cost.oracle_calls == 20 and result.cost.trainings == 1


def test_gtg_skips_rounds_that_move_nothing() -> None:
    market = classification_market()
    skipped = gtg_shapley(*market, between_rounds=1e9)
    assert (skipped.values == 0).all() and skipped.cost.permutations == 0
    cut = gtg_shapley(*market, within_round=0.5, stop=MaxPermutations(9))
    whole = gtg_shapley(*market, within_round=0.0, stop=MaxPermutations(9))
    assert cut.cost.utility_evaluations < whole.cost.utility_evaluations


def failing_market() -> tuple[Consumer, list[Provider]]:
    """Two that answer, one that fails, and one whose update blows the model up."""
    _, providers = additive_market([1.0, 2.0, 0.0, 0.0])

    def fails(w: np.ndarray) -> np.ndarray:
        raise RuntimeError("no")

    def blows_up(w: np.ndarray) -> np.ndarray:
        return np.full(4, 1e10)

    providers[2], providers[3] = Provider("fails", oracle=fails), Provider("blows-up", oracle=blows_up)
    utility = lambda w: float(w.sum()) if abs(w).max() < 1e6 else float("nan")  # noqa: E731
    return Consumer(np.zeros(4), budget=4, per_round=4, utility=utility), providers


def test_providers_that_fail_are_worth_nothing_and_harm_nobody() -> None:
    market = failing_market()
    for result in (
        g_shapley(*market, stop=MaxPermutations(5), engine="loop"),
        fed_shapley(*market, engine="loop"),
        fed_shapley(*market, exact=True, engine="loop"),
        gtg_shapley(*market, aggregate="sum", engine="loop"),
    ):
        np.testing.assert_allclose(result.values, [1.0, 2.0, 0.0, 0.0])
        if result.trained is not None:
            np.testing.assert_allclose(result.trained.parameters, [0.5, 1.0, 0.0, 0.0])
    with pytest.raises(BazaarError, match="blows-up has no finite utility"):
        leave_one_out(*market, engine="loop")


@pytest.mark.parametrize("exact", [False, True])
def test_rounds_in_which_nobody_can_play_are_worth_nothing(exact: bool) -> None:
    """Only those that fail, or only those that blow the model up: the budget is spent, and the model stays."""
    consumer, (_, _, fails, blows_up) = failing_market()
    for bad in (fails, blows_up):
        others = [Provider(f"bad{i}", oracle=bad.oracle) for i in range(4)]
        result = fed_shapley(consumer, others, exact=exact, engine="loop")
        assert result.stopped == "the budget paid for 1 rounds" and (result.values == 0).all()
        assert result.trained is not None and (result.trained.parameters == 0).all()


def test_the_market_itself_is_a_method() -> None:
    """Alone or among others, it pays what a run of the arbiter with the same seed pays."""
    market = classification_market()
    for method, sampler in (
        (MarketMethod, theory_sampler(*market)),
        (OwnMarketMethod, Adaptive()),
        (UniformMarketMethod, Uniform()),
        (WithoutReplacementMethod, Uniform(replacement=False)),
    ):
        result = method(seed=5, engine="loop").run(*market)
        assert result.method == method.kind
        report = Arbiter(*market, sampler, engine="loop", seed=5).run()
        assert result.values.tolist() == [payout.pay for payout in report.payouts]
        assert result.trained is not None and result.trained.utility == report.final_utility


def test_user_errors_say_what_to_do() -> None:
    consumer, providers = classification_market()
    nowhere = Consumer(np.zeros(4), budget=4, per_round=4, utility=lambda w: float("nan"))
    for method in (g_shapley, fed_shapley, gtg_shapley):
        with pytest.raises(BazaarError, match="the model's own utility is nan"):
            method(nowhere, additive_market([1.0] * 4)[1], engine="loop")
    crowd = [Provider(f"p{i}", oracle=lambda w: w) for i in range(21)]
    with pytest.raises(BazaarError, match=r"fedsv-exact scores every coalition .* at most 20, so use fedsv instead"):
        fed_shapley(replace(nowhere, budget=21, per_round=21), crowd, exact=True, engine="loop")
    with pytest.raises(BazaarError, match="at least one provider"):
        g_shapley(consumer, [])
    with pytest.raises(BazaarError, match="same id"):
        leave_one_out(consumer, [providers[0], providers[0]])
    with pytest.raises(BazaarError, match="rounds"):
        leave_one_out(consumer, providers, rounds=0)
    with pytest.raises(BazaarError, match="aggregate"):
        fed_shapley(consumer, providers, aggregate="median")  # type: ignore[arg-type]
    with pytest.raises(BazaarError, match="within_round"):
        gtg_shapley(consumer, providers, within_round=-1)


def test_osmd_is_the_papers_sampler_and_market_the_one_that_an_arbiter_takes() -> None:
    consumer, providers = classification_market()
    kinds = {method.kind: method.run(consumer, providers).settings for method in (MarketMethod(), OwnMarketMethod())}
    assert kinds["osmd"]["sampler"]["kind"] == "osmd" and kinds["osmd"]["sampler"]["switches"] == 1
    assert kinds["market"]["sampler"]["kind"] == Arbiter(consumer, providers).rules.sampler.kind == "adaptive"
