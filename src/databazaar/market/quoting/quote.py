"""What a run will cost, before a coin is spent: the rule book is played a few times without data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np

from databazaar.display import Displayed, listed
from databazaar.ledger.rulebook import RuleBook
from databazaar.market.inspection.coverage import MarketShape, blind_spots, meaning
from databazaar.market.quoting.simulation import Outlook, Range, Run, outlooks, simulated
from databazaar.money import Currency
from databazaar.samplers.protocol import Explores
from databazaar.stops import Budget

ACCESSES_EACH = 2
"""With fewer accesses for each provider than this there is nobody to compare anybody with."""
FEW_ROUNDS = 10
"""The model moves once a round: with fewer rounds it does not come far."""
LARGE_PRICE = 0.1
"""The share of the budget from which on a single access eats it."""
LARGE_SHARE = 0.2
"""The share of the budget from which on exploration, or what cannot be spent, is worth a word."""


@dataclass(frozen=True)
class FirstLook:
    """How many of the `providers` that can be asked at first a run asks, and the median of the rounds until all of them
    were asked; None where half of the simulated runs did not come to that."""

    providers: int
    asked: Range
    rounds: int | None


@dataclass(frozen=True, repr=False)
class Quote(Displayed):
    """What is known of a run before it begins. Amounts are whole minor units of `currency`.

    `rounds`, `accesses` and `unspent`, the part of the budget that is never asked for, are those of `runs` simulated
    runs; long ones were simulated for `horizon` rounds and continued at the pace of the last half of them. A real run
    may lie outside, but never costs more than the budget. `exploration` is what the sampler spends only to keep
    everybody explored, in the mean, and None where it does not say. `providers` has everybody who can be asked, the
    cheapest first, then the others. The consumer, and `stops` beside the budget, may end a run sooner. `defence` says
    which there is and what providers wait for; none is "".
    """

    market: str
    currency: Currency
    budget: int
    per_round: int
    most_per_access: int | None
    most_per_round: int | None
    sampler: str
    stops: tuple[str, ...]
    runs: int
    horizon: int | None
    rounds: Range
    accesses: Range
    unspent: Range
    exploration: float | None
    first_look: FirstLook
    providers: tuple[Outlook, ...]
    warnings: tuple[str, ...] = ()
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
            "rounds": str(self.rounds),
            "accesses": str(self.accesses),
        }
        if self.stops:
            facts["ends sooner"] = f"where the stop {' or '.join(map(repr, self.stops))} has a reason"
        if self.most_per_round is not None:
            facts["pace"] = f"no round costs more than {money(self.most_per_round)}"
        facts["not spent"] = self.unspent.told(money)
        facts["exploration"] = self._exploration()
        facts["all asked once"] = self._first_look()
        if self.defence:
            facts["defence"] = self.defence
        how = "" if self.horizon is None else f", the first {self.horizon:,} rounds of each"
        facts["simulated"] = f"{self.runs} runs without data{how}; a real one may lie outside"
        return facts

    def _exploration(self) -> str:
        if self.exploration is None:
            return f"sampler {self.sampler!r} does not say what it spends on it"
        share = 100 * self.exploration / self.budget
        return f"{self.about(self.exploration)} or {share:.1f} % of the budget, only to keep everybody explored"

    def _first_look(self) -> str:
        look = self.first_look
        if look.rounds is not None:
            return f"after about {look.rounds:,} round{'' if look.rounds == 1 else 's'}"
        when = "in a run" if self.horizon is None else f"in {self.horizon:,} rounds"
        return f"not to be expected: {look.asked} of {look.providers:,} providers are asked {when}"

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
            [p.id, Decimal(amount(p.price)), p.accesses.median, Decimal(amount(p.pay.median)), p.status]
            for p in self.providers
        ]
        return ["provider", "price", "accesses", "pay", "status"], rows


def quote(rules: RuleBook) -> Quote:
    """The quote for the run that these rules play. It needs neither data nor model."""
    terms = rules.terms
    chance, extreme = simulated(rules)
    accesses = Range.wide(*([int(run.accesses.sum()) for run in runs] for runs in (chance, extreme)))
    rounds = Range.wide(*([run.rounds for run in runs] for runs in (chance, extreme)))
    rounds = replace(rounds, low=max(rounds.low, -(-accesses.low // terms.per_round)))
    given = Quote(
        market=terms.market,
        currency=terms.currency,
        budget=terms.budget,
        per_round=terms.per_round,
        most_per_access=terms.most_per_access,
        most_per_round=terms.most_per_round,
        sampler=rules.sampler.kind,
        stops=tuple(stop.kind for stop in rules.stops if not isinstance(stop, Budget)),
        runs=len(chance) + len(extreme),
        horizon=max((run.horizon for run in (*chance, *extreme) if run.horizon is not None), default=None),
        rounds=rounds,
        accesses=accesses,
        unspent=Range.of(*([run.left for run in runs] for runs in (chance, extreme))),
        exploration=_exploration(rules, accesses.median),
        first_look=_first_look(rules, chance, extreme),
        providers=outlooks(rules, chance, extreme),
        defence="" if rules.defence.off else meaning(rules.defence),
    )
    place = MarketShape(terms.roster.owners, terms.per_round, accesses=accesses.median)
    return replace(given, warnings=(*advice(given), *blind_spots(rules.defence, place)))


def _exploration(rules: RuleBook, accesses: int) -> float | None:
    """What the sampler says of itself for one draw before anything is known, times the accesses."""
    if not isinstance(rules.sampler, Explores):
        return None
    spent = float(np.sum(rules.sampler.exploration(rules.round_budget(rules.new_book()))))
    return min(spent * accesses, float(rules.terms.budget))


def _first_look(rules: RuleBook, chance: Sequence[Run], extreme: Sequence[Run]) -> FirstLook:
    wanted = rules.round_budget(rules.new_book()).available
    asked = Range.of(*([int((run.accesses[wanted] > 0).sum()) for run in runs] for runs in (chance, extreme)))
    rounds = sorted(run.all_asked for run in chance if run.all_asked is not None)
    return FirstLook(int(wanted.sum()), asked, rounds[len(rounds) // 2] if 2 * len(rounds) > len(chance) else None)


def advice(quote: Quote) -> tuple[str, ...]:
    """What the consumer should mend before it spends anything."""
    asked = sum(provider.open for provider in quote.providers)
    if not quote.rounds.high:
        return (_no_round(quote, asked),)
    return tuple(warning for part in (_who, _how_often, _on_what) for warning in part(quote, asked))


def _no_round(quote: Quote, asked: int) -> str:
    if asked == 0 and any(provider.price <= quote.budget for provider in quote.providers):
        return "nobody can be asked, so there is no round: raise most_per_access or most_per_round, or leave them out"
    needed = quote.per_round * min(provider.price for provider in quote.providers)
    return (
        f"the budget pays for no round of {in_accesses(quote.per_round)}: raise budget to at least "
        f"{quote.currency.in_words(needed)}, or lower per_round"
    )


def _who(quote: Quote, asked: int) -> Iterator[str]:
    """Too few to choose from, or one that takes it all."""
    if asked == 1:
        yield "only one provider can be asked, so there is nothing to learn: raise the limits, or find more providers"
    elif asked < quote.per_round:
        yield (
            f"per_round = {quote.per_round:,} is more than the {asked:,} providers that can be asked, so a round asks "
            f"the same ones again or stays short: lower per_round to at most {asked:,}"
        )
    large = [p for p in quote.providers if p.open and p.price > LARGE_PRICE * quote.budget]
    if large and asked > 1:
        dearest, cheapest = max(p.price for p in large), min(p.price for p in large)
        who, share = listed([p.id for p in large]), 100 * dearest / quote.budget
        yield (
            f"a single access to {who} costs up to {share:.0f} % of the budget: set most_per_access below "
            f"{quote.currency.in_words(cheapest)}, or raise budget to at least "
            f"{quote.currency.in_words(round(dearest / LARGE_PRICE))}"
        )


def _how_often(quote: Quote, asked: int) -> Iterator[str]:
    """Too few accesses or rounds to learn anything."""
    wanted, accesses = ACCESSES_EACH * asked, quote.accesses.median
    if asked > 1 and accesses < wanted:
        more = f"budget to about {quote.about(quote.budget * wanted / max(1, accesses))}"
        capped = all(p.most_accesses is not None for p in quote.providers if p.open)
        more = "most_accesses, because money is left over" if capped and quote.unspent.low else more
        yield (
            f"about {accesses:,} accesses for {asked:,} providers are fewer than two for each, so the market cannot "
            f"learn who is good: raise {more}, or set most_per_access to ask fewer"
        )
    elif quote.first_look.asked.median < quote.first_look.providers and quote.horizon is None:
        yield (
            "the budget is spent before everybody has been asked once, because some are drawn rarely: set "
            "most_per_access to leave the dear ones out, or raise budget"
        )
    if quote.rounds.median < FEW_ROUNDS:
        yield (
            f"about {quote.rounds.median:,} rounds are few, and the model moves once in each: lower per_round, or "
            "raise budget"
        )
    prices = [provider.price for provider in quote.providers if provider.open]
    if quote.most_per_round is not None and prices:
        by_pace = quote.most_per_round * sum(1 / price for price in prices) / len(prices)
        if by_pace < 0.9 * min(quote.per_round, asked):
            yield (
                f"most_per_round pays for about {by_pace:.1f} of {quote.per_round:,} accesses in a round, and what "
                "does not fit is left out: raise it, or lower per_round"
            )


def _on_what(quote: Quote, asked: int) -> Iterator[str]:
    """Much of the money goes elsewhere."""
    share = (quote.exploration or 0.0) / quote.budget
    if share > LARGE_SHARE:
        yield f"exploration takes {100 * share:.0f} % of the budget: lower the sampler's alpha"
    if quote.unspent.low > LARGE_SHARE * quote.budget:
        yield (
            f"{quote.currency.in_words(quote.unspent.low)} or more of the budget cannot be spent: lower budget, or "
            "raise what holds it back (caps, most_per_access, most_per_round)"
        )


def in_accesses(count: int) -> str:
    return f"{count:,} access{'' if count == 1 else 'es'}"
