"""Multiplicity, the uniform baseline, and that check_sampler passes good samplers and catches broken ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from one_price import OnePrice

from databazaar import OSMD, Arbiter, BazaarError, Uniform
from databazaar.roster import Roster, RoundBudget
from databazaar.samplers import SAMPLERS, Sampler, Wants
from databazaar.samplers.protocol import among_affordable, refuse_non_finite
from databazaar.testing import check_sampler
from small_markets import MakeMarket


def test_a_provider_drawn_twice_is_asked_once_counted_twice_and_paid_twice(make_vector_market: MakeMarket) -> None:
    calls: list[int] = []

    def counting(w: np.ndarray) -> np.ndarray:
        calls.append(1)
        return 0.1 * np.ones(3)

    consumer, providers = make_vector_market((0.0,), budget=8, per_round=4, oracles={0: counting}, step=1.0)
    arbiter = Arbiter(consumer, providers, OSMD(0.5, 0.1), engine="loop")
    report = arbiter.run()
    assert len(calls) == 2  # one a round, for four draws
    assert report.payouts[0].accesses == report.payouts[0].pay == 8
    np.testing.assert_allclose(
        arbiter.last_parameters, 0.2 * np.ones(3), atol=1e-6
    )  # (γ/K) Σ over draws, not over providers


def test_where_only_those_are_available_who_have_no_chance_they_share_it() -> None:
    """A sampler that has lost all faith in the cheap ones still has to draw somebody while money is left."""
    prices = np.array([5, 1, 1, 9])
    p = np.array([0.25, 0.0, 0.0, 0.75])
    assert among_affordable(p, RoundBudget(9, prices)) is p
    assert among_affordable(p, RoundBudget(5, prices)).tolist() == [1, 0, 0, 0]
    assert among_affordable(p, RoundBudget(1, prices)).tolist() == [0, 0.5, 0.5, 0]


@pytest.mark.parametrize("times", [1, 2, 3, 4])
def test_the_estimate_carries_the_multiplicity(times: int) -> None:
    """With α = 0 the step is p_i exp(ηû_i) up to a factor, so log-ratios give û back."""
    sampler, K, gain = OSMD(eta=0.7, alpha=0.0), 4, 0.3
    draws = np.array([0] * times + [1] * (K - times))
    state = OnePrice(sampler).init(3)
    moved = OnePrice(sampler).update(state, draws, np.where(draws == 0, gain, 0.0))
    ratio = (moved - state)[0] - (moved - state)[2]
    assert ratio == pytest.approx(0.7 * times / (K * (1 / 3)) * gain)


def test_uniform_with_replacement_repeats_and_without_never_does() -> None:
    state = OnePrice(Uniform()).init(5)
    with_, without = [], []
    for seed in range(300):
        with_.append(OnePrice(Uniform()).draw(state, np.random.default_rng(seed), 4))
        without.append(OnePrice(Uniform(replacement=False)).draw(state, np.random.default_rng(seed), 4))
    assert any(len(set(d.tolist())) < 4 for d in with_)
    assert all(len(set(d.tolist())) == 4 for d in without)
    for draws in (with_, without):
        counts = np.bincount(np.concatenate(draws), minlength=5)
        assert ((counts - 240) ** 2 / 240).sum() < 23.5  # χ² with 4 degrees of freedom, 1 in 10,000


def test_uniform_without_replacement_refuses_more_draws_than_providers(make_vector_market: MakeMarket) -> None:
    consumer, providers = make_vector_market((0.0, 1.0), per_round=3)
    with pytest.raises(BazaarError, match="without replacement"):
        Arbiter(consumer, providers, Uniform(replacement=False), engine="loop").run()


@pytest.mark.parametrize(
    "sampler",
    [
        OSMD(1.0, 0.1),
        OSMD(0.01, 0.0),
        OSMD(5.0, 1.0),
        OSMD.from_theory(7, 200, 4, 2),
        Uniform(),
        Uniform(replacement=False),
    ],
    ids=repr,
)
def test_check_sampler_passes(sampler: Sampler) -> None:
    check_sampler(sampler)
    assert SAMPLERS.build(SAMPLERS.settings_of(sampler)) == sampler


@dataclass(frozen=True)
class _Base:
    """A sound sampler for the broken ones to differ from in one point."""

    kind: ClassVar[str] = "test-base"
    wants: ClassVar[Wants] = Wants()

    def init(self, roster: Roster, budget: int, per_round: int) -> np.ndarray:
        return np.full(len(roster), 1 / len(roster))

    def probabilities(self, state: np.ndarray, round_budget: RoundBudget) -> np.ndarray:
        return among_affordable(state, round_budget)

    def draw(self, state: np.ndarray, rng: np.random.Generator, size: int, round_budget: RoundBudget) -> np.ndarray:
        return np.asarray(rng.choice(np.flatnonzero(round_budget.available), size))

    def update(self, state: np.ndarray, draws: np.ndarray, gains: np.ndarray, round_budget: RoundBudget) -> np.ndarray:
        refuse_non_finite(gains)
        return state


class BecomesNaN(_Base):
    kind: ClassVar[str] = "test-nan"

    def update(self, state: np.ndarray, draws: np.ndarray, gains: np.ndarray, round_budget: RoundBudget) -> np.ndarray:
        refuse_non_finite(gains)
        return np.full_like(state, np.nan)


class DoesNotSumToOne(_Base):
    kind: ClassVar[str] = "test-sum"

    def probabilities(self, state: np.ndarray, round_budget: RoundBudget) -> np.ndarray:
        return among_affordable(state, round_budget) * 1.001


class ChangesItsInput(_Base):
    kind: ClassVar[str] = "test-in-place"

    def update(self, state: np.ndarray, draws: np.ndarray, gains: np.ndarray, round_budget: RoundBudget) -> np.ndarray:
        refuse_non_finite(gains)
        state[0] += 0.01
        return np.asarray(state / state.sum())


class RemembersCalls(_Base):
    kind: ClassVar[str] = "test-memory"
    calls: ClassVar[list[int]] = []

    def update(self, state: np.ndarray, draws: np.ndarray, gains: np.ndarray, round_budget: RoundBudget) -> np.ndarray:
        refuse_non_finite(gains)
        self.calls.append(1)
        moved = state + 0.001 * len(self.calls) * (np.arange(len(state)) == 0)
        return np.asarray(moved / moved.sum())


class DrawsTooFar(_Base):
    kind: ClassVar[str] = "test-range"

    def draw(self, state: np.ndarray, rng: np.random.Generator, size: int, round_budget: RoundBudget) -> np.ndarray:
        return rng.integers(0, len(state) + 1, size)


class HasItsOwnDice(_Base):
    kind: ClassVar[str] = "test-dice"

    def draw(self, state: np.ndarray, rng: np.random.Generator, size: int, round_budget: RoundBudget) -> np.ndarray:
        return np.asarray(np.random.default_rng().choice(np.flatnonzero(round_budget.available), size))


class TakesNaN(_Base):
    kind: ClassVar[str] = "test-takes-nan"

    def update(self, state: np.ndarray, draws: np.ndarray, gains: np.ndarray, round_budget: RoundBudget) -> np.ndarray:
        return state


class IgnoresTheRest(_Base):
    kind: ClassVar[str] = "test-too-dear"

    def probabilities(self, state: np.ndarray, round_budget: RoundBudget) -> np.ndarray:
        return state

    def draw(self, state: np.ndarray, rng: np.random.Generator, size: int, round_budget: RoundBudget) -> np.ndarray:
        return rng.integers(0, len(state), size)


class IgnoresCaps(_Base):
    """Looks at what is left and at nothing else."""

    kind: ClassVar[str] = "test-used-up"

    def probabilities(self, state: np.ndarray, round_budget: RoundBudget) -> np.ndarray:
        return among_affordable(state, RoundBudget(round_budget.left, round_budget.quotes))


class IsNoDataclass:
    """Everything that a sampler needs but settings."""

    kind: ClassVar[str] = "test-no-dataclass"
    wants: ClassVar[Wants] = Wants()
    init, probabilities, draw, update = _Base.init, _Base.probabilities, _Base.draw, _Base.update


@dataclass(frozen=True)
class StealsAName(_Base):
    kind: ClassVar[str] = "osmd"


def test_check_sampler_passes_a_sampler_of_ones_own() -> None:
    check_sampler(_Base())


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (BecomesNaN(), "finite"),
        (DoesNotSumToOne(), "sum to 1"),
        (ChangesItsInput(), "must not change the state"),
        (RemembersCalls(), "pure function"),
        (DrawsTooFar(), "indices"),
        (HasItsOwnDice(), "nothing but the state"),
        (TakesNaN(), "refuse a gain of nan"),
        (IgnoresTheRest(), "does not let be asked has a probability"),
        (IgnoresCaps(), "does not let be asked has a probability"),
        (IsNoDataclass(), "frozen dataclass"),
        (StealsAName(), "a `kind` of its own"),
    ],
)
def test_check_sampler_catches(broken: Sampler, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_sampler(broken)


@pytest.mark.parametrize("sampler", [OSMD(1.0, 0.1), Uniform()], ids=repr)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_gains_are_refused(sampler: Sampler, bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        OnePrice(sampler).update(OnePrice(sampler).init(3), np.array([0, 1]), np.array([0.0, bad]))


@dataclass(frozen=True)
class SaysNothing:
    kind: ClassVar[str] = "test-says-nothing"
    init, probabilities, draw, update = _Base.init, _Base.probabilities, _Base.draw, _Base.update


def test_a_sampler_that_does_not_say_what_it_wants_is_refused(make_vector_market: MakeMarket) -> None:
    with pytest.raises(AssertionError, match="must say what it wants"):
        check_sampler(SaysNothing())  # type: ignore[arg-type]
    with pytest.raises(
        BazaarError, match=r"'test-says-nothing' does not say what it wants: give its class `wants = Wa"
    ):
        Arbiter(*make_vector_market(), SaysNothing(), engine="loop")  # type: ignore[arg-type]
