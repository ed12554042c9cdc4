"""How much memory a table may take: a small file of somebody else's may be huge once it is read."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

from databazaar.errors import BazaarError

_GROUP = Path("/sys/fs/cgroup/memory.max")
"""Where Linux says what a container may have."""
TEXT_SHARE, TABLE_SHARE = 8, 2
"""A text file may be an eighth of the memory, as it becomes several times as large; a table a half."""


def memory() -> int:
    """The bytes that this process may have: those of the machine, the container or its own limit."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    own = resource.getrlimit(resource.RLIMIT_AS)[0]
    found += [own] if own != resource.RLIM_INFINITY else []
    with contextlib.suppress(OSError, ValueError):  # no such file, or no limit
        found.append(int(_GROUP.read_text()))
    return min(found)


def text_room() -> int:
    """The most bytes of a text file, unpacked."""
    return memory() // TEXT_SHARE


def table_room() -> int:
    """The most bytes of a table in memory."""
    return memory() // TABLE_SHARE


def refuse_too_large(size: int, room: int, what: str = "the file") -> None:
    """
    >>> refuse_too_large(3 * 2**30, 2**30)
    Traceback (most recent call last):
    databazaar.errors.BazaarError: the file takes 3.0 GiB once it is read, more than the 1.0 GiB that this machine has
    for a table: split it or leave columns out
    """
    if size > room:
        raise BazaarError(
            f"{what} takes {size / 2**30:,.1f} GiB once it is read, more than the {room / 2**30:,.1f} GiB that this "
            "machine has for a table: split it or leave columns out"
        )
