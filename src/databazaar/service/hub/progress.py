"""How far a job has come, as its runner has written it down (hub/telling.py): read from where the last reader was."""

from __future__ import annotations

import json
import os
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from databazaar.service.settings import Settings

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
