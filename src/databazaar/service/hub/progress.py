"""The progress log: how far a job has come, one line of JSON for each round, line k for round k.

The file is made anew from the ledger whenever a runner starts. So it never tells of a round that was not committed, and
what a crash left half written is gone; a line is appended when its round is in the ledger.
"""

from __future__ import annotations

import json
import os
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from databazaar.files import write_whole
from databazaar.ledger import Audit
from databazaar.service.settings import Settings

if TYPE_CHECKING:
    from databazaar.market.run import Progress


FILE = "progress.jsonl"
MOST_FOLLOWED = 256
"""Of so many jobs the places of their lines are remembered; of others they are found again."""
AT_ONCE = 2**20


def rounds(settings: Settings, job_id: str, after: int = 0, most: int | None = None) -> list[dict[str, Any]]:
    """The rounds of a job that come after this one, at most so many: round, spent, asked, budget, utility, loss, paid,
    flagged and drawn, as `market.run.Progress` has them. None are there before the first is committed."""
    with _lock:
        lines = _follow(settings, job_id).lines(max(0, after), most)
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:  # after a power cut: the runner makes it anew
            break
    return found


def played(settings: Settings, job_id: str) -> int:
    """How many rounds of a job are known to be played."""
    with _lock:
        return _follow(settings, job_id).count()


def _follow(settings: Settings, job_id: str) -> _Followed:
    path = settings.job_folder(job_id) / FILE
    followed = _followed.pop(path, None) or _Followed(path)
    _followed[path] = followed
    while len(_followed) > MOST_FOLLOWED:
        _followed.popitem(last=False)
    return followed


class _Followed:
    """The file of one job, and where its whole lines end as far as they were read. Line k is round k."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file, self._ends = -1, array("q", [0])

    def count(self) -> int:
        with self._opened() as descriptor:
            if descriptor is None:
                return 0
            self._follow(descriptor)
            return len(self._ends) - 1

    def lines(self, after: int, most: int | None) -> list[bytes]:
        with self._opened() as descriptor:
            if descriptor is None:
                return []
            self._follow(descriptor)
            last = len(self._ends) - 1 if most is None else min(len(self._ends) - 1, after + most)
            if after >= last:
                return []
            begin, end = self._ends[after], self._ends[last]
            return os.pread(descriptor, end - begin, begin).splitlines()

    @contextmanager
    def _opened(self) -> Iterator[int | None]:
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # there is none, or it cannot be read
            yield None
            return
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _follow(self, descriptor: int) -> None:
        """Finds the lines that have come since. A file that was made anew is read from its beginning."""
        now = os.fstat(descriptor)
        if now.st_ino != self._file or now.st_size < self._ends[-1]:
            self._file, self._ends = now.st_ino, array("q", [0])
        at, known = self._ends[-1], self._ends[-1]
        while piece := os.pread(descriptor, AT_ONCE, at):
            place = piece.find(b"\n")
            while place >= 0:
                known = at + place + 1
                self._ends.append(known)
                place = piece.find(b"\n", place + 1)
            at += len(piece)


_lock = threading.Lock()
_followed: OrderedDict[Path, _Followed] = OrderedDict()


FLAGGING = ("leak", "no-data")


class ProgressLog:
    """Writes one job's progress. `so_far` is the replayed ledger of a run that goes on."""

    def __init__(self, job_folder: Path, so_far: Audit | None = None) -> None:
        known = [] if so_far is None else list(progress_of(so_far))
        path = job_folder / FILE
        write_whole(path, b"".join(map(_line, known)), mode=0o600)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._round = len(known)

    def tell(self, progress: Progress) -> None:
        """One more round."""
        self.add(
            {
                "round": progress.round,
                "spent": progress.spent,
                "asked": progress.asked,
                "budget": progress.budget,
                "utility": progress.utility,
                "loss": progress.loss,
                "paid": progress.paid,
                "flagged": progress.flagged,
                "drawn": progress.drawn,
            }
        )

    def add(self, told: dict[str, Any]) -> None:
        """The same as it is written. Where the ledger's replay has told of the round already, nothing is."""
        if told["round"] > self._round:
            os.write(self._file, _line(told))
            self._round = told["round"]

    def close(self) -> None:
        os.close(self._file)


def _line(told: dict[str, Any]) -> bytes:
    return json.dumps(told, separators=(",", ":")).encode() + b"\n"


def progress_of(audit: Audit) -> Iterator[dict[str, Any]]:
    """What was told after each round, from the replayed ledger: the same numbers, to the last digit."""
    assert audit.terms is not None and audit.record is not None
    ids, record = audit.terms.roster.ids, audit.record
    freed: dict[int, list[tuple[str, int]]] = {}
    for one in record.freed:
        if one.round is not None and one.released:
            freed.setdefault(one.round, []).append((one.provider, one.amount))
    flags: dict[int, set[int]] = {}
    for number, verdict in record.verdicts:
        if verdict.what in FLAGGING:
            flags.setdefault(number, set()).add(verdict.provider)
    flagged: set[int] = set()
    spent, asked = 0, accumulate(record.rounds.in_rounds(record.rounds.quoted))
    for number, (round, so_far) in enumerate(zip(record.rounds, asked, strict=True)):
        released = freed.get(number, [])
        spent += sum(access.paid for access in round.accesses) + sum(amount for _, amount in released)
        flagged |= flags.get(number, set())
        utility, loss = round.scores.ended
        earning = [*(ids[access.provider] for access in round.accesses if access.paid), *(who for who, _ in released)]
        yield {
            "round": number + 1,
            "spent": spent,
            "asked": so_far,
            "budget": audit.terms.budget,
            "utility": utility,
            "loss": loss,
            "paid": list(dict.fromkeys(earning)),
            "flagged": [ids[place] for place in sorted(flagged)],
            "drawn": [ids[access.provider] for access in round.accesses],
        }
