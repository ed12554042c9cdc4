"""What a market's defence came to: who was flagged, cleared or merged, by which figure, and where the money went."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from databazaar.defence import Defence, OwnerGroups
from databazaar.defence.detector import CLEARED, LEAK, NO_DATA, OPEN, UNKNOWN, DetectorState
from databazaar.defence.findings import NOT_NEW
from databazaar.defence.judge import FEWEST, in_doubt
from databazaar.defence.words import TITLES, comparing, sentence_of
from databazaar.display import listed
from databazaar.ledger.audit import Audit
from databazaar.ledger.record import Curve, Freed, Record
from databazaar.ledger.rounds import Places, Rounds
from databazaar.ledger.rulebook import RuleBook

Standing = Literal["open", "cleared", "flagged"]
MOST_NAMED = 20
"""So many of each sort are named in a line."""
STANDINGS: dict[float, Standing] = {OPEN: "open", CLEARED: "cleared", LEAK: "flagged", NO_DATA: "flagged"}


@dataclass(frozen=True)
class Ruling:
    """One verdict: what was found of a provider, by a `figure` beside its `limit`, after so many `answers` of its owner
    (where it is like another: of its own). `round` is None at the close. `entry` and `hash` are the number and the hash
    of the ledger's entry that bears the figure. `other` is whom it is like. `released` and `returned` are the held-back
    pay that was settled by it; the figure is None where there were too few answers for one."""

    what: str
    provider: str
    round: int | None
    figure: float | None
    limit: float
    answers: int
    entry: int
    hash: str
    other: str = ""
    released: int = 0
    returned: int = 0
    rows: bool = False
    """Whether the answers were rows."""

    @property
    def flags(self) -> bool:
        return self.what in ("leak", "no-data")

    @property
    def title(self) -> str:
        return TITLES[self.what]

    def sentence(self, like: str | None = None) -> str:
        """What was found, in words; `like` is how whom it is like is called, else it is named."""
        other = self.other if like is None else like
        return sentence_of(self.what, self.figure, self.limit, self.answers, other, self.rows)


@dataclass(frozen=True)
class Stand:
    """How one provider stands. `left_out` of its answers did harm and are not in the average, `not_new` were not new to
    anybody. `held_back`, `released` and `returned` are pay that was held back: still, paid later, or back to the
    consumer. `cut` is what else its answers were paid less than quoted: for being left out, in the round of a merger,
    or flagged. `shares_with` are those in whose arm it is."""

    provider: str
    standing: Standing
    answers: int
    left_out: int
    not_new: int
    held_back: int
    released: int
    returned: int
    cut: int
    shares_with: tuple[str, ...] = ()

    @property
    def lost(self) -> int:
        """What the verdicts have cost the provider, and the consumer has back."""
        return self.returned + self.cut


@dataclass(frozen=True, eq=False)
class Defended:
    """The defence of a run, with the verdicts in their order, and every time that held-back pay was settled: `freed`.
    `stands` and `curves` are in the market's order; `owners` is how many owners were judged."""

    defence: Defence
    rulings: tuple[Ruling, ...]
    freed: tuple[Freed, ...]
    stands: tuple[Stand, ...]
    curves: Sequence[Curve]
    owners: int

    @cached_property
    def flagged(self) -> tuple[Ruling, ...]:
        return tuple(ruling for ruling in self.rulings if ruling.flags)

    @property
    def merged(self) -> tuple[Ruling, ...]:
        return tuple(ruling for ruling in self.rulings if ruling.what == "alike")

    @property
    def doubted(self) -> tuple[Ruling, ...]:
        return tuple(ruling for ruling in self.rulings if ruling.what == "in-doubt")

    def of(self, provider: str) -> tuple[Ruling, ...]:
        """The rulings about a provider as it may read them. Of those who are alike, both are told, with their own
        number of answers and their own money; whom they are like stays in `other`."""
        place = next(i for i, stand in enumerate(self.stands) if stand.provider == provider)
        own = [one for one in self.rulings if one.provider == provider and one.what != "alike"]
        settled = {one.round for one in own}
        back = {one.round: one.amount for one in self.freed if one.provider == provider and not one.released}
        for one in (one for one in self.merged if provider in (one.provider, one.other)):
            other = one.other if one.provider == provider else one.provider
            answers = int((self.curves[place].rounds <= (one.round or 0)).sum())
            returned = back.pop(one.round, 0) if one.round not in settled else 0
            own.append(replace(one, provider=provider, other=other, answers=answers, returned=returned))
        return tuple(sorted(own, key=lambda one: one.entry))

    def alone(self, provider: str) -> Defended:
        """What a provider may know: its own rulings, standing and figures."""
        place = next(i for i, stand in enumerate(self.stands) if stand.provider == provider)
        own = tuple(one for one in self.freed if one.provider == provider)
        return replace(
            self, rulings=self.of(provider), freed=own, stands=(self.stands[place],), curves=(self.curves[place],)
        )

    @property
    def summary(self) -> str:
        """Who was flagged and merged, in one line, of each the first few; empty where nobody was."""
        found = {
            "flagged": [f"{one.provider} ({one.what.replace('-', ' ')})" for one in self.flagged],
            "merged": [f"{one.provider} with {one.other}" for one in self.merged],
            "not cleared": [one.provider for one in self.doubted],
        }
        return "; ".join(f"{what}: {listed(who, MOST_NAMED)}" for what, who in found.items() if who)

    @property
    def blind(self) -> str:
        """That in most rounds too few have answered to compare them, in one sentence; empty where it was not so."""
        answered = Counter(round for curve in self.curves for round in curve.rounds.tolist())
        seen, rules = sum(times >= FEWEST for times in answered.values()), comparing(self.defence)
        if not rules or 2 * seen >= len(answered):
            return ""
        return (
            f"{rules} saw little: {seen:,} of {len(answered):,} rounds had the {FEWEST} answers that it takes to "
            "compare them; a larger per_round or more providers give more"
        )


