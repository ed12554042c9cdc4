"""Verdicts: who is flagged, cleared or merged, and what is paid now. Pure functions of recorded figures, so that an
audit comes to the same.

The tests are sequential: an owner is looked at after 2, 4, 8, … answers of its providers (from 8 on for what must have
had time to show), and the chance of a false alarm is shared out over all looks and owners. A verdict is about all
providers of an owner. An arm is drawn once a round at the most, so an owner gives at most one answer in a round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from databazaar.defence.detector import CLEARED, LEAK, NO_DATA, OPEN, UNKNOWN, DetectorState, Vector
from databazaar.defence.findings import Findings
from databazaar.defence.settings import Defence

FEWEST = 3
"""With fewer answers in a round there are no others to compare with."""
FIRST_LOOK = 8
"""From how many answers on it is judged whether there is data behind them."""
LOOKS = 12
"""So many looks share the chance of a false alarm: at 2, 4, … 4,096 answers."""
LEAST = 0.1
"""Less than this of what persists in an ordinary provider's answers is none. One that adds noise of three times its
update's length, to be private, has three times as much."""
SURE, SURE_OF_ROWS = 2.0, 4.0
"""So many standard errors more would still be less than `LEAST`. Updates of honest providers are far above it; honest
rows that say what others' rows have said may bring nothing."""
IN_DOUBT = 2.0
"""In the end, who has been looked at and has shown less than so many standard errors is not paid beyond the floor.
Noise shows more than one by chance in a sixth of all looks, and more than two in a fortieth."""
HARMS = -2.0
"""The same of rows, where doubt is paid: honest rows bring nothing once a model has learned all there is, so only those
that brought less than nothing are not paid."""


class Verdict(NamedTuple):
    """What was found of a provider, with the figure that it rests on. `other` is whom it is like."""

    provider: int
    what: str
    figure: float
    limit: float
    other: int | None = None


class Judgement(NamedTuple):
    """The detector state after a round, and its verdicts. `shared` are the places of those who were found to be another
    one's name before they were cleared: what was held back of their pay has been earned once already."""

    detector: DetectorState
    verdicts: tuple[Verdict, ...]
    shared: tuple[int, ...] = ()


@cache
def leak_limit(chance: float, owners: int) -> float:
    """Beyond how many standard errors a difference is no accident, if all looks at all owners together may err with
    this chance."""
    return NormalDist().inv_cdf(1.0 - chance / (2.0 * owners * LOOKS))


def is_look(answers: float, first: int) -> bool:
    """Whether an owner is looked at after so many answers: at the powers of two.

    >>> [n for n in range(70) if is_look(n, 8)]
    [8, 16, 32, 64]
    """
    whole = int(answers)
    return whole >= first and whole & (whole - 1) == 0


def judge(
    defence: Defence, detector: DetectorState, asked: Sequence[int], valid: Sequence[bool], findings: Findings
) -> Judgement:
    """The verdicts of a round. Each counts from that round on; a cleared owner may still be flagged later."""
    answered = [(place, i) for place, i in enumerate(asked) if valid[place]]
    answers = detector.answers.copy()
    answers[[i for _, i in answered]] += 1
    detector = replace(detector, answers=answers)
    detector, leaks = _find_leaks(defence, detector, answered, findings)
    detector, shown = _look_for_data(defence, detector, answered, findings)
    detector, alike = _merge(defence, detector, findings)
    return Judgement(detector, (*leaks, *shown, *alike), _sharing(detector, alike))


def _find_leaks(
    defence: Defence, detector: DetectorState, answered: Sequence[tuple[int, int]], findings: Findings
) -> tuple[DetectorState, list[Verdict]]:
    """Flags owners whose gains differ between the parts of the hold-out as nobody else's do.

    Where somebody trains the model on one part, all others gain more on the other part. So it is the farthest apart who
    is flagged first, and once it is known which part has leaked, nobody is flagged for gaining more on the other who is
    not farther apart still. The farthest need not have answered in this round: else it could shield another by
    silence.
    """
    if defence.leak is None:
        return detector, []
    standing, apart, verdicts = detector.standing.copy(), detector.apart.copy(), list[Verdict]()
    for place, i in answered:
        figure = findings.at("leak", place)
        if figure is not None and standing[i] < LEAK:
            apart[detector.owner == detector.owner[i]] = figure
    limit, answers = leak_limit(defence.leak, len(np.unique(detector.owner))), detector.owner_answers
    for _, i in sorted(answered, key=lambda one: -abs(apart[one[1]])):
        if standing[i] >= LEAK or not is_look(answers[i], 2) or abs(apart[i]) <= limit:
            continue
        farthest = int(np.argmax(np.where(standing < LEAK, np.abs(apart), -1.0)))
        for one in dict.fromkeys((farthest, i) if not (standing == LEAK).any() else (i,)):
            found = standing == LEAK
            farther = not found.any() or bool((np.abs(apart[found]) < abs(apart[one])).all())
            if farther or (apart[found] * apart[one] > 0).any():
                verdicts += _about_owner(detector, standing, one, LEAK, Verdict(one, "leak", float(apart[one]), limit))
    return replace(detector, standing=standing, apart=apart), verdicts


