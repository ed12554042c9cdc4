"""Every random number of a run comes from (seed, round, purpose), so that a run can go on anywhere."""

from __future__ import annotations

import hashlib

import numpy as np


def stream(seed: int, round: int, purpose: str) -> np.random.Generator:
    """A generator of its own for one purpose in one round.

    >>> bool(stream(1, 2, "draws").random() == stream(1, 2, "draws").random())
    True
    """
    tag = int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:8], "big")
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, round, tag])))


def draws_stream(seed: int, round: int) -> np.random.Generator:
    """For the sampler's draws; an audit builds it again from the ledger's seed."""
    return stream(seed, round, "draws")


def oracle_stream(seed: int, round: int, provider: str) -> np.random.Generator:
    """For one provider's own work in one round, wherever that work is done."""
    return stream(seed, round, f"oracle:{provider}")
