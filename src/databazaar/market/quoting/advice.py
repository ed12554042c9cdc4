"""Where a market cannot learn or money stays behind: one sentence each, with a remedy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from databazaar.display import listed
from databazaar.market.quoting.bounds import Bounds
from databazaar.market.quoting.fares import Fares, Stretch
from databazaar.market.quoting.outlook import too_dear
from databazaar.money import Currency

if TYPE_CHECKING:
    from databazaar.market.quoting.quote import Quote

ACCESSES_EACH = 2
"""With fewer accesses for each provider than this there is nobody to compare anybody with."""
FEW_ROUNDS = 10
"""The model moves once a round: with fewer rounds it does not come far."""
LARGE_PRICE = 0.1
"""The share of the budget from which on a single access eats it."""
LARGE_SHARE = 0.2
"""The share of the budget from which on exploration, or what cannot be spent, is worth a word."""


def advice(quote: Quote) -> tuple[str, ...]:
    """What the consumer should mend before it spends anything."""
    asked = sum(provider.open for provider in quote.providers)
    if not quote.rounds.most:
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
    wanted, accesses = ACCESSES_EACH * asked, quote.accesses.even
    if asked > 1 and accesses < wanted:
        more = f"budget to about {quote.about(quote.budget * wanted / max(1, accesses))}"
        capped = all(p.most_accesses is not None for p in quote.providers if p.open)
        more = "most_accesses, because money is left over" if capped and quote.least_unspent else more
        yield (
            f"about {accesses:,} accesses for {asked:,} providers are fewer than two for each, so the market cannot "
            f"learn who is good: raise {more}, or set most_per_access to ask fewer"
        )
    elif quote.first_look is not None and (quote.first_look.money or 0) > quote.budget:
        yield (
            "the budget is spent before everybody has been asked once, because the dear ones are drawn rarely: set "
            "most_per_access to leave them out, or raise budget"
        )
    if quote.rounds.even < FEW_ROUNDS:
        yield (
            f"about {quote.rounds.even:,} rounds are few, and the model moves once in each: lower per_round, or raise "
            "budget"
        )
    by_pace = quote.accesses.even / max(1, quote.rounds.even)
    slowed = quote.without_pace is not None and quote.without_pace.even < quote.rounds.even
    if slowed and by_pace < 0.9 * min(quote.per_round, asked):
        yield (
            f"most_per_round pays for about {by_pace:.1f} of {quote.per_round:,} accesses in a round, and what does "
            "not fit is left out: raise it, or lower per_round"
        )


def _on_what(quote: Quote, asked: int) -> Iterator[str]:
    """Much of the money goes elsewhere."""
    if quote.exploration is not None and quote.exploration.share > LARGE_SHARE:
        yield f"exploration takes {100 * quote.exploration.share:.0f} % of the budget: lower the sampler's alpha"
    if quote.least_unspent > LARGE_SHARE * quote.budget:
        yield (
            f"{quote.currency.in_words(quote.least_unspent)} or more of the budget cannot be spent: lower budget, or "
            "raise what holds it back (caps, most_per_access, most_per_round)"
        )


def reasons_for_a_rest(fares: Fares, found: Bounds, currency: Currency) -> tuple[str, ...]:
    """Why a part of the budget may not be spent; none where all of it is."""
    if not found.most_unspent:
        return ()
    played = [stretch for stretch in fares.stretches if stretch.first <= found.most_rounds]
    reasons = (
        _too_dear(fares, played[-1]),
        _used_up(fares, played, found),
        _too_little(fares, played, found, currency),
    )
    return tuple(reason for reason in reasons if reason)


def _too_dear(fares: Fares, last: Stretch) -> str:
    if fares.allowed(last):
        return ""
    limits = sorted({too_dear(fares, quote) or "used up" for quote in last.quotes})
    return f"{f'from round {last.first + 1} on ' if last.first else ''}everybody is {' or '.join(limits)}"


def _used_up(fares: Fares, played: list[Stretch], found: Bounds) -> str:
    caps = [fares.caps[i] for i in {i for stretch in played for i in fares.allowed(stretch)}]
    count = sum(cap or 0 for cap in caps)
    if caps and all(cap is not None for cap in caps):
        words = f"all caps together allow {in_accesses(count)}"
        return words if count <= found.most_accesses else ""
    return "who is cheap may be used up, and the rest too little for others" if count else ""


def in_accesses(count: int) -> str:
    return f"{count:,} access{'' if count == 1 else 'es'}"


def _too_little(fares: Fares, played: list[Stretch], found: Bounds, currency: Currency) -> str:
    asked = [(stretch, fares.allowed(stretch)) for stretch in played if fares.allowed(stretch)]
    whole = max((fares.per_round * s.quotes[0] for s, _ in asked if fares.whole_rounds_only(s)), default=0)
    alone = max((min(s.quotes[i] for i in who) for s, who in asked), default=0)
    if max(whole, alone) <= found.least_unspent:
        return ""
    buys = "no whole round" if whole > alone else "nobody"
    return f"a rest below {currency.in_words(max(whole, alone))} pays for {buys}"
