"""What every sampler offers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from databazaar.errors import BazaarError
from databazaar.registry import Registry
from databazaar.roster import Roster, RoundBudget

Vector = NDArray[np.float64]
Draws = NDArray[np.int64]
State = Vector
"""What a sampler has learned."""

SAMPLERS = Registry("sampler", "databazaar.samplers")
"""Every sampler by its kind."""
GAINS = ("alone", "shapley")
"""The gains that a sampler may ask for."""


@dataclass(frozen=True)
class Wants:
    """What a sampler wants of a market; `wants: ClassVar[Wants] = Wants()` is the paper's.

    `gains` are "alone", each update by itself, or "shapley", the provider's Shapley value within the round
    (training/averaging.py). With `failures` a void reply has a gain of −∞, and not one of zero. With `short_rounds` it
    may draw fewer than it could; with `no_repeats` it draws nobody twice in a round.

    >>> Wants(gains="shapely")
    Traceback (most recent call last):
    databazaar.errors.BazaarError: gains = 'shapely' is unknown: a sampler may want alone, shapley
    """

    gains: str = "alone"
    failures: bool = False
    short_rounds: bool = False
    no_repeats: bool = False

    def __post_init__(self) -> None:
        if self.gains not in GAINS:
            raise BazaarError(f"gains = {self.gains!r} is unknown: a sampler may want {', '.join(GAINS)}")


@runtime_checkable
class Sampler(Protocol):
    """Frozen settings and pure functions over an explicit state, which is one float64 vector.

    Because a step is a function of (state, draws, gains, purse) alone, a run can be resumed from a stored state,
    and audited from recorded draws and gains without any data or model. `check_sampler` tests the contract.

    Its class declares what it `wants`. One that keeps chances above a floor `Explores`, and one that can make one of
    two providers `Merges`.
    """

    kind: ClassVar[str]

    @property
    def wants(self) -> Wants:
        """What it wants of a market: a class attribute does."""
        ...

    def init(self, roster: Roster, budget: int, per_round: int) -> State:
        """The state before the first round. `budget` is money, in minor units; a round has `per_round` draws."""
        ...

    def probabilities(self, state: State, round_budget: RoundBudget) -> Vector:
        """p: the chance that one draw picks each provider. Finite, non-negative, sums to 1; 0 for who is too dear."""
        ...

    def draw(self, state: State, rng: np.random.Generator, size: int, round_budget: RoundBudget) -> Draws:
        """Indices of the providers to ask, one per draw: `size` of them, or fewer (at least one) if fewer can be, or if
        it wants `short_rounds`."""
        ...

    def update(self, state: State, draws: Draws, gains: Vector, round_budget: RoundBudget) -> State:
        """The state after a round. `gains[k]` is that of draw k, U(w + γg) − U(w) if alone; 0 where the reply was void.

        `round_budget` is the one that was drawn from. Draws that it did not pay for are not among `draws`.
        """
        ...


@runtime_checkable
class Explores(Protocol):
    """A sampler that keeps a share `alpha` even over all providers."""

    @property
    def alpha(self) -> float: ...

    def exploration(self, round_budget: RoundBudget) -> Vector:
        """The money that a draw spends in the mean only to keep each provider explored."""


@runtime_checkable
class Merges(Protocol):
    """A sampler that knows what becomes of its state when two providers turn out to be one."""

    def merge(self, state: State, kept: int, left: int) -> State:
        """The state in which what was seen of `left` was seen of `kept`; `left` is not drawn any more."""


def refuse_without_wants(sampler: Sampler) -> None:
    if not isinstance(getattr(sampler, "wants", None), Wants):
        raise BazaarError(
            f"sampler {sampler.kind!r} does not say what it wants: give its class `wants = Wants()`, of "
            "databazaar.samplers"
        )


def among_affordable(p: Vector, round_budget: RoundBudget) -> Vector:
    """p given that the provider drawn is affordable. Where everybody is, that is p itself, to the last bit."""
    if round_budget.everybody:
        return p
    masked: Vector = np.where(round_budget.available, p, 0.0)
    if not masked.any():
        masked = round_budget.available.astype(np.float64)
    masked /= masked.sum()
    return masked


def draw_independently(p: Vector, rng: np.random.Generator, size: int, round_budget: RoundBudget) -> Draws:
    """Every draw by itself, from `among_affordable` chances, by inverting the cumulated p: a library's `choice` may
    break ties otherwise."""
    ladder = p.cumsum()
    picks = ladder.searchsorted(rng.random(size) * ladder[-1], side="right")
    last = len(p) - 1 if round_budget.everybody else int(np.flatnonzero(p)[-1])
    draws: Draws = np.minimum(picks, last).astype(np.int64, copy=False)
    return draws


def refuse_too_many(draws: int, providers: int) -> None:
    """For samplers that draw without replacement."""
    if draws > providers:
        raise BazaarError(
            f"per_round = {draws} cannot be drawn without replacement from {providers} providers: "
            "lower per_round, or draw with replacement"
        )


def refuse_unheard(gains: Vector) -> None:
    """For samplers that hear failures: −∞ is one, and all else must be a number."""
    refuse_non_finite(gains[gains != -np.inf])


def refuse_non_finite(gains: Vector) -> None:
    """One NaN would make every probability NaN, so it never gets in."""
    if not all(map(math.isfinite, gains.tolist())):
        raise ValueError("gains must be finite: the arbiter voids replies whose utility is not a number")
