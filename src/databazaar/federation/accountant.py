"""What differential privacy has cost a provider so far: counted by Opacus, written down before any answer leaves."""

from __future__ import annotations

import json
import math
import warnings
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path
from typing import Any

from databazaar.errors import BazaarError
from databazaar.federation.policy import RefusedError
from databazaar.federation.private_files import write_json
from databazaar.files import alone

History = list[tuple[float, float, int]]
"""(noise multiplier, sample rate, steps) of all answers; all that is needed to know what was spent."""

MOST_RATES = 200
MOST_CONSUMERS = 1000
OTHERS = "…"
"""Under this name all further consumers have one budget together, so that made-up names do not fill the file."""


class Accountant:
    """What has been spent from one account, in Rényi differential privacy. What consumers are told composes, so `cap`
    is for all of them together; `cap_per_consumer` is for each, who is known by the market's word."""

    def __init__(self, path: Path, delta: float, cap: float, cap_per_consumer: float | None = None) -> None:
        refuse_unfit(delta, cap, cap_per_consumer)
        self.path, self.delta, self.cap = path, delta, cap
        self.cap_per_consumer = cap if cap_per_consumer is None else cap_per_consumer
        kept = read_account(path)
        self._history, self._consumers = history_in(kept, path), consumers_in(kept, path)
        self._spent = epsilon_of(self._history, delta)

    @property
    def spent(self) -> float:
        return self._spent

    def spent_by(self, consumer: str) -> float:
        """What this consumer was told costs, taken alone."""
        return epsilon_of(self._consumers.get(self._counted_as(consumer), []), self.delta)

    def check(self, noise: float, rate: float, steps: int, consumer: str = "") -> None:
        """Raises RefusedError where one more answer of this kind would pass a cap."""
        self._refuse_beyond(*self._with(noise, rate, steps, consumer))

    def charge(self, noise: float, rate: float, steps: int, consumer: str = "") -> None:
        """Takes the cost of one answer, durably, or raises RefusedError and takes nothing.

        What another process has written meanwhile counts: however many answer from one account, none is forgotten.
        """
        try:
            with account_lock(self.path):
                kept = read_account(self.path)
                self._take(history_in(kept, self.path), consumers_in(kept, self.path))
                history, own = self._with(noise, rate, steps, consumer)
                epsilon = self._refuse_beyond(history, own)
                consumers = {**self._consumers, self._counted_as(consumer): own}
                written = {"history": history, "consumers": consumers, "delta": self.delta, "epsilon": epsilon}
                write_json(self.path, {**kept, **written})
        except BazaarError as reason:
            raise OSError(str(reason)) from None  # this machine's fault, and no refusal
        self._history, self._consumers, self._spent = history, consumers, epsilon

    def _take(self, history: History, consumers: dict[str, History]) -> None:
        if history != self._history:
            self._history, self._spent = history, epsilon_of(history, self.delta)
        self._consumers = consumers

    def _with(self, noise: float, rate: float, steps: int, consumer: str) -> tuple[History, History]:
        """The history in all and that of the consumer, with so many steps more."""
        own = self._consumers.get(self._counted_as(consumer), [])
        return added(self._history, noise, rate, steps), added(own, noise, rate, steps)

    def _refuse_beyond(self, history: History, own: History) -> float:
        """ε of the history in all, or RefusedError where it, or the consumer's own, is over its cap."""
        epsilon = epsilon_of(history, self.delta)
        if epsilon > self.cap:
            raise RefusedError("privacy-spent")
        if self.cap_per_consumer < self.cap and epsilon_of(own, self.delta) > self.cap_per_consumer:
            raise RefusedError("consumer-privacy-spent")
        return epsilon

    def _counted_as(self, consumer: str) -> str:
        full = consumer not in self._consumers and len(self._consumers) >= MOST_CONSUMERS
        return OTHERS if full else consumer


