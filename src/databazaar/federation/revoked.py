"""Whose connections the market's server refuses."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from databazaar.errors import BazaarError
from databazaar.federation import enrolment, revocations
from databazaar.federation.revocations import REVOKED
from databazaar.federation.tls import stamps

log = logging.getLogger(__name__)


class Revoked:
    """Who is shut out, by the two files that say so; both are read again when they change, and every minute, because
    an entry of the list may begin to count on a later day."""

    def __init__(self, server: Path) -> None:
        self._names, self._list = server / enrolment.REVOKED_NAMES, server / "startup" / REVOKED
        self._seen: object = None
        self._found: tuple[set[str], set[int], set[int]] | None = None

    def why(self, name: str, serial: int, connected: bool = False) -> str:
        """Why this certificate counts no more, or nothing. Without a list that can be read, nobody is let in. Who is
        connected stays so with a certificate that was merely renewed."""
        if (seen := (stamps(self._names, self._list), int(time.time()) // 60)) != self._seen:
            self._found = self._read()
            self._seen = seen
        if self._found is None:
            return "the server has no revocation list that can be read"
        if name in self._found[0]:
            return "the name is revoked"
        return "the certificate is revoked" if serial in self._found[2 if connected else 1] else ""

    def _read(self) -> tuple[set[str], set[int], set[int]] | None:
        try:
            if not self._list.exists():
                raise BazaarError(f"{self._list} is missing: run `bazaar federation sign --server`")
            names = enrolment.read_revoked(self._names)
            return names, revocations.in_force(self._list), revocations.in_force(self._list, superseded=False)
        except (BazaarError, OSError, ValueError) as reason:
            log.error("nobody is let in: %s", reason)
            return None
