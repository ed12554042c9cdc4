"""Plays runs to their ends: one, ten seeds in lockstep, or the jobs of several consumers with one engine."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from databazaar.engines import Engine
from databazaar.learning.threads import limited_threads
from databazaar.learning.utilities import Evaluator, Scores
from databazaar.ledger import Drawn
from databazaar.market.round import Concluded
from databazaar.market.run import MarketRun
from databazaar.market.summed import from_sums


def play(runs: Sequence[MarketRun], engine: Engine) -> None:
    """A round of every run that goes on, until none does. What all of them need at a moment is computed as one stack.

    Runs are independent: each ends as if it were played alone, up to float tolerance. Torch has one thread meanwhile
    where the stack is small.
    """
    going = list(runs)
    with limited_threads(sum(run.state.params.numel() * run.rules.terms.per_round for run in going)):
        while going := _close_ended(going):
            _play_round(going, engine)


def _play_round(going: Sequence[MarketRun], engine: Engine) -> None:
    """One round of each. Its updates are let go of before the models that it comes to are kept."""
    drawn = [run.draw() for run in going]
    concluded = from_sums(going, drawn, engine)  # no update is here: large models, where rules and engine allow it
    rest = [place for place, found in enumerate(concluded) if found is None]
    if rest:
        updated = _from_updates([going[place] for place in rest], [drawn[place] for place in rest], engine)
        concluded = [found or updated.pop(0) for found in concluded]
    for run, own_drawn, own_concluded in zip(going, drawn, concluded, strict=True):
        assert own_concluded is not None
        run.settle(own_drawn, own_concluded)


def _from_updates(going: Sequence[MarketRun], drawn: Sequence[Drawn], engine: Engine) -> list[Concluded]:
    """What rounds come to whose updates are here."""
    answers = engine.query_many(list(map(MarketRun.ask, going, drawn)))
    replies = list(map(MarketRun.hear, going, drawn, answers))
    proposed = list(map(MarketRun.propose, going, drawn, replies))
    if any(own.large for own in proposed):
        scores = [run.evaluator.score_parts(own.parts()) for run, own in zip(going, proposed, strict=True)]
    else:
        scores = score_together([run.evaluator for run in going], [own.models for own in proposed])
    return list(map(MarketRun.conclude, going, drawn, replies, proposed, scores))


def _close_ended(runs: Sequence[MarketRun]) -> list[MarketRun]:
    """Those that go on; the others are closed."""
    going = []
    for run in runs:
        if run.ended:
            run.close()
        else:
            going.append(run)
    return going


def score_together(evaluators: Sequence[Evaluator], stacks: Sequence[Tensor]) -> list[Scores]:
    """Every stack's scores by its own evaluator; stacks that share one are scored in one pass."""
    found: dict[int, Scores] = {}
    for evaluator in {id(own): own for own in evaluators}.values():
        places = [i for i, own in enumerate(evaluators) if own is evaluator]
        found.update(zip(places, evaluator.score_many([stacks[i] for i in places]), strict=True))
    return [found[i] for i in range(len(stacks))]
