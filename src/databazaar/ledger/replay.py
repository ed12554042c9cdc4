"""The replay: draws, distributions, verdicts, pay and stops from the entries alone, without data or model."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from databazaar.defence import Findings
from databazaar.errors import BazaarError, LedgerError
from databazaar.ledger.audit import Audit, BestModel
from databazaar.ledger.book import NOT_SETTLED
from databazaar.ledger.chain import Entry
from databazaar.ledger.record import Record
from databazaar.ledger.replies import is_hash
from databazaar.ledger.rounds import Scores
from databazaar.ledger.rulebook import BY_CONSUMER, Drawn, RuleBook, Settled, status_of
from databazaar.ledger.store import Snapshot
from databazaar.ledger.terms import Terms
from databazaar.roster import RoundBudget
from databazaar.vectors import hash_array

TOLERANCE = 1e-9
"""Replayed probabilities may differ by this share: another machine's exp differs in the last digit."""

FREEING = ("release", "return")
CLOSING = {"status", "stop", "model", "utility", "loss", "spent", "refunded"}
"""What a closing entry says, and nothing else."""
OF_A_ROUND = ("reserve", "post", "void", "round")
SCORES = ("utility", "loss", "reached", "reached_loss")
ONE = 1.0011
"""The largest utility that lies in [0, 1] but for rounding: exp(−loss) of a loss that is 0 but for rounding."""


