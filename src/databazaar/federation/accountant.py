"""What differential privacy has cost a dataset so far: counted by Opacus, written down before any answer leaves.

There is one account for a dataset, over kits, markets and consumers: a folder of the user's, a file an account. An
account knows its files by what is in them (their SHA-256) and by where they lie. The same rows never have two budgets;
a file that was edited goes on with what it has spent; and a file that no account knows gets a fresh budget only when
there is no account yet or the provider says so.
"""

from __future__ import annotations

import math
import os
import re
import warnings
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, FiniteFloat

from databazaar.errors import BazaarError
from databazaar.federation.enrolment_files import write_json
from databazaar.federation.policy import RefusedError
from databazaar.files import alone

History = list[tuple[FiniteFloat, FiniteFloat, int]]
"""(noise multiplier, sample rate, steps) of all answers; all that is needed to know what was spent."""

MOST_RATES = 200
MOST_CONSUMERS = 1000
OTHERS = "…"
"""Under this name all further consumers have one budget together, so that made-up names do not fill the file."""
PLACE = "DATABAZAAR_ACCOUNTS"
"""The environment variable that names another folder for the accounts."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Account(BaseModel):
    """What the file of an account holds: all answers, those to each consumer, and the data that they were about."""

    history: History
    consumers: dict[str, History] = {}
    delta: float = 1e-5
    epsilon: float = 0.0
    files: list[str] = []
    digests: list[str] = []

    @classmethod
    def read(cls, path: Path) -> Account:
        """The account in this file; an empty one where it is not there."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return cls(history=[])
        except (OSError, ValueError):
            raise BazaarError(
                f"{path} cannot be read, so what was spent is not known: put it back from a copy"
            ) from None


class Accountant:
    """What has been spent from one account, in Rényi differential privacy. What consumers are told composes, so `cap`
    is for all of them together; `cap_per_consumer` is for each, who is known by the market's word."""

    def __init__(self, path: Path, delta: float, cap: float, cap_per_consumer: float | None = None) -> None:
        refuse_unfit(delta, cap, cap_per_consumer)
        self.path, self.delta, self.cap = path, delta, cap
        self.cap_per_consumer = cap if cap_per_consumer is None else cap_per_consumer
        self._account = Account.read(path)
        self.spent = epsilon_of(self._account.history, delta)

    def charge(self, noise: float, rate: float, steps: int, consumer: str = "") -> None:
        """Takes the cost of one answer, durably, or raises RefusedError and takes nothing. What another process has
        written meanwhile counts: however many answer from one account, none is forgotten."""
        try:
            with account_lock(self.path):
                kept = Account.read(self.path)
                if kept.history != self._account.history:
                    self.spent = epsilon_of(kept.history, self.delta)
                self._account = kept
                charged = self.check(noise, rate, steps, consumer)
                write_json(self.path, charged.model_dump())
        except BazaarError as reason:
            raise OSError(str(reason)) from None  # this machine's fault, and no refusal
        self._account, self.spent = charged, charged.epsilon

    def check(self, noise: float, rate: float, steps: int, consumer: str = "") -> Account:
        """The account with one more answer of so many steps, or RefusedError where that would pass a cap."""
        known = self._account.consumers
        name = consumer if consumer in known or len(known) < MOST_CONSUMERS else OTHERS
        own = added(known.get(name, []), noise, rate, steps)
        history = added(self._account.history, noise, rate, steps)
        epsilon = epsilon_of(history, self.delta)
        if epsilon > self.cap:
            raise RefusedError("privacy-spent")
        if self.cap_per_consumer < self.cap and epsilon_of(own, self.delta) > self.cap_per_consumer:
            raise RefusedError("consumer-privacy-spent")
        changes = {"history": history, "consumers": {**known, name: own}, "delta": self.delta, "epsilon": epsilon}
        return self._account.model_copy(update=changes)


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


def users_folder() -> Path:
    """Where the accounts of this user are, unless the environment says otherwise."""
    if given := os.environ.get(PLACE):
        return Path(given)
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "databazaar" / "accounts"


class Accounts:
    """The accounts in a folder. What is written there is durable before it is used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def choose(self, data: Path, digest: str, name: str | None = None) -> tuple[Path, str]:
        """The account of this file, which is noted there, and what to tell the provider. `name` is its own choice."""
        if name is not None and not _NAME.fullmatch(name):
            raise BazaarError(f"--account {name} is no name: use up to 64 letters, digits, '-', '_' and '.'")
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with alone(self.folder / ".lock"):
                return self._choose(str(data.resolve()), digest, name)
        except OSError as reason:
            raise BazaarError(
                f"{self.folder} cannot be used for privacy accounts ({reason.strerror}): set {PLACE} to another folder"
            ) from None

    def known(self) -> dict[str, Account]:
        found = sorted(self.folder.glob("*.json")) if self.folder.is_dir() else []
        return {path.stem: Account.read(path) for path in found}

    def _choose(self, place: str, digest: str, name: str | None) -> tuple[Path, str]:
        known = self.known()
        same = next((n for n, kept in known.items() if digest in kept.digests), None)
        there = next((n for n, kept in known.items() if place in kept.files), None)
        if name is not None and same is not None and name != same:
            raise BazaarError(
                f"{place} is counted in the account {same} already, and the same rows have one budget: "
                f"leave --account out, or say --account {same}"
            )
        chosen = name or same or there
        if chosen is None and known:
            raise BazaarError(
                f"no privacy account in {self.folder} knows {place}: say --account with one of {', '.join(known)} if "
                "rows of its files are in this one too, or with a new name if none is: that gives a fresh budget"
            )
        says = ""
        if chosen is None:
            chosen = re.sub(r"[^A-Za-z0-9_-]", "-", Path(place).name.split(".")[0]).strip("-_")[:64] or "data"
            says = f"a new privacy account {chosen} in {self.folder}"
        elif same is None and chosen == there:
            says = f"{place} has changed since it was last charged: it goes on with what the account {chosen} has spent"
        for other, kept in known.items():
            if other != chosen and place in kept.files:
                self._note(other, files=[file for file in kept.files if file != place])
        kept = known.get(chosen, Account(history=[]))
        if place not in kept.files or digest not in kept.digests:
            self._note(chosen, files=sorted({*kept.files, place}), digests=sorted({*kept.digests, digest}))
        return self.folder / f"{chosen}.json", says

    def _note(self, name: str, **changes: list[str]) -> None:
        path = self.folder / f"{name}.json"
        with account_lock(path):
            write_json(path, {**Account.read(path).model_dump(), **changes})
