"""The purchase evaluation: the bought model beside what the consumer could have had otherwise, on the audit rows.

The alternatives are the consumer's own rows alone; the same money spent by asking all providers alike; and the best
single provider of the few that were paid most. The last two are played in memory with the market's own engine, and only
where the providers' data are at hand: to ask real providers again would have to be paid again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from databazaar.engines import Remote
from databazaar.errors import BazaarError
from databazaar.learning.metrics import intervals, metrics, softmax
from databazaar.ledger import Accounts
from databazaar.market.arbiter import Arbiter
from databazaar.market.loop import play
from databazaar.market.run import MarketRun
from databazaar.parties import Consumer
from databazaar.roster import Roster
from databazaar.runs.purchase import MARKET, OWN, SINGLE, UNIFORM, EvaluatedModel, PurchaseEvaluation
from databazaar.runs.report import Report
from databazaar.samplers import Uniform
from databazaar.training import Model, Training

NOTHING_BETTER = "No round came to a model of higher utility than the one to start from"
SINGLES = 3
"""How many of the best paid providers are tried alone."""


def judge_purchase(
    arbiter: Arbiter, report: Report, *, bought: NDArray[Any] | None = None, scale: float = 1.0
) -> PurchaseEvaluation:
    """Judges the model that `arbiter` has just bought, or `bought`, the array of a model of a run that it made before.

    It needs a consumer with `audit` rows and a model that answers for them. `scale` turns a regression's targets into
    units.
    """
    consumer = arbiter.consumer
    if consumer.audit is None or isinstance(consumer.model, np.ndarray):
        raise BazaarError("whether it was worth it is judged by audit rows: give Consumer(…, audit=(x, y))")
    with consumer.limited_threads():
        training = arbiter.training()
        model = arbiter.reached if bought is None else training.restored(bought)
        return _judged(arbiter, report, training, model, scale)


def _judged(arbiter: Arbiter, report: Report, training: Training, bought: Model, scale: float) -> PurchaseEvaluation:
    consumer = arbiter.consumer
    model = _Answers.of(consumer, training, bought, scale)
    others = [model.beside(OWN, _Answers.of(consumer, training, training.own_rows_alone(), scale))]
    notes: tuple[str, ...] = ()
    if report.rounds and report.best is not None and report.best.round == 0:
        notes += (f"{NOTHING_BETTER}: what is delivered is that one, and the money has bought nothing better.",)
    if isinstance(arbiter.engine, Remote):
        notes += ("Uniform buying and single providers were not tried: providers would have to be paid again.",)
    elif report.rounds:
        others += _played(arbiter, report, model, scale)
    return PurchaseEvaluation(
        task=model.task,
        rows=len(model.y),
        bought=EvaluatedModel(MARKET, model.metrics),
        others=tuple(others),
        intervals=intervals(model.task, model.values, model.y),
        notes=notes,
    )


def _played(arbiter: Arbiter, report: Report, bought: _Answers, scale: float) -> list[EvaluatedModel]:
    """The alternatives that have to be played, for as many rounds as the market took."""
    rounds, per_round = len(report.rounds), report.per_round
    tried = sorted(range(len(report.payouts)), key=lambda i: (-report.payouts[i].pay, i))[:SINGLES]
    rules = arbiter.rules
    runs = [alternative(arbiter, max(report.spent, per_round * int(rules.quotes_at(0).min())), per_round)]
    if len(report.payouts) > 1:
        for place in tried:
            cost = sum(int(rules.quotes_at(round)[place]) for round in range(rounds))
            runs.append(alternative(arbiter, max(cost, int(rules.quotes_at(0).min())), 1, only=place))
    for run in runs:
        play(run, arbiter.engine)
    answers = [_Answers.of(arbiter.consumer, run.training, run.state.best.model, scale) for run in runs]
    judged = [bought.beside(UNIFORM, answers[0])]
    if len(runs) > 1:
        best = min(range(1, len(runs)), key=lambda place: float(answers[place].losses.mean()))
        name = report.payouts[tried[best - 1]].provider
        judged.append(bought.beside(SINGLE, answers[best], f"{name}, of the {len(tried)} paid most"))
    return judged


def alternative(arbiter: Arbiter, budget: int, per_round: int, only: int | None = None) -> MarketRun:
    """A run that asks everybody alike, within the market's caps and limits; or one provider alone, because nobody else
    has an access to give."""
    consumer = arbiter.consumer.with_budget(budget, per_round)
    rules = arbiter.rules
    other = Arbiter(
        consumer,
        arbiter.providers,
        Uniform(),
        learner=arbiter.learner,
        aggregator=arbiter.aggregator,
        payment=rules.payment,
        engine=arbiter.engine,
        seed=rules.terms.seed,
    )
    if only is not None:
        offers = other.rules.terms.roster.offers
        alone = tuple(offer if place == only else replace(offer, most_accesses=0) for place, offer in enumerate(offers))
        other.rules = replace(other.rules, terms=replace(other.rules.terms, roster=Roster(alone)))
    return other.begin(Accounts(other.rules))


@dataclass(frozen=True)
class _Answers:
    """What a model answers on the audit rows, and each row's loss."""

    task: str
    values: NDArray[np.float64]
    y: NDArray[np.float64] | NDArray[np.int64]
    losses: NDArray[np.float64]

    @classmethod
    def of(cls, consumer: Consumer, training: Training, model: Model, scale: float) -> _Answers:
        assert consumer.audit is not None
        outputs = training.outputs(model, consumer.audit[0])
        y = consumer.audit[1].cpu().numpy()
        if consumer.classifies:
            p = softmax(outputs if outputs.shape[1] > 1 else np.concatenate([0 * outputs, outputs], 1))
            losses = -np.log(np.clip(p[np.arange(len(y)), y], np.finfo(np.float64).eps, 1.0))
            return cls("classification", p, y, losses)
        values, y = outputs.reshape(-1) * scale, y.reshape(-1).astype(np.float64) * scale
        return cls("regression", values, y, (values - y) ** 2)

    @property
    def metrics(self) -> dict[str, float]:
        return metrics(self.task, self.values, self.y)

    def beside(self, kind: str, other: _Answers, detail: str = "") -> EvaluatedModel:
        """The other model, and how far this one is ahead of it, row by row."""
        ahead = other.losses - self.losses
        error = float(ahead.std(ddof=1)) / len(ahead) ** 0.5 if len(ahead) > 1 else float("nan")
        return EvaluatedModel(kind, other.metrics, float(ahead.mean()), error, detail)
