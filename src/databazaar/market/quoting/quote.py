"""What a run will cost, before a coin is spent: bounds that hold, and what it comes to in the mean."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np

from databazaar.display import Displayed
from databazaar.ledger.rulebook import RuleBook
from databazaar.market.quoting.advice import advice, in_accesses, reasons_for_a_rest
from databazaar.market.quoting.bounds import Bounds, bounds
from databazaar.market.quoting.fares import Fares
from databazaar.market.quoting.outlook import Outlook, outlooks
from databazaar.market.quoting.projection import Projection, at_even_shares, draws_until_all_seen
from databazaar.market.watch.reach import Place, blind_spots, meaning
from databazaar.money import Currency
from databazaar.stops import Budget


@dataclass(frozen=True)
class Span:
    """`least` and `most` hold for every run that its budget ends; `even` is about what even shares of money come to."""

    least: int
    even: int
    most: int

    def __str__(self) -> str:
        if self.least == self.most:
            return f"{self.most:,}"
        return f"{self.least:,} to {self.most:,}, about {self.even:,} at even shares of money"


@dataclass(frozen=True)
class Exploration:
    """What the sampler spends only to keep everybody explored, in minor units; `share` is that of the budget."""

    per_round: float
    over_the_run: float
    share: float


@dataclass(frozen=True)
class FirstLook:
    """Until all `providers` that can be asked have been asked once, while nothing is known of them.

    At the least it takes n/K rounds and each price once. `rounds` and `money` are means for independent draws with the
    sampler's first chances: somebody is drawn again before the last one is drawn at all. They are None where the
    sampler gives somebody no chance at first.
    """

    providers: int
    least_rounds: int
    least_money: int
    rounds: float | None
    money: float | None


@dataclass(frozen=True, repr=False)
class Quote(Displayed):
    """What is known of a run before it begins. Amounts are whole minor units of `currency`, exploration and means not.

    `rounds` and `accesses` are bounded for any draws; `short_rounds` of them may have fewer accesses than wanted.
    `without_pace` are the rounds if there were no most per round. Between `least_unspent` and `most_unspent` of the
    budget are never asked for, for the `unspent_because`. `exploration` is None where the sampler does not say it.
    `providers` has everybody who can be asked, the cheapest first, then the others. The consumer, and `stops` beside
    the budget, may end a run sooner. `defence` says which there is and what providers wait for; none is "".
    """

    market: str
    currency: Currency
    budget: int
    per_round: int
    most_per_access: int | None
    most_per_round: int | None
    sampler: str
    stops: tuple[str, ...]
    rounds: Span
    accesses: Span
    short_rounds: int
    without_pace: Span | None
    least_unspent: int
    most_unspent: int
    unspent_because: tuple[str, ...]
    exploration: Exploration | None
    first_look: FirstLook | None
    providers: tuple[Outlook, ...]
    warnings: tuple[str, ...]
    defence: str = ""

    def to_dict(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        plain = asdict(self)
        for provider in plain["providers"]:
            provider["price_changes"] = [change._asdict() for change in provider["price_changes"]]
        return plain

    def facts(self) -> dict[str, str]:
        """The quote in sentences, by what they are about."""
        money = self.currency.in_words
        facts = {
            "budget": f"{money(self.budget)}, {in_accesses(self.per_round)} a round",
            "rounds": f"{self.rounds}{self._short()}",
            "accesses": str(self.accesses),
        }
        if self.stops:
            facts["ends sooner"] = f"where the stop {' or '.join(map(repr, self.stops))} has a reason"
        if self.most_per_round is not None:
            facts["pace"] = (
                f"no round costs more than {money(self.most_per_round)}; without it the rounds are {self.without_pace}"
            )
        facts["not spent"] = self._unspent()
        facts["exploration"] = self._exploration()
        if self.first_look is not None:
            facts["all asked once"] = self._first_look(self.first_look)
        if self.defence:
            facts["defence"] = self.defence
        return facts

    def _short(self) -> str:
        if not self.short_rounds:
            return ""
        if self.short_rounds == self.rounds.most:
            return "; any of them may have fewer accesses"
        return f"; up to {self.short_rounds:,} of them cut by the rest or by caps"

    def _unspent(self) -> str:
        money, least, most = self.currency.in_words, self.least_unspent, self.most_unspent
        amounts = money(most) if least == most else f"{money(least)} to {money(most)}"
        return amounts if not most else "; ".join([amounts, *self.unspent_because])

    def _exploration(self) -> str:
        if self.exploration is None:
            return f"sampler {self.sampler!r} does not say what it spends on it"
        per_round, over_the_run = self.exploration.per_round, self.exploration.over_the_run
        return (
            f"{self.about(per_round)} a round and {self.about(over_the_run)} over the run, "
            f"{100 * self.exploration.share:.1f} % of the budget, only to keep everybody explored"
        )

    def _first_look(self, look: FirstLook) -> str:
        least = f"at the least {_rounds(look.least_rounds)} (n/K) and {self.currency.in_words(look.least_money)}"
        if look.rounds is None or look.money is None:
            return f"{least}; sampler {self.sampler!r} gives somebody no chance at first"
        mean = f"about {_rounds(math.ceil(look.rounds))} and {self.about(look.money)}"
        return f"{mean}, in the mean of independent draws with the first chances; {least}"

    def about(self, amount: float) -> str:
        """An amount that is a mean, with the currency's decimals and one or two more where it is small."""
        whole = amount / 10**self.currency.decimals
        decimals = self.currency.decimals + (amount < 100) + (amount < 1)
        return f"{whole:,.{decimals}f} {self.currency.name}"

    def _facts(self) -> dict[str, str]:
        warnings = {f"warning {place}": warning for place, warning in enumerate(self.warnings, 1)}
        return {**self.facts(), **warnings}

    def _table(self) -> tuple[list[str], list[list[object]]]:
        amount = self.currency.amount
        rows: list[list[object]] = [
            [p.id, Decimal(amount(p.price)), p.can_sell, Decimal(amount(p.can_earn)), p.status] for p in self.providers
        ]
        return ["provider", "price", "can sell", "can earn", "status"], rows


