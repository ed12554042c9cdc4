"""Runs of the rule book without data or model, for supposed qualities of providers, and what they bring each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from databazaar.ledger.accounts import Accounts, Settlement
from databazaar.ledger.rulebook import RuleBook
from databazaar.ledger.terms import Terms
from databazaar.roster import PriceChange
from databazaar.samplers.protocol import Vector
from databazaar.stops import Budget

RUNS, LARGE = 16, 5_000
"""So many runs suppose qualities by chance, and a quote's medians are theirs; an eighth of them, from so many providers
on."""
WORK, FEWEST_ROUNDS = 4_000, 10
"""So many rounds are simulated in all, in a market of few providers and draws: about half a second. In the largest of
markets, so many of each run are."""
GAIN = 0.01
"""The standard error of a gain: about what one access changes a utility between 0 and 1."""
DIFFERENT = 2.0
"""By how many of these standard errors providers differ at the most, where qualities are by chance."""
OPEN = "open"
UNSEEN: Any = None
"""Accounts that are written nowhere do not look at what a round leaves behind."""


@dataclass(frozen=True, eq=False)
class Run:
    """One simulated run. `left` of the budget was never asked for. `accesses` and `earned` are by provider, as quoted.
    `all_asked` is how many rounds it took until everybody available at the start was asked, None where somebody was
    not. `horizon` is None where the run was simulated to its end; else it was continued after so many rounds."""

    rounds: int
    left: int
    accesses: NDArray[np.int64]
    earned: NDArray[np.int64]
    all_asked: int | None
    horizon: int | None = None


def simulated(rules: RuleBook) -> tuple[list[Run], list[Run]]:
    """Runs until the budget ends them: with qualities by chance, from all alike to very different, and extreme ones.

    Extreme are: the cheaper the better, the dearer the better, only the cheapest good, only the dearest good.
    """
    terms, n = rules.terms, len(rules.terms.roster)
    rank = np.argsort(np.argsort(rules.quotes_at(0), kind="stable"), kind="stable") / max(1, n - 1)
    extremes = [1 - 2 * rank, 2 * rank - 1, np.where(rank == 0, 1.0, -1.0), np.where(rank == 1, 1.0, -1.0)]
    spreads = np.linspace(0.0, DIFFERENT, RUNS if n < LARGE else RUNS // 8)
    chance = [spread * np.random.default_rng([terms.seed, run]).normal(size=n) for run, spread in enumerate(spreads)]
    a_round = 1 + terms.per_round / 20 + n / 500
    most = max(FEWEST_ROUNDS, int(WORK / a_round / (len(extremes) + len(chance))))
    runs = []
    for run, quality in enumerate([*chance, *extremes]):
        seeded = RuleBook(replace(terms, seed=terms.seed ^ run), rules.sampler, rules.payment, (Budget(),))
        runs.append(_played(seeded, quality, most))
    return runs[: len(chance)], runs[len(chance) :]


def _played(rules: RuleBook, quality: Vector, most: int) -> Run:
    accounts, state, rng = Accounts(rules), rules.start(), np.random.default_rng([rules.terms.seed, RUNS])
    book, n = accounts.book, len(rules.terms.roster)
    run = halfway = Run(0, book.left, np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64), None)
    wanted = rules.round_budget(book).available
    while run.rounds < most and rules.stopped(book) is None:
        drawn = rules.draw(state, book)
        accounts.reserve(run.rounds, drawn)
        draws, noise, chances = drawn.draws.tolist(), rng.normal(size=n), drawn.probabilities.tolist()
        gains = [GAIN * float(quality[i] + noise[i]) for i in draws]
        settled = rules.settle(state, drawn, gains, chances)
        later = (), settled.held, settled.released, settled.returned
        result = Settlement(gains, [None] * len(draws), chances, settled.paid, 0.0, None, 0.0, None, *later)
        accounts.settle(run.rounds, drawn, result, UNSEEN)
        state, accesses = settled.state, run.accesses + np.bincount(draws, minlength=n)
        np.add.at(earned := run.earned.copy(), draws, drawn.quotes)
        everybody = run.all_asked is None and bool((accesses[wanted] > 0).all())
        run = Run(book.rounds, book.left, accesses, earned, book.rounds if everybody else run.all_asked)
        halfway = run if run.rounds == most // 2 else halfway
    return run if rules.stopped(book) is not None else _continued(rules, run, halfway)


def _continued(rules: RuleBook, run: Run, halfway: Run) -> Run:
    """The run to its end, as if it went on as since halfway until the budget, or the caps of all, are used up."""
    caps, since = rules.terms.roster.most_accesses, run.accesses - halfway.accesses
    more = (1 - 1e-9) * run.left / (halfway.left - run.left)  # a little less: no sum is rounded above the budget
    accesses, left = run.accesses + _times(more, since), 0
    earned = run.earned + _times(more, run.earned - halfway.earned)
    if caps is not None:
        accesses, prices = np.minimum(accesses, caps), rules.quotes_at(run.rounds).tolist()
        unsold = [cap - sold for cap, sold in zip(caps.tolist(), run.accesses.tolist(), strict=True)]
        room = [count * price for count, price in zip(unsold, prices, strict=True)]
        if sum(room) < run.left:
            more = sum(unsold) / int(since.sum())
            accesses, earned, left = caps, run.earned + room, run.left - sum(room)
    rounds = run.rounds + int((run.rounds - halfway.rounds) * more + 1e-6)
    return Run(rounds, left, accesses, earned, run.all_asked, horizon=run.rounds)


def _times(factor: float, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The counts times a factor in whole numbers, of which the sum is rounded down, and not each."""
    return np.diff(np.floor(np.cumsum(counts * factor) + 1e-6), prepend=0.0).astype(np.int64)


