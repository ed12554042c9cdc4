"""What is said where memory runs out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from databazaar.errors import BazaarError


def out_of_memory(reason: BaseException) -> bool:
    """Whether this is said where there is no memory left. On a CPU torch has no exception of its own for that."""
    lacks = "can't allocate memory" in str(reason) or "not enough memory" in str(reason)
    return isinstance(reason, MemoryError | torch.OutOfMemoryError) or (isinstance(reason, RuntimeError) and lacks)


@contextmanager
def memory_may_run_out() -> Iterator[None]:
    """A sentence in place of what a library says when it gets no memory."""
    try:
        yield
    except Exception as reason:
        if not out_of_memory(reason):
            raise
        raise BazaarError(
            f"memory ran out in the middle of a round ({' '.join(str(reason).split())[:120]}): nothing of it is paid; "
            "resume the run with more memory, or begin one with a lower per_round, smaller batches or fewer trained "
            "parameters (an adapter)"
        ) from reason
