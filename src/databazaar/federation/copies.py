"""A kit is for one place at a time: what shows that a copy of it is used in another.

On one machine a second process is stopped. Elsewhere, two of one name put each other out of the server again and again,
and a provider notices how often it is put out. A thief that answers only while the owner is away is noticed by neither:
then the owner's record lacks rounds for which the market paid.
"""

from __future__ import annotations

import errno
import hashlib
import socket
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from databazaar.errors import BazaarError

_LOST = b" is closed PID: "
"""What FLARE's client writes into its log when a connection that it had is gone."""
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
    """How often the server put this provider out, by the log of FLARE's client."""

    def __init__(self, log: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock = log, clock
        self._read = log.stat().st_size if log.exists() else 0
        self._times: deque[float] = deque(maxlen=_OFTEN)

    def often(self) -> bool:
        """Whether it was so often, since it was last asked or shortly before, that a copy of the kit may be in use."""
        now, new = self._clock(), self._lost()
        self._times.extend([now] * min(new, _OFTEN))
        return bool(new) and len(self._times) == _OFTEN and now - self._times[0] < 60 * _MINUTES

    def _lost(self) -> int:
        if not self._log.exists():
            return 0
        with self._log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(self._read if self._read <= size else 0)  # a log that has grown too long begins anew
            new = file.read()
            self._read = file.tell()
        return new.count(_LOST)
