"""The rules that a market.toml names. Only the oracle needs torch, so that a quote can be had without it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from databazaar.config.market_file import MarketFile
from databazaar.config.rules import (
    OSMDSettings,
    PricePerAccessSettings,
    PricePerRowSettings,
    RegisteredSampler,
    ThriftySettings,
)
from databazaar.payments import PAYMENTS, Payment, PricePerRow
from databazaar.samplers import OSMD, Sampler, Thrifty, Uniform
from databazaar.samplers.osmd import theory_for
from databazaar.stops import STOPS, Stop

if TYPE_CHECKING:
    from databazaar.learning.oracles import Oracle


def stops_of(market: MarketFile) -> tuple[Stop, ...]:
    """The stops beside those of every run."""
    return tuple(STOPS.build(stop.model_dump()) for stop in market.stops)


def payment_of(market: MarketFile, rows: Callable[[], Iterable[int]]) -> Payment | None:
    """The payment, None for the arbiter's own. `rows` counts those of each provider, where that is paid by the row."""
    if isinstance(market.payment, PricePerAccessSettings):
        return None
    if isinstance(market.payment, PricePerRowSettings):
        oracle = oracle_of(market)
        return PricePerRow(tuple(_rows_of_an_access(oracle, count) for count in rows()))
    payment: Payment = PAYMENTS.build(market.payment.model_dump())
    return payment


def _rows_of_an_access(oracle: Oracle, rows: int) -> int:
    """How many of its rows a local provider learns from when it is asked."""
    return int((oracle.batches(rows, key=0) >= 0).sum())


def sampler_of(market: MarketFile) -> Sampler:
    """Who decides whom to ask."""
    settings = market.sampler
    if isinstance(settings, RegisteredSampler):
        sampler: Sampler = settings.registry.build(settings.model_dump())
        return sampler
    if isinstance(settings, ThriftySettings):
        return Thrifty(settings.alpha)
    if not isinstance(settings, OSMDSettings):
        return Uniform(replacement=settings.kind == "uniform")
    if settings.eta is not None and settings.alpha is not None:
        return OSMD(settings.eta, settings.alpha)
    prices = [provider.price_minor for provider in market.providers]
    return theory_for(market.budget_minor, market.per_round, prices, settings.switches or 1)


def oracle_of(market: MarketFile) -> Oracle:
    """How providers answer whose data are here."""
    from databazaar.learning.oracles import build_oracle
    from databazaar.learning.task import Halving

    settings, every = market.oracle.model_dump(), market.training.halve_every
    if every and "step" in settings:
        settings["step"] = Halving(settings["step"], every)
    return build_oracle(**settings)
