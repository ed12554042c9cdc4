"""A whole market from one seed: real arbiter, engine, quarantine and ledger over a simulated network, with an arbiter
that dies and resumes from its store. What must hold is checked after every step, the slow and obvious way."""

from __future__ import annotations

import random
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from databazaar import OSMD, Adaptive, Arbiter, Consumer, Provider, Uniform
from databazaar.codes import Code
from databazaar.engines import Beginning
from databazaar.engines.protocol import LIMIT
from databazaar.engines.quarantine import Quarantine
from databazaar.federation.engine import FederatedEngine
from databazaar.federation.messages import OracleMessage, Request, TaskMessage, decode_reply
from databazaar.federation.transport import MessageError, is_honest
from databazaar.ledger import Entry, Ledger, MemoryStore, Snapshot, audit_entries
from databazaar.market.loop import play
from databazaar.market.run import Progress
from simulated_network import DEADLINE, HONEST, TARGET, WAYS, Clock, Network, Party, Weather, virtual
from small_markets import closeness

RUN = "5eed" * 8
TASK = TaskMessage(
    model=None,
    loss="squared-error",
    oracle=OracleMessage(kind="full-gradient", step=0.3, batch_size=1, epochs=1, momentum=0.0),
    table=None,
)


class Crash(BaseException):
    """The arbiter's process is gone, as by kill -9."""


class Broken(AssertionError):  # noqa: N818
    """Something that must hold did not."""


@dataclass(frozen=True)
class Outcome:
    head: str
    rounds: int
    spent: int
    crashes: int
    delivered: int


class CrashingStore(MemoryStore):
    """Durable for the simulation: it outlives the arbiter, who may die before a commit, or after it without knowing."""

    durable = True

    def __init__(self, rng: random.Random, crashes: int) -> None:
        super().__init__()
        self._rng, self._left = rng, crashes
        self.crashed = 0

    def maybe_crash(self, chance: float) -> None:
        if self._left and self._rng.random() < chance:
            self._left -= 1
            self.crashed += 1
            raise Crash

    def append(self, entries: Sequence[Entry], snapshot: Snapshot | None) -> None:
        self.maybe_crash(0.1)
        super().append(entries, snapshot)
        check_money(list(self.entries()))
        self.maybe_crash(0.1)


class Simulation:
    """One seed. `play` gives the outcome, or raises Broken."""

    def __init__(self, seed: int, *, crashes: bool = True) -> None:
        rng = random.Random(seed)
        self.weather = Weather.of(rng)
        self._ids = [f"p{i}" for i in range(rng.randint(2, 5))]
        self._prices = [rng.randint(1, 4) for _ in self._ids]
        self._per_round = rng.randint(1, 3)
        self._budget = self._per_round * max(self._prices) * rng.randint(2, 10)
        self._caps = [rng.choice((None, None, rng.randint(1, 9))) for _ in self._ids]
        self._sampler = rng.choice((Uniform(), Adaptive(), OSMD(0.1, 0.1)))
        self._tolerated, self._patience = rng.randint(1, 3), rng.randint(2, 12)
        ways = [HONEST if rng.random() < 0.4 else ("answers", *rng.sample(WAYS, 2)) for _ in self._ids]
        offsets = [rng.uniform(-1, 1) for _ in self._ids]
        parties = [Party(*one, seed) for one in zip(self._ids, offsets, ways, strict=True)]
        self._seed, self._rng = seed, random.Random(seed + 1)
        self.clock = Clock()
        self.network = Network(self.clock, random.Random(seed + 2), self.weather, parties)
        self.store = CrashingStore(self._rng, rng.randint(0, 4) if crashes else 0)
        self._answered: set[tuple[str | None, int | None]] = set()
        self.network.before_asking = lambda: self.store.maybe_crash(0.05)

    def play(self) -> Outcome:
        with virtual(self.clock, random.Random(self._seed + 3)), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an engine warns of providers that are not there
            self.network.restart_server()
            while True:
                try:
                    self._play_on()
                    break
                except Crash:
                    self._check_ledger(closed=False)
                    if self._rng.random() < 0.5:
                        self.network.restart_server()
        self._check_ledger(closed=True)
        entries = list(self.store.entries())
        rounds, spent = sum(entry.kind == "round" for entry in entries), entries[-1].body["spent"]
        return Outcome(entries[-1].hash, rounds, spent, self.store.crashed, self.network.delivered)

    def _play_on(self) -> None:
        """As the arbiter does with a run's folder: opens the ledger, tells the engine what it holds, and plays."""
        quarantine = Quarantine(self._tolerated)
        engine = FederatedEngine(TASK, self._ids, self.network, deadline=DEADLINE, wait=DEADLINE, quarantine=quarantine)
        offers = zip(self._ids, self._prices, self._caps, strict=True)
        providers = [Provider(id, price=price, most_accesses=cap) for id, price, cap in offers]
        consumer = Consumer(
            np.zeros(3), budget=self._budget, per_round=self._per_round, utility=closeness(TARGET), step=0.3
        )
        arbiter = Arbiter(consumer, providers, self._sampler, engine=engine, seed=self._seed, patience=self._patience)
        ledger = Ledger(arbiter.rules, self.store)
        if ledger.book.closed:
            return
        engine.begin(Beginning(RUN, self._ended()))

        def check(_: Progress) -> None:
            self._check_quarantine(quarantine)
            self._check_paid_for(list(self.store.entries()))

        play(arbiter.begin(ledger, check), engine)

    def _ended(self) -> list[tuple[int, int, Code | None]]:
        """How each ask ended, as the ledger tells it, each provider once a round."""
        asks = {
            (entry.round or 0, self._ids.index(entry.provider or ""), entry.reason): None
            for entry in self.store.entries()
            if entry.kind in ("post", "void")
        }
        return list(asks)

    def _check_ledger(self, closed: bool) -> None:
        entries = list(self.store.entries())
        if not entries:
            require(not closed, "a run that has ended has no ledger")
            return
        found = audit_entries(entries, self.store.snapshot())
        require(found.ok, f"the audit fails: {found.message}")
        require(found.closed or not closed, "the run has ended and is not closed")
        self._check_paid_for(entries)

    def _check_quarantine(self, held: Quarantine) -> None:
        alone = Quarantine(self._tolerated)
        for round, provider, reason in self._ended():
            alone.note(self._ids[provider], round, reason, honest=is_honest(reason))
        require(alone == held, f"set aside is {held.standings}, by the ledger alone {alone.standings}")

    def _check_paid_for(self, entries: Sequence[Entry]) -> None:
        """Whoever was paid for a round has answered that round's question in good order, while it was open."""
        while self.network.taken:
            name, body = self.network.taken.pop()
            self._answered.add((name, round_of(name, body)))
        for entry in entries:
            if entry.kind == "post" and (entry.provider, entry.round) not in self._answered:
                raise Broken(f"{entry}: {entry.provider} never gave a valid reply")


