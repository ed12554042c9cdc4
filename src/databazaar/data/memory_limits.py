"""How much memory a table may take: a small file of another party may be huge once it is read."""

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
_given: list[int] = []
"""What `limit_process` has left to this process."""


def limit_process(size: int, seconds: int) -> None:
    """From now on this process may take `size` bytes more, and `seconds` of a processor. Past them a request for memory
    fails, and the system ends the process. This cannot be undone."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits = {resource.RLIMIT_AS: pages * resource.getpagesize() + size, resource.RLIMIT_CPU: seconds}
    for kind, most in {**limits, resource.RLIMIT_CORE: 0}.items():
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))
    _given.append(size)


def memory() -> int:
    """The bytes that this process may have: those of the machine, the container or its own limit."""
    found = [*_given, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
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
    databazaar.errors.BazaarError: the file takes 3.0 GiB once it is read, more than the 1.0 GiB that a table may
    take here: split it or leave columns out
    """
    if size > room:
        raise BazaarError(
            f"{what} takes {size / 2**30:,.1f} GiB once it is read, more than the {room / 2**30:,.1f} GiB that a "
            "table may take here: split it or leave columns out"
        )