def _look_for_data(
    defence: Defence, detector: DetectorState, answered: Sequence[tuple[int, int]], findings: Findings
) -> tuple[DetectorState, list[Verdict]]:
    """Clears owners whose answers have something in common, and flags those of whom that can be ruled out."""
    standing, shown, verdicts = detector.standing.copy(), detector.shown.copy(), list[Verdict]()
    answers = detector.owner_answers
    for place, i in answered:
        signal, error = findings.at("signal", place), findings.at("error", place)
        if defence.data is None or signal is None or error is None or standing[i] >= LEAK:
            continue
        if not is_look(answers[i], FIRST_LOOK):
            continue
        figure = signal / error if error > 0 else 0.0
        shown[detector.owner == detector.owner[i]] = figure
        most = signal + (SURE_OF_ROWS if defence.rows else SURE) * error
        if most < LEAST:
            verdicts += _about_owner(detector, standing, i, NO_DATA, Verdict(i, "no-data", most, LEAST))
        elif standing[i] == OPEN and figure >= defence.data:
            verdicts += _about_owner(detector, standing, i, CLEARED, Verdict(i, "cleared", figure, defence.data))
    return replace(detector, standing=standing, shown=shown), verdicts


def _about_owner(detector: DetectorState, standing: Vector, i: int, to: float, verdict: Verdict) -> list[Verdict]:
    """The verdict, for every provider of the owner of i; their `standing` changes with it."""
    own = np.flatnonzero(detector.owner == detector.owner[i])
    standing[own] = to
    return [verdict._replace(provider=place) for place in own.tolist()]


def _merge(defence: Defence, detector: DetectorState, findings: Findings) -> tuple[DetectorState, list[Verdict]]:
    """Those who are alike share an arm from now on, and what it was asked for."""
    arm, asked, verdicts = detector.arm.copy(), detector.asked.copy(), []
    for one, other, cosine in findings.alike:
        if defence.alike is None or cosine < defence.alike or arm[one] == arm[other]:
            continue
        kept, left = sorted((int(arm[one]), int(arm[other])))
        arm[arm == left] = kept
        asked[kept] += asked[left]
        asked[left] = 0.0
        verdicts.append(Verdict(other, "alike", cosine, defence.alike, one))
    return replace(detector, arm=arm, asked=asked), verdicts


def _sharing(detector: DetectorState, alike: Sequence[Verdict]) -> tuple[int, ...]:
    """Of every arm that has grown, those who are still open, but for the owner that has answered most."""
    arms, answers = dict.fromkeys(int(detector.arm[verdict.provider]) for verdict in alike), detector.owner_answers
    members = [np.flatnonzero(detector.arm == arm).tolist() for arm in arms]
    oldest = {detector.owner[max(own, key=lambda i: (answers[i], -i))] for own in members}
    return tuple(i for own in members for i in own if detector.owner[i] not in oldest and detector.standing[i] == OPEN)


def in_doubt(defence: Defence) -> float:
    """The standard errors that must have been shown in the end."""
    return HARMS if defence.rows and defence.doubt else IN_DOUBT


def doubted(defence: Defence, detector: DetectorState) -> NDArray[np.bool_]:
    """Whose held-back pay goes back to the consumer in the end. Where the test could not speak of an owner with enough
    answers (rounds too short, or too few owners), it is paid."""
    few = detector.owner_answers < FIRST_LOOK
    looked = detector.shown < UNKNOWN
    open_ = np.where(few, not defence.doubt, looked & (detector.shown < in_doubt(defence)))
    found: NDArray[np.bool_] = np.where(detector.standing == OPEN, open_, detector.flagged)
    return found