def defended_by(audit: Audit) -> Defended | None:
    """What the defence of a replayed ledger came to; None where its terms have none."""
    assert audit.terms is not None and audit.book is not None and audit.state is not None
    rules = RuleBook.of(audit.terms)
    if not isinstance(rules.sampler, OwnerGroups):
        return None
    record, book, ids = audit.record or Record(), audit.book, audit.terms.roster.ids
    detector = rules.sampler.detector(audit.state, len(ids))
    curves = record.figures.curves(len(ids))
    found = [*_rulings(record, ids, detector, curves), *_in_doubt(audit, rules.defence, detector, record)]
    rulings = [replace(one, rows=rules.defence.rows) for one in found]
    not_new = {(round, i) for round, i, reason in record.rounds.failures if reason == NOT_NEW}
    not_new_of = Counter(i for _, i in not_new)  # who was drawn twice has answered once
    flags = {one.provider: one.round for one in rulings if one.flags}
    merged = [one.round for one in rulings if one.what == "alike"]
    arms, sharing = detector.arm.tolist(), defaultdict[float, list[str]](list)
    for arm, provider in zip(arms, ids, strict=True):
        sharing[arm].append(provider)
    stands = [
        Stand(
            provider,
            STANDINGS[float(detector.standing[i])],
            int(detector.answers[i]),
            len(_left_out(rules.defence, curves[i])),
            not_new_of[i],
            book.held_back.get(provider, 0),
            book.released.get(provider, 0),
            book.returned.get(provider, 0),
            _cut(rules.defence, record.rounds, i, curves[i], flags.get(provider), merged),
            tuple(other for other in sharing[arm] if other != provider),
        )
        for i, (provider, arm) in enumerate(zip(ids, arms, strict=True))
    ]
    return Defended(
        rules.defence, tuple(rulings), tuple(record.freed), tuple(stands), curves, len(set(detector.owner.tolist()))
    )


def _rulings(record: Record, ids: Sequence[str], detector: DetectorState, curves: Sequence[Curve]) -> list[Ruling]:
    freed = {(one.round, one.provider): one for one in record.freed}
    answered, found = defaultdict[int, list[Places]](list), []
    for owner, curve in zip(detector.owner.tolist(), curves, strict=True):
        answered[owner].append(curve.rounds)
    for round, verdict in record.verdicts:  # in a round, those who are alike come last: what is left is by that
        who, rounds = ids[verdict.provider], answered[int(detector.owner[verdict.provider])]
        rounds = [curves[verdict.provider].rounds] if verdict.what == "alike" else rounds
        other = "" if verdict.other is None else ids[verdict.other]
        money = [freed.pop((round, one)) for one in (who, other) if (round, one) in freed]
        found.append(
            Ruling(
                verdict.what,
                who,
                round,
                verdict.figure,
                verdict.limit,
                sum(int((own <= round).sum()) for own in rounds),
                *record.entries[round],
                other=other,
                released=sum(one.amount for one in money if one.released),
                returned=sum(one.amount for one in money if not one.released),
            )
        )
    return found


def _in_doubt(audit: Audit, defence: Defence, detector: DetectorState, record: Record) -> list[Ruling]:
    """Whose held-back pay went to the consumer at the close, because nobody could tell whether it was earned."""
    assert audit.terms is not None
    ids, answers = list(audit.terms.roster.ids), detector.owner_answers
    found = []
    for one in record.freed:
        place = ids.index(one.provider)
        if one.round is None and not one.released:
            shown, last = float(detector.shown[place]), (audit.entries - 1, audit.head)
            figure, count = None if shown == UNKNOWN else shown, int(answers[place])
            about = figure, in_doubt(defence), count
            found.append(Ruling("in-doubt", one.provider, None, *about, *last, returned=one.amount))
    return found


def _left_out(defence: Defence, curve: Curve) -> Places:
    """The rounds in which a provider's answer did so much harm that it is not in the average."""
    return curve.rounds[curve.harm > defence.screen] if defence.screen is not None else curve.rounds[:0]


def _cut(
    defence: Defence, rounds: Rounds, place: int, curve: Curve, flagged: int | None, merged: Sequence[int | None]
) -> int:
    """What a provider was paid less than quoted, beside held-back pay: flagged, merged with another, or left out."""
    less = set() if defence.pay_left_out else set(_left_out(defence, curve).tolist())
    less |= set(curve.rounds.tolist()) & set(merged)
    if flagged is not None:
        less |= set(curve.rounds[curve.rounds >= flagged].tolist())
    accesses = (access for round in less for access in rounds[round].accesses if access.provider == place)
    return sum(access.quoted - access.paid - access.held for access in accesses)
