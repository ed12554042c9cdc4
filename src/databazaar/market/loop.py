"""The arbiter's loop: Algorithm 1 of the paper, round by round, until a stop has a reason.

    drawn      = rules.draw(state.sampler, book)                line 5 (ledger/rulebook.py)
    replies    = engine.query(run.question(drawn))              line 6
    state, …   = conclude(Round(…, drawn, replies))             lines 7 to 10 (market/round.py)

A round is settled with the reservation of the next, or with the close, in one transaction; then it is told.
"""

from __future__ import annotations

from databazaar.engines import Engine
from databazaar.learning.torch_state import limited_threads
from databazaar.ledger import Drawn
from databazaar.market.round import Outcome, conclude
from databazaar.market.run import MarketRun, Progress


def play(run: MarketRun, engine: Engine) -> None:
    """Plays a run to its end. Torch has one thread meanwhile where a round's stack is small."""
    rules, accounts = run.rules, run.accounts
    last: Progress | None = None
    with limited_threads(run.state.model.size * rules.terms.per_round):
        while (stopped := rules.stopped(accounts.book)) is None:
            number = run.state.round
            drawn = rules.draw(run.state.sampler, accounts.book)
            accounts.reserve(number, drawn)
            run.tell(last)
            state, settlement = play_round(run, drawn, engine)
            freed = run.freed_by(settlement)
            accounts.settle(number, drawn, settlement, state)
            run.state = state
            last = run.progress(drawn, settlement, freed)
        accounts.settle_held_back(rules.returned_at_close(run.state.sampler))
        accounts.close(stopped, run.state)
        run.tell(last)


def play_round(run: MarketRun, drawn: Drawn, engine: Engine) -> Outcome:
    """What a round comes to; the run is not changed. Its updates are let go of before its model is kept."""
    question = run.question(drawn)
    return conclude(run.round(drawn, run.heard(drawn, question, engine.query(question))))
