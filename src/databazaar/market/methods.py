"""The market itself among the methods of valuation: what a provider is paid is its value."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from databazaar.aggregators import Aggregator
from databazaar.defence import Defence
from databazaar.engines import Engine
from databazaar.ledger import Ledger, audit_entries
from databazaar.market.arbiter import Arbiter, theory_sampler
from databazaar.market.driver import play
from databazaar.market.run import MarketRun
from databazaar.parties import Consumer, Provider
from databazaar.payments import Payment
from databazaar.runs.from_ledger import report_from
from databazaar.samplers import Sampler, Thrifty, Uniform
from databazaar.stops import Stop
from databazaar.valuation.method import Done, Method, spread_evenly
from databazaar.valuation.result import Tally, Trained, ValuationResult


@dataclass(frozen=True, kw_only=True)
class MarketMethod(Method):
    """A run of the market. The sampler is OSMD with the settings of the theory, unless one is given."""

    sampler: Sampler | None = None
    aggregator: Aggregator | None = None
    payment: Payment | None = None
    stops: tuple[Stop, ...] = ()
    patience: int = 10
    defence: Defence | None = None
    kind: ClassVar[str] = "osmd"
    paid_by_access: ClassVar[bool] = True

    def run(self, consumer: Consumer, providers: Sequence[Provider]) -> ValuationResult:
        return self.run_seeds([self], consumer, providers, lambda run: None)[0]

    def arbiter(self, consumer: Consumer, providers: Sequence[Provider], engine: str | Engine) -> Arbiter:
        return Arbiter(
            consumer,
            providers,
            self.sampler or theory_sampler(consumer, providers),
            aggregator=self.aggregator,
            payment=self.payment,
            stops=self.stops,
            engine=engine,
            device=self.device,
            seed=self.seed,
            patience=self.patience,
            defence=self.defence,
        )

    @classmethod
    def run_seeds(
        cls, runs: Sequence[Self], consumer: Consumer, providers: Sequence[Provider], done: Done
    ) -> list[ValuationResult]:
        """All seeds in lockstep on one engine. The time that it takes is spread evenly over them."""
        began = time.perf_counter()
        with ExitStack() as stack:
            engine, evaluator, played = runs[0].engine, None, []
            for run in runs:
                run.validate(consumer, providers)
                arbiter = run.arbiter(consumer, providers, engine)
                if isinstance(engine, str):
                    engine = arbiter.engine
                    stack.callback(engine.close)
                evaluator = evaluator or consumer.evaluator(engine.device)
                played.append(arbiter.begin(Ledger(arbiter.rules), evaluator=evaluator))
            play(played, arbiter.engine)
        for run in runs:
            done(run)
        return spread_evenly([_valued(cls.kind, one) for one in played], time.perf_counter() - began)


def _valued(method: str, played: MarketRun) -> ValuationResult:
    assert isinstance(played.accounts, Ledger)
    report, tally = report_from(audit_entries(played.accounts.store.entries())), Tally()
    models = 2 if report.gains == "shapley" else 1  # that are scored for each provider asked (market/round.py)
    for one in report.rounds:
        asked = len({access.provider for access in one.accesses})
        tally.oracle_calls += asked
        tally.utility_evaluations += models * asked + 1
    tally.utility_evaluations += 1
    tally.trainings = 1
    pay = np.array([payout.pay for payout in report.payouts], dtype=np.float64)
    ids = tuple(payout.provider for payout in report.payouts)
    trained = Trained(played.state.params.detach().cpu(), report.final_utility)
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
    """The market as market.toml has it, with its own sampler, whoever wrote that; from Python, that of `Arbiter`."""

    sampler: Sampler | None = Thrifty()  # noqa: RUF009
    kind: ClassVar[str] = "market"
