"""One run of a market under way: its rules, its accounts, and the state that the next round starts from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from torch import Tensor

from databazaar.aggregators import Aggregator, Guided
from databazaar.display import Displayed, listed
from databazaar.engines import Ask, Replies
from databazaar.engines.quarantine import SET_ASIDE, Quarantine
from databazaar.errors import BazaarError
from databazaar.learning.task import Schedule, step_at
from databazaar.learning.utilities import Evaluator, Scores
from databazaar.ledger import Accounts, Drawn, RuleBook, message_of, status_of
from databazaar.market.round import Concluded, Proposed, conclude, first_loss, propose, reach, without_longest
from databazaar.market.state import Best, State
from databazaar.market.watch.watch import Watch, Watched


@dataclass(frozen=True, repr=False)
class Progress(Displayed):
    """How far a run has come, after a round: `round` is how many have been played.

    `spent`, `asked` and `budget` are money in minor units, and so is `pay`: what each provider has earned so far.
    `paid` are the ids of those whom this round paid, now or what was held back of them. `utility` and `loss` are those
    of the model now, of whose parameters `params` is a copy; `loss` is None where the utility says nothing about one.
    `flagged` are the ids of those whom the market's defence has flagged so far, `drawn` of those whom this round asked.

    It is told once the round is committed: whoever reads the ledger then finds the round in it.
    """

    round: int
    spent: int
    asked: int
    budget: int
    utility: float
    paid: tuple[str, ...]
    params: Tensor
    loss: float | None = None
    pay: Mapping[str, int] = field(default_factory=dict)
    flagged: tuple[str, ...] = ()
    drawn: tuple[str, ...] = ()

    def _facts(self) -> dict[str, str]:
        losses = {} if self.loss is None else {"loss": f"{self.loss:.4g}"}
        money = {"spent": f"{self.spent} of {self.budget}", "paid now": listed(self.paid) or "nobody"}
        flagged = {"flagged": listed(self.flagged)} if self.flagged else {}
        return {"rounds played": f"{self.round:,}", "utility": f"{self.utility:.4g}", **losses, **money, **flagged}


OnRound = Callable[[Progress], None]
OwnUpdate = Callable[[Tensor, int], Tensor]
"""The update that rows of the consumer's give to these parameters in this round."""


