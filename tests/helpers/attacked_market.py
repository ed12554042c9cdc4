"""A real market that is played against: one who has no data, one who knows a part of the hold-out, and a twin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from databazaar import Arbiter, Consumer, Provider
from databazaar.defence import Defence
from databazaar.market.inspection.holdout_parts import halves
from databazaar.money import Currency
from databazaar_experiments.attacks import Known, Leak, MixedEngine, Noise

SIZE, ROWS, SEED = 30, 60, 0
HONEST = 6


def attacked_market(budget: int = 2400, **more: Any) -> Arbiter:
    """Six banks, of which the first has a `twin`; `spy` trains on the scoring part of the hold-out, and `hum` sends
    noise. With `more` for the arbiter."""
    rng = np.random.default_rng(SEED)
    truth = rng.normal(size=SIZE)

    def rows(count: int, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        x = (rng.normal(size=(count, SIZE)) + shift * rng.normal(size=SIZE)).astype(np.float32)
        return x, (x @ truth + rng.normal(size=count) > 0).astype(np.int64)

    holdout = rows(ROWS)
    scoring = halves(ROWS, SEED).scoring
    consumer = Consumer("logistic", holdout=holdout, budget=budget, per_round=6, currency=Currency("EUR", 2))
    banks = [Provider(f"bank{i}", data=rows(60, 0.4), price=10) for i in range(HONEST)]

    def joined(attack: Any, name: str) -> list[Provider]:
        own = Provider(name, data=rows(50), price=10)
        leaked = holdout[0][scoring], holdout[1][scoring]
        found: list[Provider] = attack.join(Known(consumer.task, (own,), leaked, HONEST + 3, 1))
        return found

    providers = [*banks, *joined(Noise(), "hum"), *joined(Leak(), "spy"), replace(banks[0], id="twin", owner="twin")]
    given = {"defence": replace(Defence.named("standard"), leak=0.3), **more}
    return Arbiter(consumer, providers, engine=MixedEngine(consumer.task, providers), seed=SEED, **given)