def refuse_unfit(delta: float, cap: float, cap_per_consumer: float | None = None) -> None:
    """Says what is wrong with the settings, or what is not installed, before anybody connects."""
    if not 0 < delta < 1:
        raise BazaarError(f"δ = {delta} must lie between 0 and 1: take less than one over the number of rows")
    if not cap > 0:
        raise BazaarError(f"the cap ε = {cap} must be positive: raise it, or answer without privacy")
    if cap_per_consumer is not None and not 0 < cap_per_consumer <= cap:
        raise BazaarError(f"the cap of one consumer, ε = {cap_per_consumer}, must lie between 0 and that of all, {cap}")
    _opacus()


def account_lock(path: Path) -> AbstractContextManager[None]:
    """One process at a time changes the account in this file."""
    return alone(path.with_name(path.name + ".lock"))


def read_account(path: Path) -> dict[str, Any]:
    """All that the file says; nothing where it is not there."""
    if not path.exists():
        return {}
    try:
        kept = json.loads(path.read_text())
    except (OSError, ValueError):
        kept = None
    if not isinstance(kept, dict):
        raise _unknown(path)
    return kept


def history_in(kept: dict[str, Any], path: Path) -> History:
    try:
        return _history(kept["history"] if kept else [])
    except (ValueError, KeyError, TypeError):
        raise _unknown(path) from None


def consumers_in(kept: dict[str, Any], path: Path) -> dict[str, History]:
    """What was answered to each consumer."""
    try:
        return {str(name): _history(history) for name, history in kept.get("consumers", {}).items()}
    except (ValueError, AttributeError, TypeError):
        raise _unknown(path) from None


def _history(written: Any) -> History:
    return [(float(noise), float(rate), int(steps)) for noise, rate, steps in written]


def _unknown(path: Path) -> BazaarError:
    return BazaarError(f"{path} cannot be read, so what was spent is not known: put it back from a copy")


def added(history: History, noise: float, rate: float, steps: int) -> History:
    """The history with so many steps more.

    A market chooses the rate with every question. After many different ones a new rate is charged as the next higher
    known one, or else as the next power of two: more than it costs, so that the count stays short.

    >>> added([(1.0, 0.5, 4)], 1.0, 0.5, 2)
    [(1.0, 0.5, 6)]
    """
    if len(history) >= MOST_RATES:
        rates = sorted(known for known_noise, known, _ in history if known_noise == noise and known >= rate)
        rate = rates[0] if rates else 2.0 ** math.ceil(math.log2(rate))
    for place, (known_noise, known_rate, known_steps) in enumerate(history):
        if (known_noise, known_rate) == (noise, rate):
            return [*history[:place], (noise, rate, known_steps + steps), *history[place + 1 :]]
    return [*history, (noise, rate, steps)]


def epsilon_of(history: History, delta: float) -> float:
    """The ε that these steps cost in all, at this δ."""
    if not history:
        return 0.0
    orders, _, smallest = _opacus()
    total = sum(_one_step(noise, rate) * steps for noise, rate, steps in history)
    with warnings.catch_warnings():  # at the ends of its table of orders Opacus's bound is loose, and still holds
        warnings.simplefilter("ignore")
        return float(smallest(orders=orders, rdp=total, delta=delta)[0])


def _opacus() -> tuple[Any, Any, Any]:
    """The orders that Opacus looks at, the cost of some steps at each, and the smallest ε that follows."""
    try:
        from opacus.accountants import RDPAccountant
        from opacus.accountants.analysis import rdp
    except ImportError:
        raise BazaarError("privacy needs more packages: pip install 'databazaar[privacy]'") from None
    return RDPAccountant.DEFAULT_ALPHAS, rdp.compute_rdp, rdp.get_privacy_spent


@lru_cache(maxsize=1000)
def _one_step(noise: float, rate: float) -> Any:
    """The cost of one step at every order; that of several steps is as many times as much."""
    orders, cost, _ = _opacus()
    return cost(q=rate, noise_multiplier=noise, steps=1, orders=orders)