@dataclass
class MarketRun:
    """A run under way. `state` is what its next round starts from; everything else stays as it is.

    It is played round by round (market/driver.py): `draw`, then `ask`, `hear`,
    `propose`, then `conclude`, then `settle`; and in the end, `close`.
    """

    rules: RuleBook
    aggregator: Aggregator
    step: float | Schedule
    evaluator: Evaluator
    accounts: Accounts
    state: State
    on_round: OnRound | None = None
    own_update: OwnUpdate | None = None
    reference: OwnUpdate | None = None
    quarantine: Quarantine | None = None
    watch: Watch | None = None
    _watched: Watched | None = None
    _untold: Progress | None = None
    _signed: Mapping[int, str] = field(default_factory=dict)

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
        self._tell()
        return drawn

    def ask(self, drawn: Drawn) -> Ask:
        """The question to those drawn that are not set aside."""
        asked = [i for i in drawn.asked if not self._sets_aside(i)]
        return Ask(self.state.params, asked, self.state.round, self.rules.terms.seed)

    def hear(self, drawn: Drawn, replies: Replies) -> Replies:
        """Replies for all that were drawn, as the watch lets them pass, where there is one."""
        replies = self._for_all(drawn, replies)
        if self.watch is None:
            return replies
        court = self.rules.court(self.state.sampler)
        self._watched = self.watch(self.state.watch, self.state.params, drawn.asked, replies, self.step_size, court)
        return self._watched.replies

    def _for_all(self, drawn: Drawn, replies: Replies) -> Replies:
        self._signed = replies.signed
        aside = self.note_failures(drawn, replies.failures)
        if not aside:
            return replies
        places = [place for place, i in enumerate(drawn.asked) if i not in aside]
        updates = replies.updates.new_zeros(len(drawn.asked), len(self.state.params))
        updates[places] = replies.updates
        return replace(replies, updates=updates, failures={**replies.failures, **aside})

    def note_failures(self, drawn: Drawn, failures: Mapping[int, str]) -> dict[int, str]:
        """Notes who failed. Those set aside, who are returned, failed without being asked."""
        if self.quarantine is None:
            return {}
        ids, number, asked = self.rules.terms.roster.ids, self.state.round, self.ask(drawn).providers
        aside = dict.fromkeys((i for i in drawn.asked if i not in asked), SET_ASIDE)
        for i in asked:
            self.quarantine.note(ids[i], number, failures.get(i))
        return aside

    def _sets_aside(self, provider: int) -> bool:
        held, name = self.quarantine, self.rules.terms.roster.ids[provider]
        return held is not None and held.holds(name) and not held.probes(name, self.state.round)

    def propose(self, drawn: Drawn, replies: Replies) -> Proposed:
        """The models to score."""
        state = self.state
        if self.reference is not None and isinstance(self.aggregator, Guided):
            guided = self.aggregator.guide(state.aggregator, self.reference(state.params, state.round))
            self.state = state = replace(state, aggregator=guided)
        own, gains = self.own(), self.gains
        return propose(self.aggregator, state, drawn, replies, self.step_size, own, gains, self._left_out)

    def own(self) -> Tensor | None:
        """The consumer's own update in this round, where it has training rows."""
        return None if self.own_update is None else self.own_update(self.state.params, self.state.round)

    @property
    def gains(self) -> str:
        """What the sampler calls the gains that it learns from."""
        return getattr(self.rules.sampler, "gains", "alone")

    @property
    def _left_out(self) -> frozenset[int]:
        return frozenset() if self._watched is None else self._watched.left_out

    def conclude(self, drawn: Drawn, replies: Replies, proposed: Proposed, scores: Scores) -> Concluded:
        """What is paid and learned, and the model that the round comes to, which has a finite utility."""
        step = self.step_size
        if proposed.gains != "alone" and not np.isfinite(scores.utility).all():
            proposed = propose(
                self.aggregator, self.state, drawn, replies, step, proposed.move.own, left_out=self._left_out
            )
            scores = self.evaluator.score_parts(proposed.parts())
        while True:
            findings = None if self._watched is None else self._watched.findings
            concluded = conclude(
                self.rules, self.aggregator, self.state, drawn, replies, proposed, scores, step, findings
            )
            reached = concluded.scores or self.evaluator.score(concluded.params[None])
            if np.isfinite(reached.utility[0]):
                return replace(concluded, scores=reached)
            fewer = without_longest(drawn, replies, concluded)
            if fewer is None:  # a utility that has had a value here, and has none now
                return replace(concluded, scores=self._scores_now())
            replies = fewer

    def _scores_now(self) -> Scores:
        """The scores of the model that the round began with, as they were measured."""
        loss = np.nan if self.state.loss is None else self.state.loss
        return Scores(np.array([self.state.utility]), np.array([loss]))

    def settle(self, drawn: Drawn, concluded: Concluded) -> None:
        """Settles the round and goes on to the next, with whose reservation it is committed, or with the close."""
        number = self.state.round
        self.state, settlement = reach(self.state, concluded)
        if self._watched is not None:
            self.state = replace(self.state, watch=self._watched.kept)
        settlement = replace(settlement, replies=[self._signed.get(i) for i in drawn.draws.tolist()])
        book, ids = self.accounts.book, self.rules.terms.roster.ids
        freed = [ids[i] for i in settlement.released if ids[i] in book.held_back]
        self.accounts.settle(number, drawn, settlement, self.state)
        if self.on_round is not None:
            amounts, state = zip(drawn.draws.tolist(), settlement.paid, strict=True), self.state
            paid = tuple(dict.fromkeys([*(ids[i] for i, amount in amounts if amount), *freed]))
            money = book.spent, book.asked, book.budget
            asked = tuple(ids[i] for i in drawn.draws.tolist())
            params, pay = state.params.clone(), dict(book.pay)
            flagged = tuple(ids[i] for i in self.rules.flagged(state.sampler))
            self._untold = Progress(state.round, *money, state.utility, paid, params, state.loss, pay, flagged, asked)

    def _tell(self) -> None:
        """Reports the last round, which the transaction that was just made holds."""
        progress, self._untold = self._untold, None
        if progress is not None and self.on_round is not None:
            self.on_round(progress)

    def close(self) -> None:
        """Settles the whole run: what is held back goes where it belongs, and what is left back to the consumer."""
        book = self.accounts.book
        stopped = self.rules.stopped(book)
        assert stopped is not None
        self.accounts.settle_held_back(self.rules.returned_at_close(self.state.sampler))
        message = message_of(stopped, book, self.rules.terms.currency)
        self.accounts.close(status_of(stopped, book), message, stopped._asdict(), self.state)
        self._tell()


def first_state(rules: RuleBook, aggregator: Aggregator, evaluator: Evaluator, params: Tensor) -> State:
    """Where a new run begins: with the consumer's model, once that has been scored."""
    scores = evaluator.score(params[None])
    utility = float(scores.utility[0])
    if not np.isfinite(utility):
        raise BazaarError(f"the model's own utility is {utility} before the first round: begin elsewhere")
    loss, best = first_loss(scores), Best(0, params, utility)
    return State(0, params, utility, loss, rules.start(), aggregator.init(params), best)