class Replay:
    """Works out entry by entry what must follow from those before; `Notary` is its front."""

    def __init__(self, first: Entry, audit: Audit, snapshot: Snapshot | None) -> None:
        if first.kind != "open":
            raise LedgerError(f"{first}: the first entry must be the opening")
        self.terms = audit.terms = Terms.from_body(first.body)
        self.rules = RuleBook.of(self.terms)
        self.book = audit.book = self.rules.new_book()
        self.state = audit.state = self.rules.start()
        self.audit = audit
        self.audit.model = self.terms.initial_model
        self.snapshot, self.snapshot_seen = snapshot, False
        self._next_round()

    def forked(self) -> Replay:
        """The same replay once more, so that one of the two can go on without the other."""
        fork = copy.copy(self)
        fork.book = self.book.copied()
        fork.audit = replace(self.audit, book=fork.book)
        fork.settled, fork.freed = [*self.settled], [*self.freed]
        return fork

    def _next_round(self) -> None:
        """Works out whether the run must end here, or else whom the next round must ask."""
        self.reserves = 0
        self.settled: list[Entry] = []
        self.freed: list[Entry] = []
        round_budget = self.rules.round_budget(self.book)
        self.stopped = self.rules.stopped(self.book, round_budget)
        self.drawn = self.rules.draw(self.state, self.book, round_budget) if self.stopped is None else None
        self.order = self.drawn.draws.tolist() if self.drawn is not None else []
        ids = self.terms.roster.ids
        self.due = [ids[place] for place in self.order]
        if self.audit.record is not None:
            self._record_chances(self.audit.record)

    def _record_chances(self, record: Record) -> None:
        round_budget = asked = self.drawn.round_budget if self.drawn is not None else self.rules.round_budget(self.book)
        if not asked.anybody:
            asked = _endless(self.rules, self.book.rounds)  # nobody is drawn any more, and p is what it was
        state = self.state
        record.begins(round_budget, lambda: self.rules.sampler.probabilities(state, asked))

    def check(self, entry: Entry) -> None:
        self.book.apply(entry)
        kind = entry.kind
        if kind == "open":
            raise LedgerError(f"{entry}: a ledger is opened once")
        if self.freed:
            self._refuse_between(entry)
        if kind in OF_A_ROUND:
            self._check_goes_on(entry)
        elif kind == "close":
            self._check_close(entry)
        else:
            self._take_freed(entry)

    def _check_goes_on(self, entry: Entry) -> None:
        """An entry of the round under way: an access to the provider that is due, or the round's end."""
        if entry.round != self.audit.rounds:
            raise LedgerError(f"{entry}: stands in round {self.audit.rounds}")
        drawn, due, reserves = self.drawn, self.due, entry.kind == "reserve"
        if self.stopped is not None or drawn is None:
            reason = self.stopped.reason if self.stopped is not None else "nobody can be drawn"
            raise LedgerError(f"{entry}: the run went on although {reason}")
        if entry.kind == "round":
            self._check_round(entry, drawn)
            return
        expected = self.reserves if reserves else len(self.settled)
        who = due[expected] if expected < len(due) else None
        if entry.provider != who or entry.draw != expected:
            raise LedgerError(f"{entry}: {entry.provider} was not drawn here, {who or 'nobody'} was")
        if reserves:
            self.reserves += 1
        elif self.reserves != len(due):
            raise LedgerError(f"{entry}: settled before the whole round was reserved")
        else:
            self._check_reason(entry)
            self.settled.append(entry)

    def _check_reason(self, entry: Entry) -> None:
        """A void has a reason, which is a code, and a post has none."""
        try:
            sound = (entry.reason is not None) == (entry.kind == "void")
        except ValueError:
            sound = False
        if not sound:
            raise LedgerError(f"{entry}: a void needs a code for its reason, and nothing else has one")

    def _take_freed(self, entry: Entry) -> None:
        """Held-back pay is settled when every draw of a round is, or at the close, where no round is under way."""
        whole = self.order and len(self.settled) == len(self.order) and entry.round == self.audit.rounds
        if entry.round is not None and not whole:
            raise LedgerError(
                f"{entry}: settles held-back pay before every draw of round {self.audit.rounds} is settled"
            )
        self.freed.append(entry)

    def _refuse_between(self, entry: Entry) -> None:
        """After held-back pay was settled comes more of it, and then the end of that round, or the close."""
        round = self.freed[0].round
        if entry.kind != ("close" if round is None else "round") and (
            entry.kind not in FREEING or entry.round != round
        ):
            raise LedgerError(f"{entry}: stands between held-back pay that was settled and what it was settled for")

    def _check_freed(self, entry: Entry, kinds: Mapping[int, str]) -> None:
        """Whose held-back pay was settled, and how, follows from verdicts; the book sees to it that it is all of it."""
        ids, freed = self.terms.roster.ids, [(one.kind, one.provider, one.body) for one in self.freed]
        held = {*self.book.held_back, *(one.provider for one in self.freed)}
        if freed != [(kinds[i], ids[i], {}) for i in sorted(kinds) if ids[i] in held]:
            raise LedgerError(
                f"{entry}: the held-back pay that was settled before it does not follow from the verdicts"
            )

    def _check_round(self, entry: Entry, drawn: Drawn) -> None:
        body = entry.body
        gains: list[float | None] = body["gains"]
        if len(self.settled) != len(drawn.draws) or len(gains) != len(drawn.draws):
            raise LedgerError(f"{entry}: does not settle every draw")
        if [gain is not None for gain in gains] != [settled.kind == "post" for settled in self.settled]:
            raise LedgerError(f"{entry}: a gain without payment, or a payment without gain")
        if any(settled.body == NOT_SETTLED for settled in self.settled):
            raise LedgerError(f"{entry}: settles an access that the consumer is said to have left unsettled")
        named = [settled.body["reply"] for settled in self.settled if "reply" in settled.body]
        if not all(map(is_hash, named)):
            raise LedgerError(f"{entry}: settles an access by a reply that is not named by a hash")
        self.audit.replies += len(named)
        if not _alike(body["probabilities"], drawn.probabilities.tolist()):
            raise LedgerError(f"{entry}: the recorded probabilities do not follow from the gains before")
        self._check_scores(entry, gains)
        findings = self._findings(entry, drawn)
        settled = self.rules.settle(self.state, drawn, gains, body["probabilities"], findings)
        self._check_payments(entry, settled)
        self.state = self.audit.state = settled.state
        self._note_best(body)
        self.audit.model = body["model"]
        self.audit.rounds += 1
        self._note_round(body, drawn, settled)
        self._note_figures(entry, drawn, findings, settled)
        self.book.assert_sound()
        if self.snapshot is not None and self.snapshot.next_round == self.audit.rounds:
            self._check_snapshot(self.snapshot)
        self._next_round()

    def _findings(self, entry: Entry, drawn: Drawn) -> Findings | None:
        """What the arbiter says that it has measured: the verdicts are replayed from it."""
        if "findings" not in entry.body:
            return None
        if self.rules.defence.off:
            raise LedgerError(f"{entry}: has findings, and the terms no defence")
        try:
            return Findings.of(entry.body["findings"], len(drawn.asked), len(self.terms.roster))
        except BazaarError as reason:
            raise LedgerError(f"{entry}: {reason}") from None

    def _check_payments(self, entry: Entry, settled: Settled) -> None:
        paid = [(one.amount or 0) if one.kind == "post" else 0 for one in self.settled]
        if paid != settled.paid:
            raise LedgerError(f"{entry}: the payments do not follow from the gains and the payment rule")
        if [one.body.get("held", 0) for one in self.settled] != settled.held:
            raise LedgerError(f"{entry}: what is held back does not follow from the verdicts")
        if settled.released or settled.returned or self.freed:
            kinds = {**dict.fromkeys(settled.released, "release"), **dict.fromkeys(settled.returned, "return")}
            self._check_freed(entry, kinds)

    def _note_best(self, body: dict[str, Any]) -> None:
        """The first model of the highest utility."""
        if self.audit.best is None:
            self.audit.best = BestModel(0, body["utility"], body["loss"], self.terms.initial_model)
        if body["reached"] > self.audit.best.utility:
            self.audit.best = BestModel(self.audit.rounds + 1, body["reached"], body["reached_loss"], body["model"])

    def _check_scores(self, entry: Entry, gains: list[float | None]) -> None:
        """What the ledger alone can say of utilities and models: each round goes on where the last one ended."""
        body = entry.body
        if any(gain is not None and type(gain) not in (float, int) for gain in gains):
            raise LedgerError(f"{entry}: a gain is not a number")
        _refuse_no_scores(entry, self.terms.bounded_utility)
        if self.terms.bounded_utility and any(gain is not None and not -ONE <= gain <= ONE for gain in gains):
            raise LedgerError(f"{entry}: a gain is larger than a utility between 0 and 1 can change")
        by_provider = dict(zip(self.order, gains, strict=True))
        if gains != [by_provider[provider] for provider in self.order]:
            raise LedgerError(f"{entry}: a provider that was asked once has two different gains")
        last = self.audit.scores
        if last is not None and (body["utility"], body["loss"]) != last.ended:
            raise LedgerError(f"{entry}: begins with another utility or loss than the round before ended with")
        if all(gain is None for gain in gains) and body["model"] != self.audit.model:
            raise LedgerError(f"{entry}: the model changed in a round that took no step")

    def _note_round(self, body: dict[str, Any], drawn: Drawn, settled: Settled) -> None:
        scores = Scores(body["utility"], body["loss"], body["reached"], body["reached_loss"])
        self.audit.scores = scores
        if self.audit.record is not None:
            reasons = [one.reason for one in self.settled]
            said = self.order, body["probabilities"], body["gains"]
            lines = zip(*said, settled.paid, reasons, drawn.quotes, settled.held, strict=True)
            self.audit.record.ends(lines, scores, settled.verdicts)
            self._note_freed(self.audit.record)

    def _note_freed(self, record: Record) -> None:
        for one in self.freed:
            record.frees(self.terms.places[one.provider or ""], one)

    def _note_figures(self, entry: Entry, drawn: Drawn, findings: Findings | None, settled: Settled) -> None:
        """What verdicts are made of, for people who look at them."""
        record = self.audit.record
        if record is None or self.rules.defence.off:
            return
        gained, round = dict(zip(self.order, entry.body["gains"], strict=True)), entry.round or 0
        valid = [gained[i] is not None for i in drawn.asked]
        record.figures.add(round, drawn.asked, valid, findings or Findings())
        if settled.verdicts:
            record.entries[round] = entry.seq, entry.hash

    def _check_close(self, entry: Entry) -> None:
        claimed: dict[str, Any] = entry.body
        if claimed.keys() != CLOSING:
            raise LedgerError(f"{entry}: has other fields than a close")
        if self.freed:
            returned = set(self.rules.returned_at_close(self.state))
            everybody = range(len(self.terms.roster))
            self._check_freed(entry, {i: "return" if i in returned else "release" for i in everybody})
        spent, budget = self.book.spent, self.terms.budget
        if claimed["spent"] != spent or claimed["refunded"] != budget - spent:
            raise LedgerError(f"{entry}: claims spent {claimed['spent']}, but the posts sum to {spent}")
        if self.stopped is None and claimed["stop"] == BY_CONSUMER.body():
            self._check_consumers_close(entry)
        if self.stopped is None:
            raise LedgerError(
                f"{entry}: the run stopped although the budget covers another round, and no other stop had a reason"
            )
        stop = self.stopped.body()
        if claimed["stop"] != stop:
            raise LedgerError(f"{entry}: says it stopped because of {claimed['stop']}, but it was {stop}")
        if claimed["status"] != status_of(self.stopped, self.book):
            raise LedgerError(f"{entry}: the status {claimed['status']!r} does not follow from the rounds")
        if claimed["model"] != self.audit.model:
            raise LedgerError(f"{entry}: names another model than the last round ended with")
        last = self.audit.scores
        _refuse_no_scores(entry, self.terms.bounded_utility)
        if last is not None and (claimed["utility"], claimed["loss"]) != last.ended:
            raise LedgerError(f"{entry}: names another utility or loss than the last round ended with")
        self.audit.closing = dict(claimed)
        if self.audit.record is not None:
            self._note_freed(self.audit.record)

    def _check_consumers_close(self, entry: Entry) -> None:
        """The consumer may close a run of one round or more. The round under way was reserved in full, as every round
        is in one transaction with the one before it, and all of it is voided: nothing of it is paid, nothing kept."""
        drawn = len(self.drawn.draws) if self.drawn is not None else 0
        if not self.audit.rounds:
            raise LedgerError(f"{entry}: the consumer closed a run that has no round")
        if not self.reserves == len(self.settled) == drawn:
            raise LedgerError(f"{entry}: the consumer closed the run without voiding the round that was under way")
        if any(settled.kind != "void" or settled.body != NOT_SETTLED for settled in self.settled):
            raise LedgerError(f"{entry}: the consumer closed the run in a round that is settled in part")
        self.book.assert_sound()
        self.stopped = BY_CONSUMER

    def check_end(self) -> None:
        """The stored state must have been that of a round; of the last one, where the run is closed."""
        if self.freed and not self.audit.closed:
            raise LedgerError(f"{self.freed[-1]}: held-back pay is settled in one step with what follows from it")
        stored, rounds = self.snapshot, self.audit.rounds
        if stored is None:
            return
        if not self.snapshot_seen or (self.audit.closed and stored.next_round != rounds):
            raise LedgerError(f"the stored state is that of round {stored.next_round}, not {rounds}")

    def _check_snapshot(self, snapshot: Snapshot) -> None:
        """A run that goes on while it is read may have come further than the state that was read first."""
        self.snapshot_seen = True
        if not self._is_state(snapshot):
            raise LedgerError("the stored state of the sampler does not follow from the ledger")
        try:
            if snapshot.model_hash not in (None, self.audit.model):
                raise ValueError
        except ValueError:
            raise LedgerError("the stored parameters are not those that the last round ended with") from None
        best = snapshot.arrays().get("best")
        if best is not None and self.audit.best is not None:
            held = hash_array(best) if len(best) else self.audit.model  # it is kept where it is not the last one
            if held != self.audit.best.model:
                raise LedgerError("the stored best model is not the one of the round that reached it")

    def _is_state(self, stored: Snapshot) -> bool:
        try:
            sampler = stored.arrays().get("sampler")
        except ValueError:
            return False
        if sampler is None or sampler.shape != self.state.shape:
            return False
        return np.allclose(sampler, self.state, rtol=TOLERANCE, atol=TOLERANCE)


def _alike(recorded: list[float], replayed: list[float]) -> bool:
    """Whether every probability is within `TOLERANCE` of the one that the replay came to."""
    pairs = zip(recorded, replayed, strict=False)
    return len(recorded) == len(replayed) and all(abs(one - its) <= TOLERANCE * abs(its) for one, its in pairs)


def _endless(rules: RuleBook, round: int) -> RoundBudget:
    """A purse that pays for anybody."""
    return RoundBudget(2**63 - 1, rules.quotes_at(round))


def _refuse_no_scores(entry: Entry, bounded: bool) -> None:
    """Refuses utilities and losses that are no numbers, and a bounded utility that lies outside of [0, 1]."""
    body = entry.body
    scores = {name: body[name] for name in SCORES if body.get(name) is not None}
    needed = {"utility", "reached"} if entry.ends_round else {"utility"}
    if not needed <= scores.keys() or any(type(score) not in (int, float) for score in scores.values()):
        raise LedgerError(f"{entry}: a utility or a loss is not a number")
    utilities = [scores[name] for name in ("utility", "reached") if name in scores]
    if bounded and not all(0 <= utility <= ONE for utility in utilities):
        raise LedgerError(f"{entry}: a utility lies outside of 0 to 1, where this market's utility is")
