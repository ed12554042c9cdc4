"""Why a provider was asked as often as it was, in one sentence that it may read itself.

The rules, of which the first that applies gives the sentence:

    only        nobody else sells
    flagged     the market's defence has flagged it
    used-up     it was drawn as often as it allows
    too-dear    an access costs more than the consumer pays for one, spends in a round, or has left, from some round on
    alike       nobody's chance followed what was brought: all were equal, or stayed as they were at the start
    failed      half of its replies or more failed or were set aside
    dearer      its price rose, and from then on its chance was lower (cheaper: the reverse)
    few         it was too seldom paid beside others to tell anything
    better      a coin brought more than one paid to the others at the same time, and an access did so too
    cheap       a coin brought more, an access not clearly so, but it cost less
    worse       a coin brought less, and an access too
    dear        a coin brought less, an access not clearly so, but it cost more
    unclear     none of this can be told from chance

"More" and "less" are said only beyond chance: at a level of 5 % for all providers of a market together, by Student's t
over stretches of rounds (runs/attribution.py). A sentence names no other provider, and no number but its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from databazaar.codes import counted
from databazaar.ledger.rounds import Numbers
from databazaar.runs.trajectory import Barred, Trajectory

if TYPE_CHECKING:
    from databazaar.runs.attribution import ProviderComparison, Ratio
    from databazaar.runs.report import Report

Kind = Literal[
    "only", "flagged", "used-up", "too-dear", "alike", "failed", "dearer", "cheaper",
    "few", "better", "cheap", "worse", "dear", "unclear",
]  # fmt: skip
Trend = Literal["more", "less", "hardly", "steady"]

LEVEL = 0.05
"""How likely one wrong "more" or "less" may be in a whole market whose providers are all alike."""
FEWEST = 5
"""So many stretches beside others are needed before anything is said of what a coin brought."""
MUCH = 1.25
"""A chance that is this many times higher or lower is called another one."""
DEARER = 1.1
"""A price that is this many times that of the others is called dearer."""
HARDLY = 0.05
"""Below this part of an equal chance a provider is hardly asked."""
LONG = 0.1
"""Being too dear counts where it lasted for this part of the rounds, and began with this part of the budget left: in
the end every budget is small."""
NEAR = 5
"""So many rounds before and after a change of price tell whether the chance turned there."""
ROUNDING = 1e-9
TOO_DEAR = {
    "access": "more than the consumer pays for one",
    "round": "more than the consumer spends in a round",
    "left": "more than was left of the budget",
}
TRENDS: dict[Trend, str] = {
    "more": "was asked more often in the end than at the start",
    "less": "was asked less often in the end than at the start",
    "hardly": "was hardly asked any more in the end",
    "steady": "was asked about as often in the end as at the start",
}
CAUSES: dict[Kind, str] = {
    "better": "it brought more for its money than the others",
    "cheap": "an access brought not clearly more than one to the others, but cost less",
    "worse": "it brought less for its money than the others",
    "dear": "an access brought not clearly less than one to the others, but cost more",
    "unclear": "what it brought for its money cannot be told from what the others brought",
    "few": "it was paid too seldom beside others to tell what it brings for its money",
}
AGAINST: dict[Kind, set[Trend]] = {
    "better": {"less", "hardly"},
    "cheap": {"less", "hardly"},
    "worse": {"more"},
    "dear": {"more"},
}
"""Where the sampler did what the gains do not explain."""


@dataclass(frozen=True)
class Reason:
    """The rule that applied, and its sentence."""

    kind: Kind
    sentence: str

    def __str__(self) -> str:
        return self.sentence


def _asked_alike(report: Report, trajectory: Trajectory) -> Reason | None:
    """Where chances follow from who can be asked alone. A run in which nobody brought anything does not tell."""
    if not np.nan_to_num(report.columns.gains).any():
        return None
    chances, first = trajectory.chances, trajectory.chances[0]
    if _level(chances, chances > 0):
        return Reason("alike", "Everybody was asked alike, whatever they brought.")
    if _level(chances / np.where(first > 0, first, 1.0), (chances > 0) & (first > 0)):
        return Reason("alike", "Chances stayed as they were at the start, whatever was brought.")
    return None


def _level(values: Numbers, seen: NDArray[np.bool_]) -> bool:
    """Whether those that are seen are equal in each row."""
    most, least = np.where(seen, values, 0.0).max(axis=1), np.where(seen, values, np.inf).min(axis=1)
    return bool((most <= least * (1 + ROUNDING)).all())


def errors_needed(providers: int, lines: float) -> float:
    """How many standard errors a difference must have: Student's t to the first order, for all providers at once.

    >>> round(errors_needed(1, 10**6), 2), round(errors_needed(40, 10**6), 2), round(errors_needed(4, 6), 2)
    (1.96, 3.23, 3.4)
    """
    z = NormalDist().inv_cdf(1 - LEVEL / (2 * providers))
    return z + (z**3 + z) / (4 * max(lines - 1, ROUNDING))


class Reasons:
    """One for each provider, by its place in the market: the first rule that applies."""

    def __init__(self, report: Report, compared: ProviderComparison, trajectory: Trajectory) -> None:
        self.report, self.compared, self.trajectory = report, compared, trajectory
        self.alike = None if len(report.payouts) == 1 else _asked_alike(report, trajectory)
        self.start, self.end = trajectory.chances[0], trajectory.at_end(trajectory.chances)
        flags = () if report.defended is None else report.defended.flagged
        self.flags = {one.provider: one.round for one in reversed(flags)}

    def __getitem__(self, i: int) -> Reason:
        if len(self.report.payouts) == 1:
            return Reason("only", "It was the only provider.")
        return self._flagged(i) or self._barred(i) or self.alike or self._asked(i)

    def _flagged(self, i: int) -> Reason | None:
        since = self.flags.get(self.report.payouts[i].provider)
        if since is None:
            return None
        return Reason("flagged", f"It was flagged after {counted(since + 1, 'round')}, and is not asked since.")

    def _barred(self, i: int) -> Reason | None:
        found = self.trajectory.barred(i)
        if found is None:
            return None
        if found.bar == "used up":
            return self._used_up(i, found)
        price, rounds = self.report.currency.format(found.price), self.trajectory.rounds
        if found.since == 0:
            return Reason("too-dear", f"It was never asked: an access costs {price}, {TOO_DEAR[found.bar]}.")
        round_budget = self.trajectory.round_budget
        at_the_end = found.bar == "left" and round_budget(found.since).left < LONG * round_budget(0).left
        if at_the_end or rounds - found.since < LONG * rounds:
            return None
        ended = f"It was not asked any more after {counted(found.since, 'round')}"
        return Reason("too-dear", f"{ended}: an access cost {price}, {TOO_DEAR[found.bar]}.")

    def _used_up(self, i: int, found: Barred) -> Reason:
        caps = self.trajectory.round_budget(0).accesses_left
        assert caps is not None
        if not caps[i]:
            return Reason("used-up", "It was never asked: it offers no access.")
        cap = "The one access that it offers was" if caps[i] == 1 else f"All {caps[i]:,} accesses that it offers were"
        kind = self._cause(i)
        until = f"; until then {CAUSES[kind]}" if kind in ("better", "cheap", "worse", "dear") else ""
        return Reason("used-up", f"{cap} used up after {counted(found.since, 'round')}{until}.")

    def _asked(self, i: int) -> Reason:
        line = self.report.payouts[i]
        asked, trend = line.accesses + line.failures, self._trend(i)
        if not asked:
            return Reason("few", "It could have been asked, but was never drawn.")
        if 2 * line.failures >= asked:
            failed = f"{line.failures:,} of its {asked:,} replies failed or were set aside"
            if asked == 1:
                failed = "Its only reply failed or was set aside"
            return Reason("failed", f"{failed}, {'yet' if trend == 'more' else 'and'} it {TRENDS[trend]}.")
        return self._repriced(i) or self._by_gains(i, trend)

    def _by_gains(self, i: int, trend: Trend) -> Reason:
        kind = self._cause(i)
        cause = CAUSES[kind]
        asked = TRENDS[trend] if cause.startswith("it ") else f"it {TRENDS[trend]}"
        told = f"{cause}, yet {asked} all the same." if trend in AGAINST.get(kind, ()) else f"{cause}, and {asked}."
        return Reason(kind, told[0].upper() + told[1:])

    def _cause(self, i: int) -> Kind:
        compared = self.compared
        if compared.steadily.lines[i] < FEWEST:
            return "few"
        steadily, each = (self._beyond_chance(found, i) for found in (compared.steadily, compared.steadily_each))
        ahead, dearness = compared.ahead.value[i], compared.dearness[i]
        if steadily > 0 and ahead > 0:
            return "cheap" if each <= 0 and dearness < 1 / DEARER else "better"
        if steadily < 0 and ahead < 0:
            return "dear" if each >= 0 and dearness > DEARER else "worse"
        return "unclear"

    def _beyond_chance(self, found: Ratio, i: int) -> int:
        """1 where a difference is above zero beyond chance, −1 where it is below, else 0."""
        needed = errors_needed(len(self.report.payouts), found.equal_lines[i]) * found.error[i] + ROUNDING
        return int(found.value[i] > needed) - int(found.value[i] < -needed)

    def _trend(self, i: int) -> Trend:
        start, end = self.start[i], self.end[i]
        if start / MUCH <= end <= start * MUCH:
            return "steady"
        if end > start:
            return "more"
        return "hardly" if end < HARDLY / len(self.report.payouts) else "less"

    def _repriced(self, i: int) -> Reason | None:
        """The first change of price after which the chance was another, where it had turned at that round."""
        last = self.trajectory.full_rounds
        prices, chances = self.trajectory.prices[:last, i], self.trajectory.chances[:last, i]
        money = self.report.currency.format
        for at in (np.flatnonzero(np.diff(prices)) + 1).tolist():
            before, after = chances[max(at - NEAR, 0) : at], chances[at : at + NEAR]
            rose, rest = prices[at] > prices[at - 1], float(chances[at:].mean())
            sign = 1 if rose else -1
            lower = (rest * MUCH**sign - before.mean()) * sign <= 0
            turned = (after[-1] * before[0] * DEARER**sign - before[-1] ** 2) * sign <= 0
            if lower and turned:
                what, often = ("dearer", "less") if rose else ("cheaper", "more")
                change = f"from {money(int(prices[at - 1]))} to {money(int(prices[at]))}"
                since = f"It became {what} after {counted(at, 'round')}, {change}"
                told = f"{since}, and was asked {often} often from then on."
                return Reason("dearer" if rose else "cheaper", told)
        return None
