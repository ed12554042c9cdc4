"""The rules that money depends on, applied in one place: by the run while it is played, and by the audit after it.

Everything here is a function of the terms and of what the ledger holds, and needs neither data, model nor torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from databazaar.codes import Code
from databazaar.defence import Defence, Findings, OwnerGroups, Verdict, judge
from databazaar.defence.detector import DetectorState
from databazaar.defence.judge import doubted
from databazaar.defence.shares import Accesses, now_and_held
from databazaar.errors import BazaarError
from databazaar.ledger.book import Book
from databazaar.ledger.terms import Terms
from databazaar.money import Currency
from databazaar.payments import PAYMENTS, Payment
from databazaar.randomness import draws_stream
from databazaar.roster import Amounts, Roster, RoundBudget
from databazaar.samplers import SAMPLERS, Sampler
from databazaar.samplers.protocol import Draws, State, Vector, refuse_without_wants
from databazaar.stops import STOPS, History, Stop
from databazaar.stops.budget import SPENT

WHOLE = (int, np.integer)
"""What an amount may be, as a payment rule says it."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """Whom a round asks: one provider per draw, the chance of each, and the round's budget that was drawn from."""

    draws: Draws
    probabilities: Vector
    round_budget: RoundBudget

    @cached_property
    def quotes(self) -> list[int]:
        """The most that each draw may be paid."""
        quotes: list[int] = self.round_budget.quotes.take(self.draws).tolist()
        return quotes

    @cached_property
    def asked(self) -> list[int]:
        """Each provider once, in the order of the draws: a provider drawn twice is asked once and paid twice."""
        return list(dict.fromkeys(self.draws.tolist()))


class Settled(NamedTuple):
    """What a round comes to by the rules: the new state, and of every draw what is paid now and what is held back.

    `released` and `returned` are the places of those whose held-back pay is settled now, for them or for the consumer.
    """

    state: State
    paid: list[int]
    held: list[int]
    released: list[int]
    returned: list[int]
    verdicts: tuple[Verdict, ...]


class Stopped(NamedTuple):
    """Which stop ended a run, and why."""

    kind: str
    reason: Code

    def body(self) -> dict[str, Any]:
        """As a closing entry holds it."""
        return {"kind": self.kind, "reason": self.reason.body()}

    @classmethod
    def read(cls, body: dict[str, Any]) -> Stopped:
        return cls(str(body["kind"]), Code.read(body["reason"]))


BY_CONSUMER = Stopped("consumer", Code("closed-by-consumer"))
"""The only stop that no replay comes to: the consumer may end a run at any time, for whatever is settled by then."""


