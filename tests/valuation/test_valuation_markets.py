"""Methods on real markets: equal to slow versions written out, and to exact Shapley values where those are known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from databazaar import Adaptive, Arbiter, BazaarError, Consumer, Provider, Uniform
from databazaar.market.arbiter import theory_sampler
from databazaar.market.methods import MarketMethod, OwnMarketMethod, UniformMarketMethod, WithoutReplacementMethod
from databazaar.valuation import ExactShapley, LeaveOneOut, MaxPermutations, TMCShapley
from databazaar.valuation.games import training_game
from databazaar.valuation.method import Context
from valuation_games import Slow, additive_market, classification_market, regression_market

Make = Callable[[], tuple[Consumer, list[Provider]]]
MARKETS = [classification_market, regression_market]


@pytest.mark.parametrize("make", MARKETS)
def test_coalitions_trained_side_by_side_equal_each_trained_alone(make: Make) -> None:
    market = make()
    slow = Slow(*market)
    everybody = list(range(slow.n))
    whole, nothing = slow.coalition(everybody, 2), slow.coalition([], 2)
    left_out = [whole - slow.coalition([i for i in everybody if i != out], 2) for out in everybody]
    loo = LeaveOneOut(rounds=2).run(*market)
    np.testing.assert_allclose(loo.values, left_out, atol=2e-5)
    assert loo.cost.trainings == slow.n + 1 and loo.cost.oracle_calls == 2 * (slow.n + slow.n * (slow.n - 1))
    assert ExactShapley(rounds=2).run(*market).values.sum() == pytest.approx(whole - nothing, abs=2e-5)


@pytest.mark.parametrize("make", MARKETS)
def test_tmc_converges_to_exact_values(make: Make) -> None:
    market = make()
    exact = ExactShapley(rounds=2).run(*market)
    tmc = TMCShapley(rounds=2, stop=MaxPermutations(600), truncation=0.0).run(*market)
    assert (np.abs(tmc.values - exact.values) < 4.5 * tmc.standard_errors + 1e-6).all()
    assert (tmc.standard_errors < 0.1 * np.ptp(exact.values)).all()


@pytest.mark.parametrize("make", MARKETS)
def test_better_data_is_worth_more(make: Make) -> None:
    values = ExactShapley().run(*make()).values
    assert values[0] > values[-1]


def test_engines_agree() -> None:
    market = classification_market()
    fast, plain = (LeaveOneOut(rounds=1, engine=engine).run(*market) for engine in ("vectorized", "loop"))
    np.testing.assert_allclose(fast.values, plain.values, atol=1e-4)


def test_the_same_seed_gives_the_same_values_and_another_seed_others() -> None:
    market = classification_market()
    one, again, other = (TMCShapley(seed=s, stop=MaxPermutations(6)).run(*market).values for s in (5, 5, 6))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


def test_a_coalition_without_a_finite_utility_is_named() -> None:
    _, providers = additive_market([1.0, 2.0])
    providers[1] = Provider("blows-up", oracle=lambda w: np.full(2, 1e10))
    utility = lambda w: float(w.sum()) if abs(w).max() < 1e6 else float("nan")  # noqa: E731
    consumer = Consumer(np.zeros(2), budget=4, per_round=2, utility=utility)
    with pytest.raises(BazaarError, match="blows-up has no finite utility"):
        LeaveOneOut(engine="loop").run(consumer, providers)


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
    with pytest.raises(BazaarError, match="at least one provider"):
        LeaveOneOut().run(consumer, [])
    with pytest.raises(BazaarError, match="same id"):
        LeaveOneOut().run(consumer, [providers[0], providers[0]])
    with pytest.raises(BazaarError, match="rounds"):
        LeaveOneOut(rounds=0).run(consumer, providers)


def test_osmd_is_the_papers_sampler_and_market_the_one_that_an_arbiter_takes() -> None:
    consumer, providers = classification_market()
    kinds = {method.kind: method.run(consumer, providers).settings for method in (MarketMethod(), OwnMarketMethod())}
    assert kinds["osmd"]["sampler"]["kind"] == "osmd" and kinds["osmd"]["sampler"]["switches"] == 1
    assert kinds["market"]["sampler"]["kind"] == Arbiter(consumer, providers).rules.sampler.kind == "adaptive"


def test_trees_are_valued_by_every_method() -> None:
    """One of four providers sells labels by chance, and is worth least; a coalition of nobody is untrained."""
    rng = np.random.default_rng(0)

    def rows(count: int, wrong: bool = False) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        x = rng.normal(size=(count, 4)).astype(np.float32)
        y = (x[:, 0] * x[:, 1] > 0).astype(np.int64)
        return x, rng.permutation(y) if wrong else y

    consumer = Consumer("trees", holdout=rows(300), budget=60, per_round=3)
    providers = [Provider(f"p{i}", rows(200, wrong=i == 3)) for i in range(4)]
    for method in (ExactShapley(), LeaveOneOut(), TMCShapley(stop=MaxPermutations(6)), OwnMarketMethod()):
        result = method.run(consumer, providers)
        assert np.argmin(result.values) == 3, method
    with Context.open(consumer, providers, "vectorized", "cpu") as context:
        game = training_game(context, rounds=1)
        whole, nobody = game.value(game.everybody)[0], game.value(game.nobody)[0]
        assert whole > nobody + 0.02
        assert game.value(game.everybody)[0] == whole and context.tally.trainings == 1
