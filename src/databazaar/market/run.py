"""One run of a market under way: its rules, its accounts, and the state that the next round starts from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from databazaar.aggregators import Aggregator
from databazaar.engines import Ask, Replies
from databazaar.engines.quarantine import SET_ASIDE, Quarantine
from databazaar.errors import BazaarError
from databazaar.learning.task import Schedule, step_at
from databazaar.learning.utilities import Evaluator, Scores
from databazaar.ledger import Accounts, Drawn, RuleBook, message_of, status_of
from databazaar.market.round import Concluded, Proposed, State, conclude, first_loss, propose, reach


@dataclass(frozen=True)
class Progress:
    """How far a run has come, after a round. `spent`, `asked` and `budget` are money; `paid` are providers' ids."""

    round: int
    spent: int
    asked: int
    budget: int
    utility: float
    paid: tuple[str, ...]
    params: Tensor


OnRound = Callable[[Progress], None]


@dataclass
class MarketRun:
    """A run under way. `state` is what its next round starts from; everything else stays as it is.

    A driver plays it round by round, alone or with others in lockstep (market/driver.py): `draw`, then `ask`, `hear`,
    `propose`, then `conclude`, then `settle`; and in the end, `close`.
    """

    rules: RuleBook
    aggregator: Aggregator
    step: float | Schedule
    evaluator: Evaluator
    accounts: Accounts
    state: State
    on_round: OnRound | None = None
    quarantine: Quarantine | None = None

    @property
    def ended(self) -> bool:
        return self.rules.stopped(self.accounts.book) is not None

    @property
    def step_size(self) -> float:
        """γ of this round."""
        return step_at(self.step, self.state.round)

    def draw(self) -> Drawn:
        """Draws the round's providers and reserves what they may cost."""
        drawn = self.rules.draw(self.state.sampler, self.accounts.book)
        self.accounts.reserve(self.state.round, drawn)
        return drawn

    def ask(self, drawn: Drawn) -> Ask:
        """The question to those drawn that are not set aside."""
        asked = [i for i in drawn.asked if not self._sets_aside(i)]
        return Ask(self.state.params, asked, self.state.round, self.rules.terms.seed)

    def hear(self, drawn: Drawn, replies: Replies) -> Replies:
        """Replies for all that were drawn; those set aside failed without being asked. Notes who failed."""
        if self.quarantine is None:
            return replies
        ids, number, asked = self.rules.terms.roster.ids, self.state.round, self.ask(drawn).providers
        aside = dict.fromkeys((i for i in drawn.asked if i not in asked), SET_ASIDE)
        for i in asked:
            self.quarantine.note(ids[i], number, replies.failures.get(i))
        if not aside:
            return replies
        updates = replies.updates.new_zeros(len(drawn.asked), len(self.state.params))
        updates[[place for place, i in enumerate(drawn.asked) if i not in aside]] = replies.updates
        return Replies(updates, {**replies.failures, **aside})

    def _sets_aside(self, provider: int) -> bool:
        held, name = self.quarantine, self.rules.terms.roster.ids[provider]
        return held is not None and held.holds(name) and not held.probes(name, self.state.round)

    def propose(self, drawn: Drawn, replies: Replies) -> Proposed:
        """The models to score."""
        return propose(self.aggregator, self.state, drawn, replies, self.step_size)

    def conclude(self, drawn: Drawn, replies: Replies, proposed: Proposed, scores: Scores) -> Concluded:
        """What is paid and learned, and the model that the round comes to."""
        step = self.step_size
        return conclude(self.rules, self.aggregator, self.state, drawn, replies, proposed, scores, step)

    def settle(self, drawn: Drawn, concluded: Concluded) -> None:
        """Writes the round down and goes on to the next."""
        number = self.state.round
        scores = concluded.scores or self.evaluator.score(concluded.params[None])
        self.state, settlement = reach(self.state, concluded, scores)
        self.accounts.settle(number, drawn, settlement, self.state)
        if self.on_round is not None:
            ids, amounts = self.rules.terms.roster.ids, zip(drawn.draws.tolist(), settlement.paid, strict=True)
            paid = tuple(dict.fromkeys(ids[i] for i, amount in amounts if amount))
            book, state = self.accounts.book, self.state
            self.on_round(Progress(state.round, book.spent, book.asked, book.budget, state.utility, paid, state.params))

    def close(self) -> None:
        """Settles the whole run: what is left goes back to the consumer."""
        book = self.accounts.book
        stopped = self.rules.stopped(book)
        assert stopped is not None
        message = message_of(stopped, book, self.rules.terms.currency)
        stop = {"kind": stopped.kind, "reason": stopped.reason}
        self.accounts.close(status_of(stopped, book), message, stop, self.state)


def first_state(rules: RuleBook, aggregator: Aggregator, evaluator: Evaluator, params: Tensor) -> State:
    """Where a new run begins: with the consumer's model, once that has been scored."""
    scores = evaluator.score(params[None])
    utility = float(scores.utility[0])
    if not np.isfinite(utility):
        raise BazaarError(f"the model's own utility is {utility} before the first round: begin elsewhere")
    return State(0, params, utility, first_loss(scores), rules.start(), aggregator.init(params))
