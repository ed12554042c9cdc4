"""What a job may ask of a provider's table at a hub: over no fewer rows than protect each, and no endless work."""

from __future__ import annotations

from collections.abc import Mapping

from databazaar.config.chosen_rules import oracle_settings
from databazaar.config.market_file import MarketFile
from databazaar.errors import BazaarError
from databazaar.learning.asked_rows import ask_cost, refuse_few_rows, refuse_small_table
from databazaar.service.errors import InvalidError


def refuse_out_of_bounds(market: MarketFile, tables: Mapping[str, int | None], most: int) -> None:
    """Refuses an ask over too few rows, and one that goes through more than `most` rows. `tables` has the rows of each
    offer, None where they are not known: a site then keeps to limits of its own."""
    oracle = oracle_settings(market)
    try:
        refuse_few_rows(oracle)
        for offer, rows in tables.items():
            if rows is not None:
                refuse_small_table(rows, f"the offer {offer}")
    except BazaarError as few:
        raise InvalidError(str(few)) from None
    for offer, rows in tables.items():
        cost = ask_cost(oracle, rows)
        if cost is not None and cost > most:
            raise InvalidError(
                f"oracle: an ask of the offer {offer} makes {cost:,} row visits, and this hub allows {most:,}: lower "
                "oracle.steps, oracle.epochs or oracle.batch_size"
            )
