"""Several consumers over the same providers, with lanes and without: accesses that are void, and seconds a round.

    python benchmarks/bench_lanes.py [--consumers 1 2 4 6] [--seconds 0.2] [--deadline 0.6] [--rounds 20]

The real Exchange, engine, quarantine and arbiter, in threads of this process. A provider takes a fixed time for an
answer and gives one at a time, in the order in which questions come, as a provider's own process does; a question whose
deadline has passed by then is not computed. "without" asks everybody at once, as versions before 0.7 did: the deadline
runs while a question waits at the provider behind those of others. Nothing here loads a core.
"""

from __future__ import annotations

import argparse
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from databazaar import Adaptive, Arbiter, Consumer, Provider, Report
from databazaar.federation.engine import FederatedEngine
from databazaar.federation.exchange import Exchange
from databazaar.federation.messages import OracleMessage, TaskMessage
from databazaar.federation.transport import Failures, Replies, Transport
from databazaar.federation.worker import ProviderWorker

TARGET = np.array([1.0, -1.0, 0.5])
ORACLE = OracleMessage(kind="full-gradient", step=0.3, batch_size=1, epochs=1, momentum=0.0)
TASK = TaskMessage(model=None, loss="squared-error", oracle=ORACLE, table=None)
NO_LANES = 10**6


@dataclass(frozen=True)
class Setting:
    providers: int
    per_round: int
    seconds: float
    deadline: float
    rounds: int


class Network:
    """A server and its providers, each a thread with a queue of its own."""

    def __init__(self, names: Sequence[str], seconds: float, capacity: int) -> None:
        self.exchange = Exchange(self._send, lambda name: True, 10**6, poll=0.01, capacity=lambda name: capacity)
        self._seconds = seconds
        self._asked = {name: queue.Queue[tuple[float, str, bytes]]() for name in names}
        for place, name in enumerate(names):
            threading.Thread(target=self._answer, args=(name, place), daemon=True).start()

    def _send(self, name: str, number: str, payload: bytes, seconds: float) -> None:
        self._asked[name].put((time.monotonic() + seconds, number, payload))

    def _answer(self, name: str, place: int) -> None:
        worker = ProviderWorker(name, lambda w: TARGET + 0.1 * place - w)
        while True:
            until, number, payload = self._asked[name].get()
            if time.monotonic() < until:
                time.sleep(self._seconds)
                answer = worker(payload)
                self.exchange.take(name, number, len(answer), "", answer)


class Way(Transport):
    """One consumer's way to the providers."""

    def __init__(self, exchange: Exchange, consumer: str) -> None:
        self._exchange, self._consumer = exchange, consumer

    def request(self, names: Sequence[str], payload: bytes, timeout: float) -> tuple[Replies, Failures]:
        return self._exchange.ask(names, payload, timeout, self._consumer)

    def connected(self) -> list[str]:
        return []

    def wait_for(self, names: Sequence[str], timeout: float) -> list[str]:
        return []

    def close(self) -> None:
        return None


def closeness(w: np.ndarray) -> float:
    return float(np.exp(-0.5 * np.sum((w - TARGET) ** 2)))


def measure(consumers: int, setting: Setting, capacity: int) -> tuple[float, float, list[str]]:
    """The share of void accesses, seconds a round, and the heads of the ledgers."""
    names = [f"p{place}" for place in range(setting.providers)]
    network = Network(names, setting.seconds, capacity)
    reports: dict[int, Report] = {}

    def play(seed: int) -> None:
        way = Way(network.exchange, f"consumer {seed}")
        engine = FederatedEngine(TASK, names, way, deadline=setting.deadline)
        budget = setting.rounds * setting.per_round
        consumer = Consumer(np.zeros(3), budget=budget, per_round=setting.per_round, utility=closeness, step=0.3)
        arbiter = Arbiter(consumer, [Provider(name) for name in names], Adaptive(), engine=engine, seed=seed)
        reports[seed] = arbiter.run()

    began = time.perf_counter()
    threads = [threading.Thread(target=play, args=(seed,)) for seed in range(consumers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    accesses = [access for report in reports.values() for round in report.rounds for access in round.accesses]
    rounds = max(len(report.rounds) for report in reports.values())
    void = sum(access.failure is not None for access in accesses) / len(accesses)
    return void, took / rounds, [reports[seed].ledger_head for seed in range(consumers)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--consumers", type=int, nargs="+", default=[1, 2, 4, 6])
    parser.add_argument("--providers", type=int, default=3)
    parser.add_argument("--per-round", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.2, help="a provider's time for an answer")
    parser.add_argument("--deadline", type=float, default=0.6)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    setting = Setting(given.providers, given.per_round, given.seconds, given.deadline, given.rounds)
    alone = measure(1, setting, 1)[2][0]
    print(f"{'':>9}  {'without lanes':^24}  {'with lanes':^24}")
    print(f"{'consumers':>9}  {'void':>10}{'s a round':>14}  {'void':>10}{'s a round':>14}  first as alone")
    for consumers in given.consumers:
        before, after = (measure(consumers, setting, capacity) for capacity in (NO_LANES, 1))
        shown = "".join(f"{void:>12.0%}{seconds:>14.2f}" for void, seconds, _ in (before, after))
        print(f"{consumers:>9}{shown}  {'yes' if after[2][0] == alone else 'NO'}", flush=True)


if __name__ == "__main__":
    main()
