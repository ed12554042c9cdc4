"""Every random number of a run comes from (seed, round, purpose), so that a run can go on anywhere.

There are two kinds. Draws and permutations of providers come from NumPy generators, one for each purpose (`stream`).
A provider's own work comes from counters: (seed, round, provider's id) are mixed into a 64-bit key, and the order of
its samples is that of the mixed numbers key, key + γ, key + 2γ, … (γ from the golden ratio). This needs no state and
only wrapping 64-bit arithmetic, so NumPy here and a GPU in engines/orders.py give the same orders, and thousands of
keys are made at once.

The mixing is the last step of SplitMix64 (Steele, Lea and Flood, 2014), a bijection of 64-bit numbers: two samples of
an epoch never tie.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

GOLDEN = 0x9E3779B97F4A7C15
"""γ = 2⁶⁴ / golden ratio, made odd: its multiples step through all 64-bit numbers."""
ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
"""SplitMix64: for each (shift, factor), z ← (z ^ z >> shift) · factor."""
EPOCH = 2**32
"""How far the counters of two epochs lie apart."""


def stream(seed: int, round: int, purpose: str) -> np.random.Generator:
    """A generator of its own for one purpose in one round.

    >>> bool(stream(1, 2, "draws").random() == stream(1, 2, "draws").random())
    True
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, round, _purpose(purpose)])))


def draws_stream(seed: int, round: int) -> np.random.Generator:
    """For the sampler's draws; an audit builds it again from the ledger's seed."""
    return stream(seed, round, "draws")


def oracle_key(seed: int, round: int, provider: str) -> int:
    """For one provider's own work in one round, wherever that work is done: a signed 64-bit number."""
    return int(oracle_keys(words([seed]), words([round]), provider_tags([provider]))[0])


def oracle_keys(seeds: Words, rounds: Words, tags: Words) -> NDArray[np.int64]:
    """The keys of many rows at once: seed, round and the provider's tag, mixed in one after the other."""
    keys: Words = np.zeros(len(tags), dtype=np.uint64)
    for part in (seeds, rounds, tags):
        keys = _mixed(keys + part + np.uint64(GOLDEN))
    return keys.view(np.int64)


def provider_tags(providers: Sequence[str]) -> Words:
    """What stands for a provider's id in its keys; made once."""
    return np.array([_tag(f"oracle:{provider}") for provider in providers], dtype=np.uint64)


def words(numbers: Sequence[int] | NDArray[np.int64]) -> Words:
    """Whole numbers modulo 2⁶⁴."""
    try:
        return np.asarray(numbers, dtype=np.int64).view(np.uint64)
    except OverflowError:
        return np.array([number % 2**64 for number in numbers], dtype=np.uint64)


def one_in(many: int, key: int, places: NDArray[np.int64]) -> NDArray[np.bool_]:
    """About one place in so many, always the same ones.

    >>> one_in(4, oracle_key(1, 2, "bank"), np.arange(8)).tolist()
    [False, False, False, False, False, True, False, True]
    """
    mixed = _mixed(places.astype(np.uint64) * np.uint64(GOLDEN) + np.uint64(key % 2**64))
    chosen: NDArray[np.bool_] = mixed % np.uint64(many) == 0
    return chosen


def sample_order(key: int, samples: int, epoch: int = 0, first: int | None = None) -> NDArray[np.int64]:
    """The order in which an epoch goes through the samples: those with the smallest mixed counters come first.

    `first` asks for so many of them only, which are found without sorting the rest.

    >>> sample_order(oracle_key(1, 2, "bank"), 5).tolist()
    [2, 0, 4, 1, 3]
    >>> sample_order(oracle_key(1, 2, "bank"), 5, first=2).tolist()
    [2, 0]
    """
    start = (key + epoch * EPOCH * GOLDEN) % 2**64
    ranks = _mixed(np.arange(samples, dtype=np.uint64) * np.uint64(GOLDEN) + np.uint64(start)).view(np.int64)
    if first is None or 2 * first > samples:
        return ranks.argsort()[:first]
    chosen = ranks.argpartition(first)[:first]
    return chosen[ranks[chosen].argsort()]


def _mixed(z: Words) -> Words:
    for shift, factor in ROUNDS:
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return z


def _tag(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")


_purpose = lru_cache(maxsize=64)(_tag)
