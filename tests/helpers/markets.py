"""Small markets that can be played at home and over a federation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from databazaar import Consumer, LocalSGD, Provider
from databazaar.federation.engine import FederatedEngine
from databazaar.federation.messages import ModelMessage, OracleMessage, TaskMessage
from databazaar.federation.transport import Transport
from databazaar.learning.task import Halving

ORACLE = OracleMessage(kind="local-sgd", step=0.2, batch_size=8, epochs=1, momentum=0.5)
TASK = TaskMessage(
    model=ModelMessage(kind="logistic", inputs=(4,), outputs=2, hidden=()),
    loss="cross-entropy",
    oracle=ORACLE,
    table=None,
)
STEP = Halving(0.2, every=4)
ROWS = 32
"""Of every party: the fewest from which a provider answers."""


def examples(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Two classes in four dimensions; every name has its own rows, and a higher number more wrong labels."""
    rng = np.random.default_rng(list(name.encode()))
    y = rng.integers(0, 2, ROWS)
    x = rng.normal(size=(ROWS, 4)) + 1.5 * (2 * y[:, None] - 1)
    wrong = rng.random(ROWS) < 0.2 * (int(name[-1]) - 1)
    return x.astype(np.float32), np.where(wrong, 1 - y, y)


def a_consumer(budget: int = 36, **more: Any) -> Consumer:
    return Consumer("logistic", holdout=examples("holdout1"), budget=budget, per_round=3, **more)


def at_home(names: Sequence[str]) -> list[Provider]:
    return [Provider(name, data=examples(name), oracle=LocalSGD(STEP, 8, 1, 0.5)) for name in names]


def afar(names: Sequence[str]) -> list[Provider]:
    return [Provider(name) for name in names]


def federated(names: Sequence[str], transport: Transport, **more: Any) -> FederatedEngine:
    return FederatedEngine(TASK, names, transport, step=STEP, **more)