@dataclass(frozen=True)
class Range:
    """What simulated runs come to: the median of those with qualities by chance, and the least and the most of all."""

    low: int
    median: int
    high: int

    @classmethod
    def of(cls, chance: Sequence[int], extreme: Sequence[int]) -> Range:
        """
        >>> str(Range.of([5, 3, 4], [2, 1_000])), str(Range.of([3], [3]))
        ('about 4 (2 to 1,000)', '3')
        """
        return cls(min(*chance, *extreme), sorted(chance)[len(chance) // 2], max(*chance, *extreme))

    @classmethod
    def wide(cls, chance: Sequence[int], extreme: Sequence[int]) -> Range:
        """The same, and beyond the least and the most as much as a quarter of how far chance has spread the runs: of
        few runs, the ends are not as far apart as those of many."""
        found, more = cls.of(chance, extreme), -((min(chance) - max(chance)) // 4)
        return cls(max(min(1, found.low), found.low - more), found.median, found.high + more)

    def told(self, form: Callable[[int], str] = "{:,}".format) -> str:
        low, median, high = map(form, (self.low, self.median, self.high))
        return low if self.low == self.high else f"about {median} ({low} to {high})"

    def __str__(self) -> str:
        return self.told()


@dataclass(frozen=True)
class Outlook:
    """One provider. Prices are the most that an access may cost, in minor units; changes are those that are announced,
    by rounds as the ledger counts them.

    `accesses` and `pay` are what the simulated runs bring it, if all of its answers are valid. `open` says whether it
    can be asked at all, and `status` why not, or from which round on, counted from 1.
    """

    id: str
    owner: str
    price: int
    price_changes: tuple[PriceChange, ...]
    most_accesses: int | None
    accesses: Range
    pay: Range
    open: bool
    status: str


def outlooks(rules: RuleBook, chance: Sequence[Run], extreme: Sequence[Run]) -> tuple[Outlook, ...]:
    """Everybody who can be asked, the cheapest first, then the others."""
    terms, roster = rules.terms, rules.terms.roster
    last = max(run.rounds for run in (*chance, *extreme))
    starts = [0, *(round for round in roster.change_rounds if round <= last)]
    quotes = np.stack([rules.quotes_at(round) for round in (0, *roster.change_rounds)])
    figures = [[np.stack([run.accesses for run in runs]) for runs in (chance, extreme)]]
    figures.append([np.stack([run.earned for run in runs]) for runs in (chance, extreme)])
    found = []
    for place, (offer, prices) in enumerate(zip(roster.offers, quotes.T.tolist(), strict=True)):
        at = list(zip((0, *roster.change_rounds), prices, strict=True))
        changes = tuple(PriceChange(*now) for before, now in pairwise(at) if before[1] != now[1])
        reasons = [(round, _too_dear(terms, price)) for round, price in at[: len(starts)]]
        accesses, pay = (Range.of(*(runs[:, place].tolist() for runs in both)) for both in figures)
        open_ = offer.most_accesses != 0 and not all(why for _, why in reasons)
        status = _status(reasons) if offer.most_accesses != 0 else "offers no access"
        who = offer.id, offer.owner, prices[0], changes, offer.most_accesses
        found.append(Outlook(*who, accesses, pay, open_, status))
    return tuple(sorted(found, key=lambda outlook: (not outlook.open, outlook.price)))


def _status(reasons: Sequence[tuple[int, str]]) -> str:
    """In words, from whether a provider is too dear from each of these rounds on."""
    turns = [after for before, after in pairwise(reasons) if bool(before[1]) != bool(after[1])]
    later = [f"{'too dear' if why else OPEN} from round {round + 1} on" for round, why in turns]
    return ", ".join([reasons[0][1], *later] if reasons[0][1] else later or [OPEN])


def _too_dear(terms: Terms, price: int) -> str:
    """Which limit this price is above; nothing where it is above none."""
    if terms.most_per_access is not None and price > terms.most_per_access:
        return "above most_per_access"
    if price > terms.budget:
        return "above the budget"
    if terms.most_per_round is not None and price > terms.most_per_round:
        return "dearer than most_per_round"
    return ""
