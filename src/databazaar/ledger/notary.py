"""The notary: takes a run's entries as they come and refuses the first that does not follow from those before.

An audit is a notary that is given the whole ledger. Neither needs data, model or torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from databazaar.errors import BazaarError, LedgerError
from databazaar.ledger.audit import Audit
from databazaar.ledger.chain import KINDS, Entry
from databazaar.ledger.record import Record
from databazaar.ledger.replay import Replay
from databazaar.ledger.rulebook import Stopped
from databazaar.ledger.store import Snapshot
from databazaar.registry import MissingRuleError

NO_ENTRIES = "the ledger has no entries"


@dataclass(frozen=True)
class Due:
    """What must come next. `asked` are those whom the round under way asks, each once; nobody where the run must end
    here, for the reason of `stop`, or is closed. `reserved` says whether all their reservations are written, and none
    is settled yet."""

    round: int
    asked: tuple[str, ...]
    reserved: bool
    stop: Stopped | None = None


class Notary:
    """Takes entries one at a time. Without a `record` memory does not grow with the rounds, but for what the stops look
    at: a number for each. It can be built anew at any time from the entries that were kept.

    `audit` is what they have come to so far. One that has refused an entry takes no other.
    """

    def __init__(
        self, entries: Iterable[Entry] = (), *, snapshot: Snapshot | None = None, record: bool = False
    ) -> None:
        self.audit = Audit(record=Record() if record else None)
        self._snapshot = snapshot
        self._replay: Replay | None = None
        for entry in entries:
            self.take(entry)

    @property
    def due(self) -> Due:
        """What must come next, once there is an opening entry."""
        replay = self._replay
        if replay is None:
            raise LedgerError(NO_ENTRIES)
        if self.audit.closed:
            return Due(self.audit.rounds, (), False)
        ids = replay.terms.roster.ids
        asked = () if replay.drawn is None else tuple(ids[i] for i in replay.drawn.asked)
        reserved = 0 < len(replay.order) == replay.reserves and not replay.settled
        return Due(self.audit.rounds, asked, reserved, replay.stopped)

    def take(self, entry: Entry) -> None:
        """One more entry. A LedgerError says why it does not follow; a rule whose package is not installed here is no
        fault of the ledger's, and raises `MissingRuleError`."""
        audit, replay = self.audit, self._replay
        if audit.first_broken is not None:
            raise LedgerError(audit.first_broken)
        try:
            if entry.kind not in KINDS:
                raise LedgerError(f"entry {audit.entries}: is of no kind that a ledger has")
            if entry.seq != audit.entries or entry.hash != entry.digest(audit.head):
                raise LedgerError(f"{entry}: its hash does not follow from its content and the entries before it")
            if replay is not None:
                replay.check(entry)
            else:
                self._replay = Replay(entry, audit, self._snapshot)
                audit.opening = entry.hash
        except MissingRuleError:
            raise
        except BazaarError as broken:
            audit.first_broken = str(broken)
        except Exception as broken:  # whatever an entry of somebody else makes a rule do, it is the entry's fault
            audit.first_broken = f"entry {audit.entries}: cannot be read ({broken!r:.200})"
        if audit.first_broken is not None:
            raise LedgerError(audit.first_broken)
        audit.head, audit.entries = entry.hash, audit.entries + 1

    def after(self, entries: Iterable[Entry]) -> Notary:
        """The notary that has taken these too, while this one stays where it is: what is refused, or cannot be kept,
        has not happened. Only a notary without a record can be asked."""
        ahead = Notary()
        if self._replay is not None:
            ahead._replay = self._replay.forked()
            ahead.audit = ahead._replay.audit
        for entry in entries:
            ahead.take(entry)
        return ahead

    def check_end(self) -> None:
        """What can be said only when no more entries come."""
        if self._replay is None:
            raise LedgerError(NO_ENTRIES)
        self._replay.check_end()


def audit_entries(entries: Iterable[Entry], snapshot: Snapshot | None = None, *, record: bool = True) -> Audit:
    """Verifies the chain, the book's rules, and that draws, distributions, payments and stop follow from the terms.

    A rule whose package is not installed here is no fault of the ledger: it raises `MissingRuleError`.
    """
    notary = Notary(snapshot=snapshot, record=record)
    try:
        for entry in entries:
            notary.take(entry)
        notary.check_end()
    except MissingRuleError:
        raise
    except BazaarError as broken:
        notary.audit.first_broken = str(broken)
    except Exception as broken:  # a store that cannot be read to its end
        notary.audit.first_broken = f"entry {notary.audit.entries}: cannot be read ({broken!r:.200})"
    return notary.audit
