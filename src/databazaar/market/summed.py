"""A round of which no update comes here: the engine's workers add them up and score them (engines/sums.py).

It comes to the same bits as a round with its updates. That is possible where the model is a large one, the mean alone
moves it, the utility is a built-in one, and nobody looks at an update: no defence that watches, no guided aggregator,
no engine whose providers sign what they send. Where anything is out of the ordinary, such as a model without a finite
utility, the round is played with its updates, which tell whose doing it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import Tensor

from databazaar.aggregators import Mean
from databazaar.engines import Engine, Replies
from databazaar.engines.sums import Sought, Summed
from databazaar.learning.models import LARGE
from databazaar.learning.sums import drowned, reached, stepped
from databazaar.learning.utilities import Scores
from databazaar.ledger import Drawn
from databazaar.market.move import Move
from databazaar.market.round import Concluded, Proposed
from databazaar.market.run import MarketRun


@dataclass(frozen=True)
class ProposedSum(Proposed):
    """A round's models that were scored elsewhere; only that which it comes to is formed here."""

    total: Tensor | None = None

    @cached_property
    def reached(self) -> tuple[Tensor, Tensor]:
        move, total = self.move, self.total
        assert total is not None
        part = reached(move.step, len(self.good), 0 if move.own is None else 1)
        return stepped(move.state.params, part, total, total), move.state.aggregator


def from_sums(run: MarketRun, drawn: Drawn, engine: Engine) -> Concluded | None:
    """What a round comes to, where it can be told without its updates; else None, and nothing is changed."""
    if not allows_sums(run) or engine.remote:
        return None
    sought = seek(run, drawn)
    (summed,) = engine.sums([sought])
    if summed is None or not is_ordinary(sought, summed, run.state.utility):
        return None
    return _conclude(run, drawn, sought, summed)


def allows_sums(run: MarketRun) -> bool:
    """Whether nobody but the mean looks at an update."""
    return (
        len(run.state.params) > LARGE
        and type(run.aggregator) is Mean
        and run.watch is None
        and run.reference is None
        and run.evaluator.recipe is not None
    )


def seek(run: MarketRun, drawn: Drawn) -> Sought:
    ask = run.ask(drawn)
    draws = [i for i in drawn.draws.tolist() if i in ask.providers]
    return Sought(ask, draws, run.step_size, run.gains, run.evaluator, run.own())


def is_ordinary(sought: Sought, summed: Summed, base: float) -> bool:
    """Whether every model has a finite utility, of which a finite gain comes, and no update drowns the others."""
    singles = np.array([utility for own in summed.utilities.values() for utility in own])
    with np.errstate(over="ignore", invalid="ignore"):
        rises = np.array([*singles - (base if sought.gains == "alone" else 0.0), *summed.reached.utility])
    good = [summed.largest[i] for i in sought.draws if i not in summed.failures]
    return bool(np.isfinite(rises).all()) and (sought.gains == "alone" or not drowned(good))


def _conclude(run: MarketRun, drawn: Drawn, sought: Sought, summed: Summed) -> Concluded:
    failures = {**summed.failures, **run.note_failures(drawn, summed.failures)}
    replies = Replies(sought.ask.params.new_empty(0, 0), failures)
    good = [i for i in drawn.draws.tolist() if i not in failures]
    move = Move(run.aggregator, run.state, drawn.asked, replies, sought.step, sought.own)
    proposed = ProposedSum(move, good, sought.gains, total=summed.total)
    return run.conclude(drawn, replies, proposed, _in_rows(drawn, summed))


def _in_rows(drawn: Drawn, summed: Summed) -> Scores:
    """The scores in the order of `Proposed.models`. A failed reply has none, and nobody looks at what stands there."""
    count = max(map(len, summed.utilities.values()))
    nothing = (0.0,) * count
    singles = [summed.utilities.get(i, nothing)[kind] for kind in range(count) for i in drawn.asked]
    loss = summed.reached.loss
    losses = None if loss is None else np.array([np.nan] * len(singles) + loss.tolist())
    return Scores(np.array(singles + summed.reached.utility.tolist()), losses)
