"""A consumer's own arbiter: it plays the market here, beside its hold-out, and the hub is its notary.

Providers are asked through the hub, which sees parameters and updates and never a row of anybody's.
After every step of the run's ledger the hub gets its entries, and refuses what does not follow. A token over TLS says
who asks; nothing that comes from the hub is unpickled or run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from databazaar.client import shapes
from databazaar.client.connection import Connection, HubError, place, read
from databazaar.errors import BazaarError
from databazaar.federation.engine import FederatedEngine
from databazaar.federation.frames import decode_bundle
from databazaar.federation.transport import Failures, Lost, Replies, Transport

if TYPE_CHECKING:
    from databazaar.federation.messages import TaskMessage
    from databazaar.ledger import Entry

AT_ONCE = 2000
"""Entries that are sent in one request, at the most."""
MARGIN = 60.0
"""Seconds that an answer may come later than a provider's deadline."""


class NotaryClient(Connection, Transport):
    """The hub, as the arbiter of one job speaks to it: notary of its ledger, and the way to its providers."""

    look_again = 1.0

    def __init__(self, address: str, token: str, job: str, **how: Any) -> None:
        super().__init__(address, token, **{"attempts": 9, **how})
        self.job = job

    def market(self) -> shapes.OwnMarket:
        """What was agreed, as market.toml says it, and as whom the arbiter asks."""
        return read(shapes.OwnMarket, self.told("GET", place("jobs", self.job, "market")))

    def standing(self) -> shapes.RunStatus:
        """How many entries the hub has, and the hash of the last."""
        return read(shapes.RunStatus, self.told("GET", place("jobs", self.job, "entries")))

    def report(self, entries: Sequence[Entry]) -> None:
        """Sends entries in order, in steps as the ledger made them; those that the hub has already do no harm."""
        for part in in_steps(entries, AT_ONCE):
            lines = [[*one.fields, one.hash] for one in part]
            self.answer("POST", place("jobs", self.job, "entries"), json={"entries": lines})

    def request(self, names: Sequence[str], payload: bytes, timeout: float) -> tuple[Replies, Failures]:
        if not names:
            return {}, {}
        answer = self.answer(
            "POST",
            place("jobs", self.job, "ask"),
            params={"provider": list(names), "timeout": timeout},
            content=payload,
            headers={"Content-Type": "application/octet-stream"},
            timeout=timeout * max(1, len(names)) + MARGIN,
        )
        try:
            header, replies = decode_bundle(answer.content)
            lost = {str(name): Lost(why) for name, why in header["lost"].items()}
        except (ValueError, KeyError, AttributeError):
            raise HubError("the hub's answer cannot be read: is it of another version?") from None
        return {name: reply for name, reply in replies.items() if name in names}, lost

    def connected(self) -> list[str]:
        return list(self.told("GET", place("jobs", self.job, "connected"))["connected"])


class HubEngine(FederatedEngine):
    """Asks through the hub, and reports there what the run's ledger has written, before it goes on."""

    def __init__(
        self, notary: NotaryClient, task: TaskMessage, providers: Sequence[str], *, consumer: str, **asking: Any
    ) -> None:
        super().__init__(task, providers, notary, consumer=consumer, contract=notary.job, **asking)
        self._notary = notary
        self._reported: int | None = None

    def witness(self, entries: Sequence[Entry]) -> None:
        """Unlike other witnesses this one is needed: a run that the hub refuses does not go on."""
        if not entries:
            return
        if self._reported is None:
            self._reported = self._first(entries)
        self._notary.report([entry for entry in entries if entry.seq >= (self._reported or 0)])
        self._reported = entries[-1].seq + 1

    def _first(self, entries: Sequence[Entry]) -> int:
        """How many the hub has, which must be the beginning of what is here."""
        standing = self._notary.standing()
        known = standing.entries
        if known > len(entries) or (known and entries[known - 1].hash != standing.head):
            raise BazaarError(
                "the hub has other entries of this job than this folder: it has closed the run because nothing was "
                "heard of it, or the run was reported from another folder; look at the job, and go on from there"
            )
        return known


def in_steps(entries: Sequence[Entry], most: int) -> list[Sequence[Entry]]:
    """Parts of about `most` entries, each ending after the opening, a round's reservations, or the close."""
    parts, begin = [], 0
    for at, entry in enumerate(entries):
        last = at + 1 == len(entries)
        whole = entry.opens or (entry.reserves and not last and not entries[at + 1].reserves)
        if last or (whole and (at + 1 - begin >= most or entry.opens)):
            parts.append(entries[begin : at + 1])
            begin = at + 1
    return parts