def round_of(name: str, body: bytes) -> int | None:
    """The round for which these bytes are a valid reply of this provider, if they are one for any."""
    found = re.search(rb'"round":(\d{1,9}),', body)
    if found is None:
        return None
    request = Request(
        protocol=3, kind="update", run=RUN, round=int(found[1]), seed=0, consumer="", contract="", task=TASK
    )
    try:
        reply, update, *_ = decode_reply(body, request, name, torch.zeros(3, dtype=torch.float64))
    except MessageError:
        return None
    return request.round if reply.status == "ok" and update is not None and update.abs().max() <= LIMIT else None


def check_money(entries: Sequence[Entry]) -> None:
    """From the entries alone, added up as on paper."""
    budget: int = entries[0].body["budget"]
    reserved: Counter[tuple[int, int]] = Counter()
    paid: Counter[str] = Counter()
    settled: set[tuple[int, int]] = set()
    for entry in entries:
        key = entry.round or 0, entry.draw or 0
        held = reserved.get(key)
        if entry.amount is not None and entry.amount < 0:
            raise Broken(f"{entry}: a negative amount")
        if entry.kind == "reserve":
            if held is not None or key in settled:
                raise Broken(f"{entry}: reserved twice")
            reserved[key] = entry.amount or 0
        elif entry.kind in ("post", "void"):
            if held is None or (entry.amount or 0) > held or key in settled:
                raise Broken(f"{entry}: nothing like it is reserved, or it was settled before")
            settled.add(key)
            del reserved[key]
            paid[entry.provider or ""] += (entry.amount or 0) if entry.kind == "post" else 0
        elif entry.kind == "close" and (entry.body["spent"], entry.body["refunded"]) != (
            paid.total(),
            budget - paid.total(),
        ):
            raise Broken(f"{entry}: what was spent and what goes back are not what the payments add up to")
        if paid.total() + reserved.total() > budget:
            raise Broken(f"{entry}: over the budget")


def require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Broken(otherwise)


def simulate(seed: int) -> Outcome:
    """Plays one seed. In a calm network, a run that was broken off and resumed must equal one that was not."""
    try:
        simulation = Simulation(seed)
        outcome = simulation.play()
        if simulation.weather.calm and outcome.crashes:
            unbroken = Simulation(seed, crashes=False).play()
            require(outcome.head == unbroken.head, "a resumed run ended otherwise than an unbroken one")
        return outcome
    except BaseException as reason:
        reason.add_note(f"seed {seed} repeats it: python scripts/simulate.py --seed {seed}")
        raise
