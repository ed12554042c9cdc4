"""Markets that `adaptive` plays on its own, without a model: what each provider brings is known."""

from __future__ import annotations

import numpy as np

from databazaar import Adaptive
from databazaar.roster import ProviderTerms, Roster, RoundBudget

Rounds = list[tuple[np.ndarray, np.ndarray]]
PLENTY = 10**15


class FixedNumber(np.random.Generator):
    """A generator whose one number is known, and whose permutations change nothing."""

    def __init__(self, number: float) -> None:
        super().__init__(np.random.PCG64(0))
        self.number = number

    def random(self, *_: object, **__: object) -> float:  # type: ignore[override]
        return self.number


def purse_of(prices: list[int], **more: int | None) -> RoundBudget:
    return RoundBudget(PLENTY, np.array(prices, dtype=np.int64), **more)  # type: ignore[arg-type]


def start(prices: list[int], per_round: int, sampler: Adaptive | None = None) -> np.ndarray:
    roster = Roster(tuple(ProviderTerms(f"p{i}", f"p{i}", price) for i, price in enumerate(prices)))
    return (sampler or Adaptive()).init(roster, PLENTY, per_round)


def some_rounds(n: int, per_round: int, rounds: int, seed: int) -> Rounds:
    """Draws and gains such as a market has: providers of different worth, with noise, nobody twice, some void."""
    rng = np.random.default_rng(seed)
    worth = rng.normal(size=n)
    found = []
    for _ in range(rounds):
        draws = rng.permutation(n)[: rng.integers(1, per_round + 1)]
        gains = (worth + rng.normal(size=n))[draws]
        found.append((draws, np.where(rng.random(len(draws)) < 0.1, -np.inf, gains)))
    return found


def learned(
    rounds: Rounds, prices: list[int], per_round: int, *, times: float = 1.0, offset: float = 0.0
) -> np.ndarray:
    state, round_budget = start(prices, per_round), purse_of(prices)
    for draws, gains in rounds:
        state = Adaptive().update(state, draws, gains * times + offset, round_budget)
    return state


def chances(state: np.ndarray, prices: list[int]) -> np.ndarray:
    return Adaptive().probabilities(state, purse_of(prices))


def played(
    brings: list[float],
    prices: list[int],
    per_round: int,
    rounds: int,
    *,
    noise: float = 0.3,
    silent: tuple[int, ...] = (),
    state: np.ndarray | None = None,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """The state after a market of its own draws, and how often each was drawn."""
    sampler, round_budget, rng = Adaptive(), purse_of(prices), np.random.default_rng(seed)
    state, drawn = start(prices, per_round) if state is None else state, np.zeros(len(prices))
    for _ in range(rounds):
        draws = sampler.draw(state, rng, per_round, round_budget)
        gains = np.array(brings)[draws] + noise * rng.normal(size=len(draws))
        state = sampler.update(state, draws, np.where(np.isin(draws, silent), -np.inf, gains), round_budget)
        drawn[draws] += 1
    return state, drawn
