"""Where a market cannot learn or money stays behind: one sentence each, with a remedy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from databazaar.display import listed

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
