"""What market.toml says of money: written amounts as whole minor units, and what nobody could pay, with the remedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from databazaar.config.sections import MarketSettings, ProviderSettings
from databazaar.errors import BazaarError
from databazaar.money import Currency
from databazaar.roster import PriceChange
from databazaar.settings import Fault

LARGEST_AMOUNT = 2**63 - 1


def minor(currency: Currency, written: int | str, field: str) -> int:
    """Minor units of an amount; one that no ledger holds is refused."""
    amount = currency.parse(written, field)
    if amount > LARGEST_AMOUNT:
        raise BazaarError(
            f"{field} = {written!r} is more than a ledger holds: write at most {currency.format(LARGEST_AMOUNT)}"
        )
    return amount


def price_faults(currency: Currency, provider: ProviderSettings, setting: str) -> Iterator[str]:
    """Reads a provider's prices, of now and of later. `setting` is where it stands in the file."""
    changes: list[PriceChange] = []
    for place, change in enumerate(provider.price_changes):
        where = f"{setting}.price_changes[{place}]"
        if changes and change.from_round - 1 <= changes[-1].from_round:
            yield f"{where}.from_round = {change.from_round} does not come after the one before it: put them in order"
            continue
        try:
            changes.append(PriceChange(change.from_round - 1, _price(currency, change.price, f"{where}.price")))
        except BazaarError as fault:
            yield str(fault)
    object.__setattr__(provider, "changes_minor", tuple(changes))
    try:
        price = _price(currency, provider.price, f"{setting}.price")
        object.__setattr__(provider, "price_minor", price)
    except BazaarError as fault:
        yield str(fault)


def _price(currency: Currency, written: int | str, field: str) -> int:
    amount = minor(currency, written, field)
    if amount == 0:
        raise BazaarError(f"{field} = {written!r} would make access free and a run endless: write a price above zero")
    return amount


def limits_of(currency: Currency, market: MarketSettings) -> tuple[dict[str, int], list[str]]:
    """The consumer's limits in minor units, as far as they are given, and what is wrong with them."""
    limits, faults = {}, list[str]()
    for name in ("most_per_access", "most_per_round"):
        written = getattr(market, name)
        if written is None:
            continue
        try:
            limits[name] = minor(currency, written, f"market.{name}")
        except BazaarError as fault:
            faults.append(Fault(str(fault), f"market.{name}"))
    return limits, faults


def unpayable(
    currency: Currency, budget: int | None, limits: dict[str, int], per_round: int, prices: Sequence[int]
) -> Iterator[str]:
    """What is wrong where a budget or a limit pays for nobody."""
    cheapest = min(prices, default=0)
    if budget is not None and budget < per_round * cheapest:
        yield Fault(
            f"market.budget = {currency.format(budget)} cannot pay for one round of per_round = {per_round} accesses "
            f"at {currency.format(cheapest)} or more each: "
            f"raise budget to at least {currency.format(per_round * cheapest)}, or lower per_round",
            "market.budget",
        )
    for name, most in limits.items():
        if most < max(cheapest, 1):
            yield Fault(
                f"market.{name} = {currency.format(most)} pays for nobody, because an access costs "
                f"{currency.format(max(cheapest, 1))} or more in the first round: raise {name} to at least that, or "
                "leave it out",
                f"market.{name}",
            )
