"""Symmetry, efficiency and null player: what the paper proves or claims about who is paid."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_price import OnePrice

from databazaar import OSMD, Arbiter, Uniform
from small_markets import MakeMarket


@given(st.integers(1, 12), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.1, 0.7, 1.0]))
def test_symmetry_a_step_commutes_with_any_renaming(n: int, seed: int, alpha: float) -> None:
    rng, sampler = np.random.default_rng(seed), OSMD(eta=0.8, alpha=alpha)
    p = rng.dirichlet(np.ones(n)) * (1 - alpha) + alpha / n + 1e-9
    state, gains = np.log(p / p.sum()), rng.normal(size=n)
    draws, names = rng.integers(0, n, 5), rng.permutation(n)
    place = np.argsort(names)  # provider i is called place[i] after the renaming, in which names[j] stands at j
    moved = OnePrice(sampler).update(state, draws, gains[draws])
    renamed = OnePrice(sampler).update(state[names], place[draws], gains[draws])
    np.testing.assert_allclose(renamed, moved[names], rtol=1e-12, atol=1e-12)


def test_symmetry_the_distribution_of_payouts_follows_a_renaming(make_vector_market: MakeMarket) -> None:
    """Many cheap runs: mean payouts of the market and of the market with its providers in another order."""
    offsets, order = [0.0, 0.7, 3.0], [2, 0, 1]
    means = []
    for listing, first_seed in ((offsets, 0), ([offsets[i] for i in order], 1000)):
        paid = np.zeros((100, 3))
        for run in range(100):
            consumer, providers = make_vector_market(listing, budget=20, per_round=2)
            arbiter = Arbiter(consumer, providers, OSMD(0.5, 0.1), engine="loop", seed=first_seed + run)
            paid[run] = [payout.pay for payout in arbiter.run().payouts]
        means.append((paid.mean(0), paid.std(0, ddof=1) / np.sqrt(len(paid))))
    (mean, error), (renamed_mean, renamed_error) = means
    assert (np.abs(renamed_mean - mean[order]) <= 5 * np.hypot(renamed_error, error[order])).all()
    assert mean[0] > mean[2] + 10 * np.hypot(error[0], error[2])  # and they do differ: the test could fail


@pytest.mark.parametrize("draw", range(3))
def test_symmetry_equal_chances_are_drawn_equally_often(draw: int) -> None:
    """Draw positions are alike, and nobody is favoured for standing first or last."""
    sampler = OSMD(eta=1, alpha=0.1)
    state, rng = OnePrice(sampler).init(7), np.random.default_rng(draw)
    counts = np.bincount(np.array([OnePrice(sampler).draw(state, rng, 3)[draw] for _ in range(7000)]), minlength=7)
    assert ((counts - 1000) ** 2 / 1000).sum() < 27.9  # χ² with 6 degrees of freedom, 1 in 10,000


@given(st.integers(1, 40), st.integers(1, 5), st.lists(st.integers(1, 9), min_size=4, max_size=4), st.booleans())
def test_efficiency_payments_sum_to_what_was_spent(
    make_vector_market: MakeMarket, budget: int, per_round: int, prices: list[int], fails: bool
) -> None:
    budget = max(budget, per_round * min(prices))
    consumer, providers = make_vector_market(
        budget=budget, per_round=per_round, prices=prices, oracles={1: lambda w: w * np.nan} if fails else None
    )
    report = Arbiter(consumer, providers, OSMD(0.5, 0.1), engine="loop").run()
    assert sum(payout.pay for payout in report.payouts) == report.spent
    assert report.spent + report.refunded == report.budget == budget
    assert report.refunded >= 0
    assert all(payout.pay == payout.accesses * payout.price for payout in report.payouts)
    assert sum(a.paid for r in report.rounds for a in r.accesses) == report.spent


@pytest.mark.parametrize("alpha", [0.02, 0.3])
@pytest.mark.parametrize("null_gain", [0.0, -0.3])
def test_null_player_falls_monotonically_to_the_floor(alpha: float, null_gain: float) -> None:
    """True where the others do not hurt: gain_i ≤ 0 ≤ gain_j makes p_i fall, and strictly wherever somebody gains."""
    n, sampler, rng = 5, OSMD(eta=0.3, alpha=alpha), np.random.default_rng(1)
    state = OnePrice(sampler).init(n)
    history = []
    for _ in range(400):
        draws = OnePrice(sampler).draw(state, rng, 3)
        gains = rng.uniform(0, 0.5, n)
        gains[2] = null_gain
        state = OnePrice(sampler).update(state, draws, gains[draws])
        history.append(OnePrice(sampler).probabilities(state)[2])
    falls = np.diff(np.array([1 / n, *history]))
    assert (falls <= 1e-15).all()
    assert history[0] < 1 / n
    assert history[-1] == pytest.approx(alpha / n, rel=1e-9)


def test_null_player_the_papers_claim_needs_that_others_do_not_hurt_more() -> None:
    """Section 4.2 claims p¹ ≥ p² ≥ … for whoever never helps. Where another hurts more, p rises: a counterexample."""
    sampler = OSMD(eta=1.0, alpha=0.1)
    state = OnePrice(sampler).init(2)
    gains = np.array([-0.1, -1.0])  # neither helps
    moved = OnePrice(sampler).update(state, np.array([0, 1]), gains)
    assert OnePrice(sampler).probabilities(moved)[0] > OnePrice(sampler).probabilities(state)[0]


def test_null_player_is_paid_least(make_vector_market: MakeMarket) -> None:
    def hurts(w: np.ndarray) -> np.ndarray:
        return np.full(3, 50.0)

    paid = np.zeros(4)
    for seed in range(10):
        consumer, providers = make_vector_market(
            (0.0, 0.1, 0.2, 0.0), budget=300, per_round=3, oracles={3: hurts}, step=0.1
        )
        report = Arbiter(consumer, providers, OSMD(2.0, 0.05), engine="loop", seed=seed).run()
        paid += [payout.pay for payout in report.payouts]
    assert paid.argmin() == 3
    assert paid[3] < 0.6 * paid[:3].min()


def test_uniform_ignores_what_providers_bring() -> None:
    sampler = Uniform()
    state = OnePrice(sampler).init(4)
    assert (OnePrice(sampler).update(state, np.array([1, 1]), np.array([9.0, 9.0])) == state).all()
    assert (OnePrice(sampler).probabilities(state) == 0.25).all()
