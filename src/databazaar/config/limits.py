"""What a market may ask of a machine. It is checked before anything is built, from the numbers alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from databazaar.data.room import memory
from databazaar.errors import BazaarError
from databazaar.learning.kinds import ModelForm

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
