"""A kit is for one place at a time. On one machine a second process is stopped; elsewhere two of one name replace
each other at the server again and again, and a provider notices how often it is replaced."""

from __future__ import annotations

import errno
import hashlib
import socket
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from databazaar.errors import BazaarError

_OFTEN, _MINUTES = 3, 10


def only_copy(key: Path) -> socket.socket:
    """Holds the key's name on this machine until it is closed: a copy of the kit is the same provider.

    Where names like these are not known, as on other systems than Linux, nothing is held.
    """
    held = socket.socket(socket.AF_UNIX)
    try:
        held.bind(b"\0databazaar-kit-" + hashlib.sha256(key.read_bytes()).hexdigest().encode())
    except OSError as reason:
        if reason.errno == errno.EADDRINUSE:
            held.close()
            raise BazaarError(
                f"another process answers with a copy of {key.parent.parent}: stop it first; if it is not yours, the "
                "key is stolen, and the operator should revoke it"
            ) from None
    return held


class Evictions:
    """How often the server put this provider out for another connection of its name."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._times: deque[float] = deque(maxlen=_OFTEN)

    def note(self) -> bool:
        """Notes one; whether it was so often in a short time that a copy of the kit may be in use."""
        self._times.append(self._clock())
        return len(self._times) == _OFTEN and self._times[-1] - self._times[0] < 60 * _MINUTES
