"""torch's global random numbers from a seed, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """All that is drawn within comes from `seed`; after it the CPU's generator is where it was.

    `torch.manual_seed` also notes from where it was called, for each kind of accelerator that is not there: longer
    work than a step of a small model. Without an accelerator there is only the CPU's generator to be seeded.
    """
    with torch.random.fork_rng(devices=[]):
        if torch.accelerator.is_available():
            torch.manual_seed(seed)
        else:
            torch.default_generator.manual_seed(seed)
        yield
