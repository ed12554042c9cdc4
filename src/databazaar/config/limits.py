"""What a market may ask of a machine and of a budget, checked from the numbers alone before anything is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from databazaar.data.memory_limits import memory
from databazaar.errors import BazaarError
from databazaar.models import ModelForm
from databazaar.money import Currency
from databazaar.roster import PriceChange

if TYPE_CHECKING:
    from databazaar.config.sections import ProviderSettings

MOST_PROVIDERS = 100_000
MOST_PER_ROUND = 100_000

MOST_SAMPLES = 10**8
"""Rows × epochs of one ask, filled up to whole batches."""
LARGEST_BITS = 1024
LONGEST_WAIT = 7 * 24 * 3600.0
"""Seconds: no deadline is further away than a week."""
_FLOAT = 4
_SPARE = 4
"""The models that a round holds beside one for each provider asked: the current one, the best, and what comes next."""
DEEPEST = 50
"""Sections in lists in sections: ours are five deep."""


def refuse_endless(settings: Mapping[str, Any]) -> None:
    """Refuses what could not even be shown in a sentence: numbers of thousands of digits, and lists in lists in lists.

    >>> refuse_endless({"market": {"seed": 2**20_000}})
    Traceback (most recent call last):
    databazaar.errors.BazaarError: market.seed has more digits than any ledger holds: write a smaller number
    """
    waiting: list[tuple[str, Any, int]] = [("", settings, 0)]
    while waiting:
        place, value, depth = waiting.pop()
        if isinstance(value, int) and value.bit_length() > LARGEST_BITS:
            raise BazaarError(f"{place} has more digits than any ledger holds: write a smaller number")
        if depth > DEEPEST:
            raise BazaarError(f"{place[:60]}… is lists in lists, {DEEPEST} deep: write it flat")
        if isinstance(value, Mapping):
            waiting += [(f"{place}.{key}" if place else str(key), inner, depth + 1) for key, inner in value.items()]
        elif isinstance(value, list | tuple):
            waiting += [(f"{place}[{number}]", inner, depth + 1) for number, inner in enumerate(value)]


def refuse_large_model(form: ModelForm, asked: int, room: int | None = None) -> None:
    """A round holds a model for each of the providers `asked`."""
    room = memory() if room is None else room
    size = _FLOAT * form.parameter_count * (asked + _SPARE)
    if size > room:
        raise BazaarError(
            f"model: {form.sizes} has {form.parameter_count:,} parameters, and a round of {asked:,} providers takes "
            f"{size / 2**30:,.1f} GiB of the {room / 2**30:,.1f} GiB that this machine has: make the model smaller, or "
            "lower market.per_round"
        )


def refuse_long_asks(samples: Mapping[str, int]) -> None:
    """`samples` are those that one ask of each provider goes through."""
    for provider, count in samples.items():
        if count > MOST_SAMPLES:
            raise BazaarError(
                f"oracle: one ask of provider {provider!r} goes through {count:,} rows, more than {MOST_SAMPLES:,}: "
                "lower oracle.steps, oracle.epochs or oracle.batch_size"
            )


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
