"""The market itself among the methods of valuation: what a provider is paid is its value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from databazaar.aggregators import Aggregator
from databazaar.defence import Defence
from databazaar.engines import Engine
from databazaar.learners import Learner
from databazaar.ledger import Ledger, audit_entries
from databazaar.market.arbiter import Arbiter, theory_sampler
from databazaar.market.loop import play
from databazaar.market.run import MarketRun
from databazaar.parties import Consumer, Provider
from databazaar.payments import Payment
from databazaar.runs.report import report_from
from databazaar.samplers import Adaptive, Sampler, Uniform
from databazaar.stops import Stop
from databazaar.valuation.method import Method
from databazaar.valuation.result import Tally, Trained, ValuationResult


@dataclass(frozen=True, kw_only=True)
class MarketMethod(Method):
    """A run of the market. The sampler is OSMD with the settings of the theory, unless one is given."""

    sampler: Sampler | None = None
    learner: Learner | None = None
    aggregator: Aggregator | None = None
    payment: Payment | None = None
    stops: tuple[Stop, ...] = ()
    patience: int = 10
    defence: Defence | None = None
    kind: ClassVar[str] = "osmd"
    paid_by_access: ClassVar[bool] = True

    def run(self, consumer: Consumer, providers: Sequence[Provider]) -> ValuationResult:
        self.validate(consumer, providers)
        tally, arbiter = Tally(), self.arbiter(consumer, providers, self.engine)
        run = arbiter.begin(Ledger(arbiter.rules))
        try:
            play(run, arbiter.engine)
        finally:
            if isinstance(self.engine, str):
                arbiter.close()
        return _valued(self.kind, run, tally)

    def learner_in(self, consumer: Consumer) -> Learner:
        return self.learner or super().learner_in(consumer)

    def arbiter(self, consumer: Consumer, providers: Sequence[Provider], engine: str | Engine) -> Arbiter:
        return Arbiter(
            consumer,
            providers,
            self.sampler or theory_sampler(consumer, providers),
            learner=self.learner_in(consumer),
            aggregator=self.aggregator,
            payment=self.payment,
            stops=self.stops,
            engine=engine,
            device=self.device,
            seed=self.seed,
            patience=self.patience,
            defence=self.defence,
        )


def _valued(method: str, played: MarketRun, tally: Tally) -> ValuationResult:
    assert isinstance(played.accounts, Ledger)
    report = report_from(audit_entries(played.accounts.store.entries()))
    models = 2 if report.gains == "shapley" else 1  # that are scored for each provider asked (training/averaging.py)
    for one in report.rounds:
        asked = len({access.provider for access in one.accesses})
        tally.oracle_calls += asked
        tally.utility_evaluations += models * asked + 1
    tally.utility_evaluations += 1
    tally.trainings = 1
    pay = np.array([payout.pay for payout in report.payouts], dtype=np.float64)
    ids = tuple(payout.provider for payout in report.payouts)
    trained = Trained(played.state.model, report.final_utility)
    settings = {"sampler": report.sampler}
    return ValuationResult(method, ids, pay, np.zeros(len(ids)), report.message, tally.now(), trained, settings)


@dataclass(frozen=True, kw_only=True)
class UniformMarketMethod(MarketMethod):
    """The market with uniform sampling, with replacement as in [sampler]: everybody is paid alike, but for luck."""

    sampler: Sampler | None = Uniform()  # noqa: RUF009
    kind: ClassVar[str] = "uniform"


@dataclass(frozen=True, kw_only=True)
class WithoutReplacementMethod(MarketMethod):
    """The market with uniform sampling that asks nobody twice in a round."""

    sampler: Sampler | None = Uniform(replacement=False)  # noqa: RUF009
    kind: ClassVar[str] = "uniform-without-replacement"
    draws_without_replacement: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class OwnMarketMethod(MarketMethod):
    """The market as market.toml has it, with its own sampler, built-in or not; from Python, that of `Arbiter`."""

    sampler: Sampler | None = Adaptive()  # noqa: RUF009
    kind: ClassVar[str] = "market"