def quote(rules: RuleBook) -> Quote:
    """The quote for the run that these rules play. It needs neither data nor model."""
    terms, fares = rules.terms, Fares.of(rules)
    found, even = bounds(fares), at_even_shares(fares)
    rounds, accesses = _spans(found, even)
    given = Quote(
        market=terms.market,
        currency=terms.currency,
        budget=terms.budget,
        per_round=terms.per_round,
        most_per_access=terms.most_per_access,
        most_per_round=terms.most_per_round,
        sampler=rules.sampler.kind,
        stops=tuple(stop.kind for stop in rules.stops if not isinstance(stop, Budget)),
        rounds=rounds,
        accesses=accesses,
        short_rounds=found.short_rounds,
        without_pace=_without_pace(fares),
        least_unspent=found.least_unspent,
        most_unspent=found.most_unspent,
        unspent_because=reasons_for_a_rest(fares, found, terms.currency),
        exploration=_exploration(rules, accesses.even, even.draws),
        first_look=_first_look(rules),
        providers=outlooks(fares, terms.roster, found.most_rounds),
        warnings=(),
        defence="" if rules.defence.off else meaning(rules.defence),
    )
    place = Place(terms.roster.owners, terms.per_round, accesses=accesses.even)
    return replace(given, warnings=(*advice(given), *blind_spots(rules.defence, place)))


def _rounds(count: int) -> str:
    return f"{count:,} round{'' if count == 1 else 's'}"


def _spans(found: Bounds, even: Projection) -> tuple[Span, Span]:
    """What is about is kept within what holds."""
    pairs = (
        (found.least_rounds, even.rounds, found.most_rounds),
        (found.least_accesses, even.accesses, found.most_accesses),
    )
    rounds, accesses = (Span(least, min(max(least, mean), most), most) for least, mean, most in pairs)
    return rounds, accesses


def _without_pace(fares: Fares) -> Span | None:
    if fares.most_per_round is None:
        return None
    faster = replace(fares, most_per_round=None)
    return _spans(bounds(faster), at_even_shares(faster))[0]


def _exploration(rules: RuleBook, accesses: int, draws: float) -> Exploration | None:
    """What the sampler says of itself, for one draw before anything is known."""
    says = getattr(rules.sampler, "exploration", None)
    if says is None:
        return None
    a_draw = float(np.sum(says(rules.purse(rules.new_book()))))
    budget = rules.terms.budget
    over_the_run = min(a_draw * accesses, float(budget))
    return Exploration(a_draw * draws, over_the_run, over_the_run / budget)


def _first_look(rules: RuleBook) -> FirstLook | None:
    purse, per_round, pace = rules.purse(rules.new_book()), rules.terms.per_round, rules.terms.most_per_round
    asked = purse.available
    if not asked.any():
        return None
    chances = rules.sampler.probabilities(rules.start(), purse)
    count, prices = int(asked.sum()), sum(purse.quotes[asked].tolist())
    rounds = max(-(-count // per_round), 1 if pace is None else -(-prices // pace))
    if not chances[asked].all():
        return FirstLook(count, rounds, prices, None, None)
    needed, a_draw = draws_until_all_seen(chances), float(chances @ purse.quotes)
    draws = per_round if pace is None else min(per_round, pace / a_draw)
    return FirstLook(count, rounds, prices, needed / draws, needed * a_draw)