@dataclass(frozen=True)
class RuleBook:
    """A run's terms with its sampler, payment and stops. (The aggregator moves the model, and no money.)

    Where the terms have a defence, the sampler chooses arms (defence/owner_groups.py) by the sampler that was given.
    """

    terms: Terms
    sampler: Sampler
    payment: Payment
    stops: tuple[Stop, ...]

    def __post_init__(self) -> None:
        refuse_without_wants(self.sampler)
        if not self.defence.off and not isinstance(self.sampler, OwnerGroups):
            object.__setattr__(self, "sampler", OwnerGroups(self.sampler, self.defence))

    @cached_property
    def defence(self) -> Defence:
        """What the terms have agreed against those who play for the money."""
        return Defence.of(self.terms.rules.get("defence", {}))

    @classmethod
    def of(cls, terms: Terms) -> RuleBook:
        """The rules that the terms name, built by the registry."""
        sampler, payment = SAMPLERS.build(terms.rules["sampler"]), PAYMENTS.build(terms.rules["payment"])
        return cls(terms, sampler, payment, tuple(STOPS.build(settings) for settings in terms.rules["stops"]))

    def quotes_at(self, round: int) -> Amounts:
        """The most that an access to each provider may cost in this round."""
        passed = self.terms.roster.changes_by(round)
        if passed not in self._quoted:
            self._quoted[passed] = self._quote(self.terms.roster.at(round))
        return self._quoted[passed]

    @cached_property
    def _quoted(self) -> dict[int, Amounts]:
        """The quotes between two changes of prices, by how many have come."""
        return {}

    def _quote(self, roster: Roster) -> Amounts:
        quotes = self.payment.quote(roster)
        if quotes.shape != (len(self.terms.roster),) or quotes.dtype != np.int64 or (quotes < 1).any():
            raise BazaarError(
                f"payment {self.payment.kind!r} must quote a whole amount of 1 or more for every provider"
            )
        return quotes

    def new_book(self) -> Book:
        """Empty accounts for this run."""
        terms, roster = self.terms, self.terms.roster
        first = dict(zip(roster.ids, self.quotes_at(0).tolist(), strict=True))
        now, changes = dict(first) if roster.change_rounds else {}, dict[str, list[tuple[int, int]]]()
        for round in roster.change_rounds:
            for provider, quote in zip(roster.ids, self.quotes_at(round).tolist(), strict=True):
                if quote != now[provider]:
                    changes.setdefault(provider, []).append((round, quote))
                    now[provider] = quote
        caps = {offer.id: offer.most_accesses for offer in roster.offers if offer.most_accesses is not None}
        return Book(terms.budget, first, changes, caps, terms.most_per_access, terms.most_per_round)

    def start(self) -> State:
        """The sampler's state before the first round."""
        return self.sampler.init(self.terms.roster, self.terms.budget, self.terms.per_round)

    def round_budget(self, book: Book) -> RoundBudget:
        """What is left for the round under way, whether it has been reserved (before a crash) or not."""
        terms, quotes = self.terms, self.quotes_at(book.rounds)
        left = book.left + book.held
        return RoundBudget(left, quotes, self._accesses_left(book), terms.most_per_access, terms.most_per_round)

    def _accesses_left(self, book: Book) -> Amounts | None:
        """How often each provider may still be drawn; None where nobody has a cap."""
        caps = self.terms.roster.most_accesses
        if caps is None:
            return None
        left = caps.copy()
        for provider, times in book.drawn_before().items():
            left[self.terms.places[provider]] -= times
        return left

    def stopped(self, book: Book, round_budget: RoundBudget | None = None) -> Stopped | None:
        """The first stop that has a reason to end the run before its next round, whose budget may be given."""
        round_budget, shortens = round_budget or self.round_budget(book), self.sampler.wants.short_rounds
        history = History(book.rounds, book.utilities, book.silent, round_budget, self.terms.per_round, shortens)
        found = ((stop.kind, stop.reason(history)) for stop in self.stops)
        return next((Stopped(kind, reason) for kind, reason in found if reason is not None), None)

    def draw(self, state: State, book: Book, round_budget: RoundBudget | None = None) -> Drawn:
        """Whom the next round asks. Draws that the round's budget does not pay for or that are used up are left out."""
        round_budget, providers = round_budget or self.round_budget(book), len(self.terms.roster)
        rng = draws_stream(self.terms.seed, book.rounds)
        wanted = np.asarray(self.sampler.draw(state, rng, self.terms.per_round, round_budget), dtype=np.int64)
        known = wanted.ndim == 1 and 1 <= len(wanted) <= self.terms.per_round
        if not known or min(wanted.tolist()) < 0 or max(wanted.tolist()) >= providers:
            raise BazaarError(
                f"sampler {self.sampler.kind!r} drew {wanted.tolist()}: it must draw between 1 and "
                f"{self.terms.per_round} of {providers} providers; try databazaar.testing.check_sampler on it"
            )
        draws = round_budget.fitting(wanted)
        if not len(draws):
            raise BazaarError(
                f"sampler {self.sampler.kind!r} drew nobody who can be asked: it must draw among "
                "`round_budget.available`; try databazaar.testing.check_sampler on it"
            )
        return Drawn(draws, self.sampler.probabilities(state, round_budget)[draws], round_budget)

    def pay(self, drawn: Drawn, gains: Sequence[float | None]) -> list[int]:
        """What each draw is paid: never more than was quoted, and nothing without a valid reply."""
        quotes = drawn.quotes
        paid = list(self.payment.settle(quotes, gains))
        fine = len(paid) == len(quotes) and all(
            isinstance(amount, WHOLE) and 0 <= amount <= (0 if gain is None else quote)
            for amount, quote, gain in zip(paid, quotes, gains, strict=True)
        )
        if not fine:
            raise BazaarError(
                f"payment {self.payment.kind!r} settled {paid} for quotes of {quotes}: it must pay between nothing and "
                "what it quoted, in whole amounts, and nothing where there is no valid reply"
            )
        return [int(amount) for amount in paid]

    def settle(
        self,
        state: State,
        drawn: Drawn,
        gains: Sequence[float | None],
        probabilities: Sequence[float],
        findings: Findings | None = None,
    ) -> Settled:
        """What the round comes to: lines 7 to 9 of Algorithm 1; with a defence, after the verdicts of its findings.

        `probabilities` are those that the ledger has recorded: what is paid must not hang on the last digit of a
        replayed one.
        """
        due = self.pay(drawn, gains)
        learned = self.learn(state, drawn, gains)
        if not isinstance(self.sampler, OwnerGroups):
            return Settled(learned, due, [0] * len(due), [], [], ())
        findings = findings or Findings()
        before, draws, asked = self.detector(state), drawn.draws.tolist(), drawn.asked
        gained = dict(zip(draws, gains, strict=True))
        judged = judge(self.defence, before, asked, [gained[i] is not None for i in asked], findings)
        accesses = Accesses(draws, drawn.quotes, due, probabilities)
        detector, paid, held = now_and_held(self.defence, judged.detector, accesses, findings, self.sampler.alpha)
        held = [0 if i in judged.shared else amount for i, amount in zip(draws, held, strict=True)]
        changed = np.flatnonzero(detector.standing != before.standing).tolist()
        released = [i for i in changed if not detector.flagged[i]]
        returned = sorted({*(i for i in changed if detector.flagged[i]), *judged.shared})
        learned = self.sampler.with_detector(learned, before, detector)
        return Settled(learned, paid, held, released, returned, judged.verdicts)

    def detector(self, state: State) -> DetectorState:
        """How everybody stands; without a defence, as in the beginning."""
        roster = self.terms.roster
        return (
            self.sampler.detector(state, len(roster))
            if isinstance(self.sampler, OwnerGroups)
            else DetectorState.new(roster, False)
        )

    def flagged(self, state: State) -> list[int]:
        """The places of those who are flagged."""
        return [] if self.defence.off else [int(i) for i in np.flatnonzero(self.detector(state).flagged)]

    def returned_at_close(self, state: State) -> list[int]:
        """The places of those whose held-back pay goes back to the consumer when the run ends; all others get it."""
        return [] if self.defence.off else [int(i) for i in np.flatnonzero(doubted(self.defence, self.detector(state)))]

    def learn(self, state: State, drawn: Drawn, gains: Sequence[float | None]) -> State:
        """The sampler's state after the round: lines 8 and 9 of Algorithm 1; a void reply is a gain of zero, or of −∞
        for a sampler that hears failures.

        Gains `shapley` are often below zero for everybody, once the model is good. Who never answers
        would then be the best of all: there, a void reply is no better than the worst reply of its round.
        """
        void = 0.0
        if self.sampler.wants.failures:
            void = -np.inf
        elif self.sampler.wants.gains != "alone":
            void = min((0.0, *(gain for gain in gains if gain is not None)))
        numbers = np.array([void if gain is None else gain for gain in gains])
        return self.sampler.update(state, drawn.draws, numbers, drawn.round_budget)


SETTLED, NOBODY_ANSWERED = "settled", "nobody-answered"


def status_of(stopped: Stopped, book: Book) -> str:
    """How a run ended: because nobody answered if its patience ran out, or if no round of it had a valid reply."""
    if stopped == BY_CONSUMER:
        return SETTLED
    silent = stopped.kind == "patience" or 0 < book.rounds == book.silent
    return NOBODY_ANSWERED if silent else SETTLED


def end_of(stopped: Stopped, book: Book, currency: Currency) -> Code:
    """The end of a run, for screens."""
    left, spent = currency.format(book.budget - book.spent), currency.format(book.spent)
    if status_of(stopped, book) == NOBODY_ANSWERED:
        return Code.of("run-nobody-answered", silent=book.silent, rounds=book.rounds, left=left)
    because = "" if stopped.reason == SPENT else str(stopped.reason)
    return Code.of("run-settled", rounds=book.rounds, spent=spent, left=left, because=because)
