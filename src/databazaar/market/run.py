"""One run of a market under way: its rules, its accounts, and the state that the next round starts from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from databazaar.codes import QUARANTINED
from databazaar.display import Displayed, listed
from databazaar.engines import Ask, Replies
from databazaar.engines.quarantine import Quarantine
from databazaar.errors import BazaarError
from databazaar.learning.task import Schedule, step_at
from databazaar.ledger import Accounts, Drawn, RuleBook, Settlement
from databazaar.market.inspection.inspection import Watch
from databazaar.market.round import Round, first_loss
from databazaar.market.state import Best, State
from databazaar.training import Lesson, Model, Training
from databazaar.training.parameters import vector_of


@dataclass(frozen=True, repr=False)
class Progress(Displayed):
    """How far a run has come, after a round: `round` is how many have been played.

    `spent`, `asked` and `budget` are money in minor units, and so is `pay`: what each provider has earned so far.
    `paid` are the ids of those whom this round paid, now or what was held back of them. `utility` and `loss` are those
    of the `model` now; `loss` is None where the utility says nothing about one.
    `flagged` are the ids of those whom the market's defence has flagged so far, `drawn` of those whom this round asked.

    It is told once the round is committed to the ledger.
    """

    round: int
    spent: int
    asked: int
    budget: int
    utility: float
    paid: tuple[str, ...]
    model: Model
    loss: float | None = None
    pay: Mapping[str, int] = field(default_factory=dict)
    flagged: tuple[str, ...] = ()
    drawn: tuple[str, ...] = ()

    @property
    def params(self) -> Tensor:
        """A copy of the parameters, of a model that is a vector of them."""
        return vector_of(self.model).clone()

    def _facts(self) -> dict[str, str]:
        losses = {} if self.loss is None else {"loss": f"{self.loss:.4g}"}
        money = {"spent": f"{self.spent} of {self.budget}", "paid now": listed(self.paid) or "nobody"}
        flagged = {"flagged": listed(self.flagged)} if self.flagged else {}
        return {"rounds played": f"{self.round:,}", "utility": f"{self.utility:.4g}", **losses, **money, **flagged}


OnRound = Callable[[Progress], None]


@dataclass
class MarketRun:
    """A run under way: what it is played with (market/loop.py), and the `state` that its next round starts from."""

    rules: RuleBook
    training: Training
    accounts: Accounts
    state: State
    on_round: OnRound | None = None
    quarantine: Quarantine | None = None
    watch: Watch | None = None
    step: float | Schedule = 1.0
    """The paper's γ, by which a watch weighs updates."""

    def question(self, drawn: Drawn) -> Ask:
        """The question to those drawn that are not set aside."""
        ids, round, held = self.rules.terms.roster.ids, self.state.round, self.quarantine
        asked = [i for i in drawn.asked if held is None or not held.holds(ids[i]) or held.probes(ids[i], round)]
        return Ask(self.training.question(self.state.model), asked, round, self.rules.terms.seed)

    def heard(self, drawn: Drawn, question: Ask, replies: Replies) -> Replies:
        """Replies for all that were drawn: those set aside have failed without being asked. Who fails is noted."""
        ids, asked = self.rules.terms.roster.ids, question.providers
        if self.quarantine is not None:
            for i in asked:
                self.quarantine.note(ids[i], question.round, replies.failures.get(i))
        return replies.among(asked, drawn.asked, QUARANTINED)

    def round(self, drawn: Drawn, replies: Replies) -> Round:
        """The round, whose replies are as the watch lets them pass, where there is one."""
        state, watched, left_out = self.state, None, frozenset[int]()
        if self.watch is not None:
            step = step_at(self.step, state.round)
            detector = self.rules.detector(state.sampler)
            watched = self.watch(state.watch, state.model, drawn.asked, replies, step, detector)
            replies, left_out = watched.replies, watched.left_out
        lesson = Lesson(
            model=state.model,
            memory=state.memory,
            utility=state.utility,
            loss=state.loss,
            drawn=drawn,
            replies=replies,
            round=state.round,
            spent=self.accounts.book.spent / self.rules.terms.budget,
            left_out=left_out,
            gains=self.rules.sampler.wants.gains,
            values_rows=state.rows is not None,
        )
        return Round(self.rules, self.training, state, lesson, watched)

    def freed_by(self, settlement: Settlement) -> tuple[str, ...]:
        """Whose held-back pay a settlement, which is yet to be booked, sets free."""
        ids, held = self.rules.terms.roster.ids, self.accounts.book.held_back
        return tuple(ids[i] for i in settlement.released if ids[i] in held)

    def progress(self, drawn: Drawn, settlement: Settlement, freed: Sequence[str]) -> Progress | None:
        """What those who listen are told of the round that was settled last; None where nobody listens."""
        if self.on_round is None:
            return None
        book, state, ids = self.accounts.book, self.state, self.rules.terms.roster.ids
        asked = tuple(ids[i] for i in drawn.draws.tolist())
        paid = [name for name, amount in zip(asked, settlement.paid, strict=True) if amount]
        return Progress(
            round=state.round,
            spent=book.spent,
            asked=book.asked,
            budget=book.budget,
            utility=state.utility,
            paid=tuple(dict.fromkeys([*paid, *freed])),
            model=state.model,
            loss=state.loss,
            pay=dict(book.pay),
            flagged=tuple(ids[i] for i in self.rules.flagged(state.sampler)),
            drawn=asked,
        )

    def tell(self, progress: Progress | None) -> None:
        """Reports a round, which the transaction that was just made holds."""
        if progress is not None and self.on_round is not None:
            self.on_round(progress)


def first_state(rules: RuleBook, training: Training, model: Model, values_rows: bool = False) -> State:
    """Where a new run begins: with the consumer's model, once that has been scored."""
    scores = training.score(model)
    utility = float(scores.utility[0])
    if not np.isfinite(utility):
        raise BazaarError(f"the model's own utility is {utility} before the first round: begin elsewhere")
    loss, best = first_loss(scores), Best(0, model, utility)
    rows = dict[int, NDArray[np.float64]]() if values_rows else None
    return State(0, model, utility, loss, rules.start(), training.init(model), best, rows=rows)
