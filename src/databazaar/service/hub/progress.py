"""The progress log: how far a job has come, one line of JSON for each round, line k for round k.

The file is made anew from the ledger whenever a runner starts. So it never tells of a round that was not committed, and
what a crash left half written is gone; a line is appended when its round is in the ledger.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from databazaar.errors import BazaarError
from databazaar.files import read_plain, write_whole
from databazaar.ledger import Audit
from databazaar.service.settings import Settings

if TYPE_CHECKING:
    from databazaar.market.run import Progress


FILE = "progress.jsonl"
LARGEST = 2**30
TOLD = ["round", "spent", "asked", "budget", "utility", "loss", "paid", "flagged", "drawn"]
FLAGGING = ("leak", "no-data")


def rounds(settings: Settings, job_id: str, after: int = 0, most: int | None = None) -> list[dict[str, Any]]:
    """The rounds of a job that come after this one, at most so many: what `TOLD` names, as
    `market.run.Progress` has it. None are there before the first is committed."""
    found = []
    for line in _lines(settings, job_id)[max(0, after) :][:most]:
        try:
            found.append(json.loads(line))
        except ValueError:  # after a power cut: the runner makes it anew
            break
    return found


def played(settings: Settings, job_id: str) -> int:
    """How many rounds of a job are known to be played."""
    return len(_lines(settings, job_id))


def _lines(settings: Settings, job_id: str) -> list[bytes]:
    """The whole lines of a job's progress log; the last may be on its way."""
    folder = settings.job_folder(job_id)
    try:
        content = read_plain(folder / FILE, folder, LARGEST)
    except (OSError, BazaarError):  # there is none, or it cannot be read
        return []
    return content[: content.rfind(b"\n") + 1].splitlines()


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
        self.add({name: getattr(progress, name) for name in TOLD})

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
