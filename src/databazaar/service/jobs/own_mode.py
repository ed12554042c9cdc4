"""What a market may agree on where its arbiter is the consumer's own, and what its opening entry must say then."""

from __future__ import annotations

from typing import Any

from databazaar.codes import Code
from databazaar.config.market_file import MarketFile
from databazaar.service.errors import InvalidError

UNOPENED = Code("arbiter-never-opened")
"""Why a job that was funded and never begun is refunded."""


def refuse_unverifiable(market: MarketFile) -> None:
    """Pay must not depend on what only the hold-out tells: the hub would have to take the consumer's word for it. So
    every access costs its price, which contracts fix, and there are no verdicts."""
    if not market.defence.chosen.off:
        raise InvalidError(
            "defence: an own arbiter's findings cannot be checked without its hold-out, and they would take pay from "
            'providers: leave the defence out, or let the hub run the job (mode "hosted")',
            place="defence.kind",
        )


def expected_terms(market: MarketFile) -> dict[str, Any]:
    """The opening entry's body as the hub itself would write it, without what only the consumer's files tell."""
    from databazaar.config.chosen_rules import sampler_of, stops_of, utility_of
    from databazaar.ledger import Terms
    from databazaar.market.arbiter import settings_of_rules
    from databazaar.payments import PricePerAccess
    from databazaar.roster import Offer, Roster
    from databazaar.stops import Budget, Patience
    from databazaar.utilities import UTILITIES

    refuse_unverifiable(market)
    offers = (Offer(p.id, p.owner, p.price_minor, p.most_accesses, p.changes_minor) for p in market.providers)
    stops = (Patience(market.patience), *stops_of(market), Budget())
    aggregator, utility = market.aggregator.build(market.facts()), utility_of(market)
    terms = Terms(
        seed=market.seed,
        budget=market.budget_minor,
        per_round=market.per_round,
        currency=market.currency,
        roster=Roster(tuple(offers)),
        rules=settings_of_rules(
            sampler_of(market),
            aggregator,
            PricePerAccess(),
            stops,
            market.defence.chosen,
            UTILITIES.settings_of(utility),
        ),
        bounded_utility=utility.bounded,
        initial_model="",
        market=market.name,
        consumer=market.consumer.name,
        most_per_access=market.limits_minor.get("most_per_access"),
        most_per_round=market.limits_minor.get("most_per_round"),
    )
    return terms.body()
