"""Values of walks and of rounds: equal to slow versions written out, and to exact ones where those are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from databazaar import BazaarError, Consumer, Provider, Uniform
from databazaar.randomness import draws_stream
from databazaar.roster import Roster, RoundBudget
from databazaar.training.parameters import vector_of
from databazaar.valuation import (
    BackCheck,
    MaxPermutations,
    Method,
    Rule,
    ValuationResult,
    compare,
    shapley_monte_carlo,
)
from databazaar.valuation.monte_carlo import Shuffle
from databazaar.valuation.result import Cost
from databazaar.valuation.stopping import History
from databazaar_experiments.fed_shapley import FedShapley, FedShapleyExact, Scorer
from databazaar_experiments.first_layer import FirstLayer, FirstLayerFedShapley, PrefixScorer
from databazaar_experiments.g_shapley import GShapley, oracle_seed
from databazaar_experiments.gtg import GTGShapley, GuidedShuffle, WholeSweeps
from valuation_games import CPU, Slow, Vector, additive_market, airport, classification_market, regression_market

Make = Callable[[], tuple[Consumer, list[Provider]]]
MARKETS = [classification_market, regression_market]


class SlowRounds(Slow):
    """One permutation, and one coalition of a round, at a time."""

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
    expected, count = SlowRounds(*market).g_shapley(stop, seed=2)
    result = GShapley(stop=stop, seed=2, batch=5).run(*market)
    np.testing.assert_allclose(result.values, expected, atol=2e-5)
    assert result.cost.permutations == count


@pytest.mark.parametrize("aggregate", ["sum", "mean"])
@pytest.mark.parametrize("make", MARKETS)
def test_fed_shapley_equals_the_slow_version(make: Make, aggregate: str) -> None:
    market = make()
    stop = BackCheck(4, 0.2) | MaxPermutations(20)
    expected, count, utility = SlowRounds(*market).fed_shapley(stop, 4, 1, aggregate == "mean")
    result = FedShapley(stop=stop, rounds=4, seed=1, aggregate=aggregate).run(*market)  # type: ignore[arg-type]
    np.testing.assert_allclose(result.values, expected, atol=2e-5)
    assert result.cost.permutations == count
    assert result.trained is not None and result.trained.utility == pytest.approx(utility, abs=1e-5)


@pytest.mark.parametrize("make", MARKETS)
def test_sampled_rounds_converge_to_exact_ones(make: Make) -> None:
    market = make()
    for aggregate in ("sum", "mean"):
        options = {"rounds": 5, "seed": 3, "aggregate": aggregate}
        federated = FedShapleyExact(**options).run(*market)  # type: ignore[arg-type]
        sampled = FedShapley(stop=MaxPermutations(400), **options).run(*market)  # type: ignore[arg-type]
        guided = GTGShapley(stop=MaxPermutations(400), within_round=0.0, **options).run(*market)  # type: ignore[arg-type]
        for estimate in (sampled, guided):
            gaps = np.abs(estimate.values - federated.values)
            assert (gaps < 4.5 * estimate.standard_errors + 1e-6).all()
            assert (estimate.standard_errors < 0.1 * np.ptp(federated.values)).all()
            assert estimate.trained is not None and federated.trained is not None
            assert estimate.trained.utility == federated.trained.utility


@pytest.mark.parametrize("make", MARKETS)
def test_better_data_is_worth_more(make: Make) -> None:
    market = make()
    for result in (FedShapley().run(*market), GTGShapley().run(*market)):
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
    few = MaxPermutations(20)
    by_layer = FirstLayerFedShapley(stop=few, rounds=2)
    kept, plain = by_layer.run(*market), FedShapley(stop=few, rounds=2).run(*market)
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
        lambda engine: GShapley(stop=few, engine=engine).run(*market),
        lambda engine: FedShapley(stop=few, rounds=3, engine=engine).run(*market),
    ]
    for call in calls:
        np.testing.assert_allclose(call("vectorized").values, call("loop").values, atol=1e-4)


def test_the_same_seed_gives_the_same_values_and_another_seed_others() -> None:
    market = classification_market()
    for method in (GShapley, FedShapley, GTGShapley):
        one, again, other = (method(seed=s, stop=MaxPermutations(6)).run(*market).values for s in (5, 5, 6))
        np.testing.assert_array_equal(one, again)
        assert (one != other).any()


def test_the_budget_ends_federated_methods_at_unequal_prices() -> None:
    consumer, providers = classification_market(4, per_round=4, budget=29)
    dear = [Provider(p.id, p.data, p.oracle, price=1 + i) for i, p in enumerate(providers)]
    assert FedShapley().run(consumer, dear).stopped == "the budget paid for 2 rounds"
    result = FedShapley(rounds=50, limit=MaxPermutations(45), stop=MaxPermutations(10)).run(consumer, dear)
    assert result.stopped == "the cap of 45 permutations, after 5 rounds"
    assert result.cost.oracle_calls == 20 and result.cost.trainings == 1


def test_uniform_and_fedsv_train_the_same_model() -> None:
    """Both draw uniformly without replacement from the same stream."""
    result = compare(
        *classification_market(),
        ["uniform-without-replacement", "fedsv"],
        options={"fedsv": {"stop": MaxPermutations(8)}},
    )
    assert result["uniform-without-replacement"].final_utility == pytest.approx(result["fedsv"].final_utility, abs=1e-6)
    assert result["fedsv"].stability is None


def test_gtg_skips_rounds_that_move_nothing() -> None:
    market = classification_market()
    skipped = GTGShapley(between_rounds=1e9).run(*market)
    assert (skipped.values == 0).all() and skipped.cost.permutations == 0
    cut = GTGShapley(within_round=0.5, stop=MaxPermutations(9)).run(*market)
    whole = GTGShapley(within_round=0.0, stop=MaxPermutations(9)).run(*market)
    assert cut.cost.utility_evaluations < whole.cost.utility_evaluations


def test_guided_sampling_lets_everybody_lead_once_a_sweep_and_stays_right() -> None:
    known = airport()
    shuffle = GuidedShuffle(5, 0, "test")
    assert [int(shuffle(t)[0]) for t in range(10)] == [0, 1, 2, 3, 4] * 2
    assert all(sorted(shuffle(t).tolist()) == [0, 1, 2, 3, 4] for t in range(10))
    result = shapley_monte_carlo(known.game, WholeSweeps(MaxPermutations(3_001), 5), shuffle=shuffle)
    assert result.cost.permutations == 3_005  # whole sweeps
    assert (np.abs(result.values - known.values) < 4.5 * result.standard_errors + 1e-12).all()


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
        GShapley(stop=MaxPermutations(5), engine="loop").run(*market),
        FedShapley(engine="loop").run(*market),
        FedShapleyExact(engine="loop").run(*market),
        GTGShapley(aggregate="sum", engine="loop").run(*market),
    ):
        np.testing.assert_allclose(result.values, [1.0, 2.0, 0.0, 0.0])
        if result.trained is not None:
            np.testing.assert_allclose(vector_of(result.trained.model), [0.5, 1.0, 0.0, 0.0])


@pytest.mark.parametrize("method", [FedShapley, FedShapleyExact])
def test_rounds_in_which_nobody_can_play_are_worth_nothing(method: type[Method]) -> None:
    """Only those that fail, or only those that blow the model up: the budget is spent, and the model stays."""
    consumer, (_, _, fails, blows_up) = failing_market()
    for bad in (fails, blows_up):
        others = [Provider(f"bad{i}", oracle=bad.oracle) for i in range(4)]
        result = method(engine="loop").run(consumer, others)
        assert result.stopped == "the budget paid for 1 rounds" and (result.values == 0).all()
        assert result.trained is not None and bool((vector_of(result.trained.model) == 0).all())


def test_user_errors_say_what_to_do() -> None:
    consumer, providers = classification_market()
    nowhere = Consumer(np.zeros(4), budget=4, per_round=4, utility=lambda w: float("nan"))
    for method in (GShapley, FedShapley, GTGShapley):
        with pytest.raises(BazaarError, match="the model's own utility is nan"):
            method(engine="loop").run(nowhere, additive_market([1.0] * 4)[1])
    crowd = [Provider(f"p{i}", oracle=lambda w: w) for i in range(21)]
    with pytest.raises(BazaarError, match=r"fedsv-exact scores every coalition .* at most 20, so use fedsv instead"):
        FedShapleyExact(engine="loop").run(replace(nowhere, budget=21, per_round=21), crowd)
    with pytest.raises(BazaarError, match="aggregate"):
        FedShapley(aggregate="median").run(consumer, providers)  # type: ignore[arg-type]
    with pytest.raises(BazaarError, match="within_round"):
        GTGShapley(within_round=-1).run(consumer, providers)
