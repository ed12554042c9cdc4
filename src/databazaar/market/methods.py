"""The market itself among the methods of valuation: what a provider is paid is its value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from databazaar.market.arbiter import Arbiter
from databazaar.parties.consumer import Consumer
from databazaar.parties.provider import Provider
from databazaar.samplers import Sampler, Uniform
from databazaar.valuation.method import Method
from databazaar.valuation.result import Tally, Trained, ValuationResult

WITHOUT_REPLACEMENT = Uniform(replacement=False)


@dataclass(frozen=True, kw_only=True)
class MarketRun(Method):
    """A run of the market. The sampler is OSMD with the settings of the theory, unless one is given."""

    sampler: Sampler | None = None
    kind: ClassVar[str] = "osmd"
    paid_by_access: ClassVar[bool] = True

    def run(self, consumer: Consumer, providers: Sequence[Provider]) -> ValuationResult:
        self.validate(consumer, providers)
        tally = Tally()
        arbiter = Arbiter(consumer, providers, self.sampler, engine=self.engine, device=self.device, seed=self.seed)
        report = arbiter.run()
        for played in report.rounds:
            asked = len({access.provider for access in played.accesses})
            tally.oracle_calls += asked
            tally.utility_evaluations += asked + 1
        tally.utility_evaluations += 1
        tally.trainings = 1
        pay = np.array([payout.pay for payout in report.payouts], dtype=np.float64)
        ids = tuple(payout.provider for payout in report.payouts)
        trained = Trained(arbiter.parameters, report.final_utility)
        method = str(report.sampler["kind"])
        return ValuationResult(method, ids, pay, np.zeros(len(ids)), report.message, tally.now(), trained)


@dataclass(frozen=True, kw_only=True)
class UniformMarketRun(MarketRun):
    """The market with uniform sampling without replacement: everybody is paid alike, but for luck."""

    sampler: Sampler | None = WITHOUT_REPLACEMENT
    kind: ClassVar[str] = "uniform"
    draws_without_replacement: ClassVar[bool] = True
