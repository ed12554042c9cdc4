"""What a provider is told of verdicts: its own, and nobody else's.

Verdicts are no entries of a ledger. They follow from the findings in it, and are worked out from its entries here as an
audit does it: the arbiter's side to tell them, and a party that compares a receipt with a ledger to verify them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from databazaar.defence import Defence, Findings, judge
from databazaar.defence.detector import DetectorState
from databazaar.defence.words import TITLES, sentence_of
from databazaar.ledger.chain import Entry
from databazaar.ledger.replies import is_hash
from databazaar.ledger.terms import Terms


@dataclass(frozen=True)
class Notice:
    """One verdict as a receipt has it: what was found in a round, by a figure beside its limit, after so many answers
    of its owner (where it is like another: of its own), and the number and the hash of the ledger's entry that bears
    the figure. Whom it is like is not said."""

    round: int
    what: str
    figure: float
    limit: float
    answers: int
    entry: int
    hash: str

    @property
    def sound(self) -> bool:
        """Whether its fields are what they have to be: a receipt is read from anybody."""
        whole = all(type(number) is int and number >= 0 for number in (self.round, self.answers, self.entry))
        numbers = all(type(number) in (int, float) and math.isfinite(number) for number in (self.figure, self.limit))
        return whole and numbers and self.what in TITLES and is_hash(self.hash)

    def __str__(self) -> str:
        why = sentence_of(self.what, self.figure, self.limit, self.answers)
        return f"{TITLES[self.what]} in round {self.round}: {why} (entry {self.entry} of the ledger, {self.hash})"


class Hearing:
    """Follows the entries of a ledger, and comes to the verdicts."""

    def __init__(self) -> None:
        self._terms: Terms | None = None
        self._defence = Defence()
        self._valid: dict[int, bool] = {}

    def hear(self, entry: Entry) -> list[tuple[str, Notice]]:
        """The verdicts that an entry of a sound ledger brings, with the provider that each is told to."""
        if entry.opens:
            self._terms = Terms.from_body(entry.body)
            self._defence = Defence.of(self._terms.rules.get("defence", {}))
            self._detector = DetectorState.new(self._terms.roster, self._defence.owners)
        elif self._terms is None or self._defence.off:
            return []
        elif entry.settles and entry.provider is not None:
            self._valid.setdefault(self._terms.places[entry.provider], entry.posts)
        elif entry.ends_round:
            return self._judge(entry, self._terms)
        return []

    def _judge(self, entry: Entry, terms: Terms) -> list[tuple[str, Notice]]:
        asked, self._valid = self._valid, {}
        findings = Findings.of(entry.body.get("findings", {}), len(asked), len(terms.roster))
        judged = judge(self._defence, self._detector, list(asked), list(asked.values()), findings)
        self._detector, found = judged.detector, []
        owners = judged.detector.owner_answers
        for verdict in judged.verdicts:
            for place in (verdict.provider, *(() if verdict.other is None else (verdict.other,))):
                answers = int((judged.detector.answers if verdict.what == "alike" else owners)[place])
                figures = verdict.what, verdict.figure, verdict.limit, answers
                found.append((terms.roster.ids[place], Notice(entry.round or 0, *figures, entry.seq, entry.hash)))
        return found
