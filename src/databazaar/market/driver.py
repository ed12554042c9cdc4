"""Plays a run to its end."""

from __future__ import annotations

from databazaar.engines import Engine
from databazaar.learning.threads import limited_threads
from databazaar.ledger import Drawn
from databazaar.market.round import Concluded
from databazaar.market.run import MarketRun


def play(run: MarketRun, engine: Engine) -> None:
    """Round after round, until the run has ended. A round's updates are let go of before its model is kept. Torch has
    one thread meanwhile where a round's stack is small."""
    with limited_threads(run.state.params.numel() * run.rules.terms.per_round):
        while not run.ended:
            drawn = run.draw()
            run.settle(drawn, _concluded(run, drawn, engine))
        run.close()


def _concluded(run: MarketRun, drawn: Drawn, engine: Engine) -> Concluded:
    replies = run.hear(drawn, engine.query(run.ask(drawn)))
    proposed = run.propose(drawn, replies)
    return run.conclude(drawn, replies, proposed, run.evaluator.score_parts(proposed.parts()))
