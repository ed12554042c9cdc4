"""Values from a single training run: of providers, the gains that the learner gives them on its way; and of rows.

Everybody is asked in every round, so a provider's value is the sum of its gains over a run of its learner. In-run
training gives the first-order in-run Shapley value (Wang et al., Data Shapley in One Training Run, ICLR 2025), trees
and linear models the halfway gains of parts in predictions (databazaar/training says what each family's gain is).

Rows have two values (row_values.py). With l_j(t) the loss of row j in the model that round t begins with, and
L(t) the mean loss of the rows that judge,

    brought_j = Σ_t ⟨∂U/∂m, row j's part of round t's move⟩       what it does for those who judge
    fit_j     = mean_t (L(t) − l_j(t))                            how well the others' rows foretell its target

Where the rows judge each other and U = −loss, these are one idea. Row j's part of a move does to first order as much
for all rows as the whole move does for row j, because ⟨g_j, P Σ_k g_k⟩ is symmetric in j and k. So Σ_t (1 − t/T)
brought_j(t), which counts what came before rows are learned by heart, is l_j(0) − mean_t l_j(t), to first order; and
fit_j is that beside others', less l_j(0), which only says how common a target is. Wrong targets have the lowest fit,
and it needs neither a validation set nor a rule of when to stop: a mean over the run has both the rounds that know
little and those that know rows by heart. Of networks it is the "confidence" of Swayamdipta et al. (Dataset Cartography,
2020) in the units of the loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from databazaar.aggregators import Mean
from databazaar.engines import make_engine
from databazaar.engines.rows import RowsEngine
from databazaar.errors import BazaarError
from databazaar.learners import Boosting, InRun, Learner, Market, learner_for
from databazaar.learners.boosting import MOST
from databazaar.parties import Consumer, Provider
from databazaar.row_values import RowSums, Sums, added
from databazaar.valuation.lessons import lessons
from databazaar.valuation.method import Context, Method
from databazaar.valuation.result import Trained, ValuationResult

LEAVES = 8
"""Of a tree that values rows: a small one says what many rows say, and learns none by heart."""
JUDGED = 4
"""A network judges one row in so many in each round, or what the learner does anyway."""
STEPS, SMALLEST = 16, 16
"""Steps of a network in a round over few rows, and the fewest rows of one."""
ROUNDS = {"in-run": 15, "newton": 5}
"""Rounds of a training that values rows: networks come to know rows by heart, and Newton's method is soon there."""
MOST_ROUNDS = 60
"""Those of other learners."""


@dataclass(frozen=True, kw_only=True)
class InRunShapley(Method):
    """The gains of all providers in one run of the model's learner, which asks everybody in each of `rounds` rounds. A
    network is trained in-run, unless another learner of rows is given."""

    rounds: int = 30
    learner: Learner | None = None
    kind: ClassVar[str] = "in-run"

    def learner_in(self, consumer: Consumer) -> Learner:
        return self.learner or learner_of_rows(consumer)

    def validate(self, consumer: Consumer, providers: Sequence[Provider]) -> None:
        super().validate(consumer, providers)
        _refuse_no_rounds(self.rounds)
        if self.learner_in(consumer).rows is None:
            raise BazaarError(f"{self.kind} values what trains on rows: leave the learner out, or give one that does")
        if not isinstance(self.engine, str | RowsEngine):
            raise BazaarError(f'{self.kind} needs the providers\' rows here: use engine "vectorized"')

    def value(self, context: Context) -> ValuationResult:
        consumer, providers = context.consumer, range(len(context.providers))
        learner, device = self.learner_in(consumer), context.engine.device
        training = learner.training(Market(consumer, Mean(), device, self.seed, self.rounds))
        values, trained = np.zeros(len(providers)), Trained(learner.begin(consumer), np.nan)
        for _, learned in lessons(
            training, trained.model, providers, lambda ask: context.ask([ask])[0], self.rounds, self.seed
        ):
            values += [learned.gains[i] or 0.0 for i in providers]
            trained = Trained(learned.model, float(learned.scores.utility[0]))
            context.tally.utility_evaluations += 1
        context.tally.trainings += 1
        stopped, cost = f"one training of {self.rounds:,} rounds", context.tally.now()
        return ValuationResult(self.kind, context.ids, values, np.zeros(len(values)), stopped, cost, trained)


def learner_of_rows(consumer: Consumer) -> Learner:
    """The learner of the consumer's model, or in-run training where that one buys updates."""
    learner = learner_for(consumer.model)
    return InRun() if learner.rows is None else learner


def row_values(
    x: Any,
    y: Any,
    holdout: tuple[Any, Any] | None = None,
    *,
    model: Any = "trees",
    learner: Learner | None = None,
    rounds: int | None = None,
    seed: int = 0,
    device: str = "auto",
) -> RowSums:
    """What each row brings and how well it fits, from one training on all rows: lowest of `fit` are wrong targets.

    `holdout` = (x, y) judges; without it the rows judge each other. `model` is what `Consumer` takes: "trees", "mlp",
    "logistic" or a torch module. Trees are grown one a round (one a class), of 8 leaves, unless a learner of rows is
    given. Without `rounds` there are 60 of trees, 15 of a network, and 5 of Newton's method.

    >>> x = np.linspace(-1.0, 1.0, 200)[:, None]
    >>> y = (x[:, 0] > 0).astype(int)
    >>> y[[20, 150]] = 1 - y[[20, 150]]
    >>> sorted(row_values(x, y).fit.argsort()[:2].tolist())
    [20, 150]
    """
    provider = Provider("rows", data=(x, y))
    judges, count = provider.dataset if holdout is None else holdout, len(provider.dataset[1])
    consumer = Consumer(model, budget=1, holdout=judges, utility="negative-loss", per_round=1)
    chosen = learner or _learner(consumer, count)
    rounds = ROUNDS.get(chosen.kind, MOST_ROUNDS) if rounds is None else rounds
    if chosen.rows is None:
        raise BazaarError(f'learner "{chosen.kind}" trains on no rows: leave it out, or give one that does')
    _refuse_no_rounds(rounds)
    with consumer.limited_threads():
        engine = make_engine("vectorized", consumer.task.copied(), [provider], device, chosen.rows)
        training = chosen.training(Market(consumer, Mean(), engine.device, seed, rounds))
        sums: Sums = {0: np.zeros((count, 3))}
        for lesson, learned in lessons(training, chosen.begin(consumer), [0], engine.query, rounds, seed, True):
            if learned.failures:
                raise BazaarError("the model has no finite loss on these rows: look for NaN or infinity among them")
            sums = added(sums, learned.rows, lesson.replies.places, lesson.loss)
    return RowSums(sums[0])


def _refuse_no_rounds(rounds: int) -> None:
    if rounds < 1:
        raise BazaarError(f"rounds = {rounds} must be at least 1: a round is when gains are measured")


def _learner(consumer: Consumer, count: int) -> Learner:
    """One that takes all rows in every round, where they are not more than a learner may."""
    found, count = learner_of_rows(consumer), min(count, MOST)
    if isinstance(found, Boosting):
        return replace(found, rows=count, trees=1, leaves=LEAVES)
    if isinstance(found, InRun):  # each round goes through the rows once: more would learn few rows by heart
        batch = min(found.batch_size, max(SMALLEST, count // STEPS))
        return replace(found, rows=count, judged=max(found.judged, count // JUDGED), batch_size=batch, least_steps=1)
    return found
