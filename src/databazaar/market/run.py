"""One run of a market under way: its rules, its accounts, and the state that the next round starts from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from databazaar.aggregators import Aggregator
from databazaar.engines import Ask, Replies
from databazaar.errors import BazaarError
from databazaar.learning.task import Schedule, step_at
from databazaar.learning.utilities import Evaluator, Scores
from databazaar.ledger import Accounts, Drawn, Ledger, RuleBook, status_of
from databazaar.market.round import Concluded, State, candidates, conclude, first_loss, reach


@dataclass(frozen=True)
class Progress:
    """Told after every round."""

    round: int
    spent: int
    asked: int
    budget: int
    utility: float
    paid: tuple[str, ...]
    params: Tensor


OnRound = Callable[[Progress], None]


class MarketRun:
    """A run that is played round by round: `ask`, then `stack`, then `conclude`, then `settle`; at the end, `close`.

    A driver does the work in between, for one run or for several in lockstep (market/driver.py).
    """

    def __init__(
        self,
        rules: RuleBook,
        aggregator: Aggregator,
        step: float | Schedule,
        evaluator: Evaluator,
        accounts: Accounts,
        state: State,
        on_round: OnRound | None = None,
    ) -> None:
        self.rules, self.aggregator, self.evaluator, self.accounts = rules, aggregator, evaluator, accounts
        self.state = state
        self._step = step
        self._on_round = on_round
        self._drawn: Drawn | None = None
        self._concluded: Concluded | None = None

    @classmethod
    def begin(
        cls,
        rules: RuleBook,
        aggregator: Aggregator,
        step: float | Schedule,
        evaluator: Evaluator,
        accounts: Accounts,
        params: Tensor,
        on_round: OnRound | None = None,
    ) -> MarketRun:
        """A run at its beginning, or where its ledger's last committed round left it."""
        snapshot = accounts.store.snapshot() if isinstance(accounts, Ledger) else None
        if snapshot is not None:
            state = State.restored(snapshot, params)
        else:
            scores = evaluator.score(params[None])
            utility = float(scores.utility[0])
            if not np.isfinite(utility):
                raise BazaarError(f"the model's own utility is {utility} before the first round: begin elsewhere")
            state = State(0, params, utility, first_loss(scores), rules.start(), aggregator.init(params))
        return cls(rules, aggregator, step, evaluator, accounts, state, on_round)

    @property
    def ended(self) -> bool:
        return self.rules.stopped(self.accounts.book) is not None

    def ask(self) -> Ask:
        """Draws the round's providers and reserves what they may cost."""
        state = self.state
        drawn = self._drawn = self.rules.draw(state.sampler, self.accounts.book)
        self.accounts.reserve(state.round, drawn)
        return Ask(state.params, drawn.asked, state.round, self.rules.terms.seed)

    def stack(self, replies: Replies) -> Tensor:
        """The models to score: one for each provider asked."""
        self._replies = replies
        return candidates(self.state, replies, self.step)

    @property
    def step(self) -> float:
        """γ of this round."""
        return step_at(self._step, self.state.round)

    def conclude(self, scores: Scores) -> Tensor | None:
        """The new model, which is to be scored; None where nobody moved it."""
        assert self._drawn is not None
        self._concluded = conclude(
            self.rules, self.aggregator, self.state, self._drawn, self._replies, scores, self.step
        )
        return self._concluded.params[None] if self._concluded.moved else None

    def settle(self, scores: Scores | None) -> None:
        """Pays, writes the round down and goes on to the next."""
        assert self._drawn is not None and self._concluded is not None
        drawn, number = self._drawn, self.state.round
        self.state, settlement = reach(self.state, self._concluded, scores)
        self.accounts.settle(number, drawn, settlement, self.state)
        if self._on_round is not None:
            failed = {i for i, why in zip(drawn.draws.tolist(), settlement.failures, strict=True) if why is not None}
            paid = tuple(self.rules.terms.roster.ids[i] for i in drawn.asked if i not in failed)
            book, state = self.accounts.book, self.state
            self._on_round(
                Progress(state.round, book.spent, book.asked, book.budget, state.utility, paid, state.params)
            )

    def close(self) -> None:
        """Settles the whole run: what is left goes back to the consumer."""
        book, money = self.accounts.book, self.rules.terms.currency.format
        stopped = self.rules.stopped(book)
        assert stopped is not None
        status, left = status_of(stopped, book), money(book.budget - book.spent)
        if status == "settled":
            why = "" if stopped.kind == "budget" else f"; it stopped because {stopped.reason}"
            message = f"{book.rounds} rounds played, {money(book.spent)} paid, {left} back to the consumer{why}"
        elif status == "nobody answered":
            message = (
                f"nobody gave a valid reply in the last {book.silent} rounds: the run stopped after {book.rounds} "
                f"rounds, and {left} go back to the consumer; the ledger says why each reply failed"
            )
        else:
            message = (
                f"round {book.rounds} came to a model that has no finite utility: the step was not taken, the run "
                f"stopped, and {left} go back to the consumer; lower the steps, or begin elsewhere"
            )
        self.accounts.close(status, message, {"kind": stopped.kind, "reason": stopped.reason}, self.state)
