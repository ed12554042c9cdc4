"""The quote for a market.toml. Of the files only rows are counted, and only where providers are paid by the row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from databazaar.config.chosen_rules import payment_of
from databazaar.config.market_file import MarketFile, load_market
from databazaar.errors import BazaarError
from databazaar.ledger import RuleBook, Terms
from databazaar.market.quoting import Quote, quote
from databazaar.roster import ProviderTerms, Roster
from databazaar.stops import Budget, Patience


def market_quote(path: Path) -> Quote:
    """What the run of a market.toml will cost; what a run would refuse is refused."""
    return quote_of(load_market(path), path.resolve().parent, str(path))


def quote_of(market: MarketFile, folder: Path, where: str) -> Quote:
    """What the run of a market will cost whose files are relative to `folder`; `where` is named by errors."""
    defence = market.defence.chosen
    terms = terms_of(market, {} if defence.off else {"defence": defence.settings()})
    payment = payment_of(market, lambda: _rows(market, folder))
    rules = RuleBook(terms, market.built("sampler"), payment, (Patience(), *market.built("stops"), Budget()))
    for fault in market.unpayable(rules.quotes_at(0).tolist()):
        raise BazaarError(f"{where}: {fault}")
    return quote(rules)


def terms_of(market: MarketFile, rules: Mapping[str, Any], bounded_utility: bool = False) -> Terms:
    """The terms that a file fixes by itself, without what only data and model tell."""
    offers = (ProviderTerms(p.id, p.owner, p.price_minor, p.most_accesses, p.changes_minor) for p in market.providers)
    return Terms(
        seed=market.seed,
        budget=market.budget_minor,
        per_round=market.per_round,
        currency=market.currency,
        roster=Roster(tuple(offers)),
        rules=dict(rules),
        bounded_utility=bounded_utility,
        initial_model="",
        market=market.name,
        consumer=market.consumer.name,
        **market.limits_minor,
    )


def _rows(market: MarketFile, folder: Path) -> Iterator[int]:
    """The rows of each provider whose target is known."""
    from databazaar.config.market_data import read_labelled

    for provider in market.providers:
        assert provider.file is not None  # a federation is not paid by the row
        try:
            table = read_labelled(market.data, folder / provider.file)
        except BazaarError as error:
            raise BazaarError(f"provider {provider.id!r}: {error}") from None
        yield len(table.frame)
