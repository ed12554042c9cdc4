"""Rounds of which the engine gives the sum and the utilities alone: the model and the ledger of rounds with updates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from databazaar import OSMD, Arbiter, Ask, Consumer, Engine, LoopEngine, Median, Provider, Replies, Report, Thrifty
from databazaar.engines.sums import Sought, Summed, summed_from
from databazaar.market import move, summed
from databazaar.samplers import Sampler
from own_samplers import Together
from small_markets import blobs

GAINS: dict[str, Sampler] = {"alone": OSMD(0.3, 0.2), "together": Together(), "shapley": Thrifty()}


@pytest.fixture(autouse=True)
def _any_model_is_large(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (move, summed):
        monkeypatch.setattr(module, "LARGE", 1)
    yield


class Counting(Engine):
    """One row after the other, as the workers of a cluster; counts how often it was asked for updates and for sums."""

    name, device = "counting", torch.device("cpu")

    def __init__(self, consumer: Consumer, providers: list[Provider]) -> None:
        self._inner = LoopEngine(consumer.task.copied(), providers, self.device)
        self.asked = self.summed = 0

    def query(self, ask: Ask) -> Replies:
        self.asked += 1
        return self._inner.query(ask)


class Summing(Counting):
    """The same, and sums by the plain way."""

    def sums(self, sought: Sequence[Sought]) -> list[Summed | None]:
        self.summed += len(sought)
        return [summed_from(one, self._inner.query(one.ask)) for one in sought]


def market(trains: bool = False, **oracles: Callable[[np.ndarray], np.ndarray]) -> tuple[Consumer, list[Provider]]:
    rng = np.random.default_rng(2)
    providers = [Provider(f"p{i}", data=blobs(rng, 20 + 3 * i, flip=0.1 * i)) for i in range(4)]
    providers += [Provider(name, oracle=oracle) for name, oracle in oracles.items()]
    consumer = Consumer(
        "logistic",
        holdout=blobs(rng, 30),
        budget=32,
        per_round=4,
        utility="negative-loss",
        train=blobs(rng, 12) if trains else None,
    )
    return consumer, providers


def played(
    engine: type[Counting], consumer: Consumer, providers: list[Provider], **rules: object
) -> tuple[Report, Counting]:
    made = engine(consumer, providers)
    report = Arbiter(consumer, providers, engine=made, seed=6, **rules).run()  # type: ignore[arg-type]
    return report, made


def assert_alike(one: Report, other: Report) -> None:
    assert one.model_hash == other.model_hash
    assert one.ledger_head == other.ledger_head


@pytest.mark.parametrize("trains", [False, True], ids=["", "own rows"])
@pytest.mark.parametrize("gains", GAINS)
def test_no_update_is_asked_for_and_nothing_differs(gains: str, trains: bool) -> None:
    """One provider fails again and again, and is set aside."""
    consumer, providers = market(trains, broken=lambda w: w * np.float32(np.nan))
    plain, _ = played(Counting, consumer, providers, sampler=GAINS[gains])
    found, engine = played(Summing, consumer, providers, sampler=GAINS[gains])
    assert_alike(found, plain)
    assert engine.asked == 0
    assert sum(payout.failures for payout in found.payouts) > 0


@pytest.mark.parametrize("gains", GAINS)
@pytest.mark.parametrize("size", [1e4, 1e15], ids=["drowns the others", "has no finite utility"])
def test_a_round_out_of_the_ordinary_is_played_with_its_updates(gains: str, size: float) -> None:
    consumer, providers = market(giant=lambda w: np.full_like(w, size))
    consumer = replace(consumer, step=1e30 if size == 1e15 else 1.0)
    plain, _ = played(Counting, consumer, providers, sampler=GAINS[gains])
    found, engine = played(Summing, consumer, providers, sampler=GAINS[gains])
    assert_alike(found, plain)
    assert engine.summed > 0
    assert engine.asked > 0 or (gains == "alone" and size == 1e4)


def test_a_defence_or_an_aggregator_that_looks_at_updates_gets_them() -> None:
    consumer, providers = market()
    for rules in ({"defence": "standard"}, {"aggregator": Median()}):
        assert played(Summing, consumer, providers, **rules)[1].summed == 0


def test_a_small_model_keeps_its_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summed, "LARGE", 1000)
    assert played(Summing, *market())[1].summed == 0
