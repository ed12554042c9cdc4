"""What every sampler offers, and the names under which samplers stand in ledgers and settings files."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from databazaar.errors import BazaarError

Vector = NDArray[np.float64]
Draws = NDArray[np.int64]


@runtime_checkable
class Sampler(Protocol):
    """Frozen settings and three pure functions over an explicit state, which is one float64 vector.

    Because a step is a function of (state, draws, gains) alone, a run can be resumed from a stored state,
    and audited from recorded draws and gains without any data or model. `check_sampler` tests the contract.
    """

    kind: ClassVar[str]

    def init(self, providers: int) -> Vector:
        """The state before the first round."""

    def probabilities(self, state: Vector) -> Vector:
        """p: the chance that one draw picks each provider. Finite, non-negative, sums to 1."""

    def draw(self, state: Vector, rng: np.random.Generator, size: int) -> Draws:
        """Indices of the providers to ask, `size` of them, one per draw."""

    def update(self, state: Vector, draws: Draws, gains: Vector) -> Vector:
        """The state after a round. `gains[k]` is U(w + γg) − U(w) for draw k; 0 where the reply was void."""


_KINDS: dict[str, type[Any]] = {}


def register(cls: type[Any]) -> type[Any]:
    """Makes a sampler known by its `kind`, so that an audit can rebuild it from a ledger's first entry."""
    _KINDS[cls.kind] = cls
    return cls


def settings_of(sampler: Sampler) -> dict[str, Any]:
    """The sampler as plain data: its kind and its settings."""
    return {"kind": sampler.kind, **asdict(sampler)}  # type: ignore[call-overload]


def from_settings(settings: dict[str, Any]) -> Sampler:
    """The sampler that `settings_of` described.

    >>> from databazaar.samplers import OSMD
    >>> from_settings(settings_of(OSMD(eta=0.5, alpha=0.1)))
    OSMD(eta=0.5, alpha=0.1, switches=None)
    """
    known = dict(settings)
    kind = known.pop("kind", None)
    if kind not in _KINDS:
        raise BazaarError(f"sampler kind {kind!r} is unknown: use one of {', '.join(sorted(_KINDS))}")
    sampler: Sampler = _KINDS[kind](**known)
    return sampler


def refuse_too_many(draws: int, providers: int) -> None:
    """For samplers that draw without replacement."""
    if draws > providers:
        raise BazaarError(
            f"per_round = {draws} cannot be drawn without replacement from {providers} providers: "
            "lower per_round, or draw with replacement"
        )


def refuse_non_finite(gains: Vector) -> None:
    """One NaN would make every probability NaN, so it never gets in."""
    if not np.isfinite(gains).all():
        raise ValueError("gains must be finite: the arbiter voids replies whose utility is not a number")
