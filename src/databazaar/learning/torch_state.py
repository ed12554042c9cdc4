"""What torch holds for the whole process, set for a while: its random numbers, and its number of threads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from databazaar.errors import BazaarError

SMALL_MODEL = 100_000
"""Below so many parameters, over all models that are computed side by side, a second thread costs more than it brings:
the threads of many short steps wait for each other, on a busy machine for most of the time."""
VARIABLE = "DATABAZAAR_THREADS"
"""The environment variable that sets the number of threads, whatever the size of the model."""


@contextmanager
def limited_threads(parameters: int) -> Iterator[None]:
    """Keeps torch to one thread while a model of so many parameters is computed, if that is small. DATABAZAAR_THREADS
    sets another number for models of any size. The caller's number of threads is restored."""
    before, wanted = torch.get_num_threads(), _threads_for(parameters)
    if wanted is not None:
        torch.set_num_threads(wanted)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread meanwhile, for sums whose last bits must not depend on how many there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _threads_for(parameters: int) -> int | None:
    """The number of threads for a model of so many parameters; None leaves it to torch."""
    given = os.environ.get(VARIABLE)
    if not given:
        return 1 if parameters < SMALL_MODEL else None
    if not (given.isascii() and given.isdigit() and 1 <= int(given) <= 1024):
        raise BazaarError(f"{VARIABLE} = {given!r} must be a whole number from 1 to 1024: set it so, or leave it out")
    return int(given)


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
