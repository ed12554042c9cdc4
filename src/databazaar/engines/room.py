"""Room for a round's updates where memory has none: in a file on a disc, or on the host for those of a GPU.

The updates of a large model are written once, row by row as answers come, and read in pieces. So they may lie in a file
that is mapped: the system holds of it what there is memory for, and what it lets go of is read again. The file has no
name from the moment it is there, so a run that is killed leaves nothing behind.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from databazaar.errors import BazaarError
from databazaar.scratch import NOT_WRITTEN, file_of

BLANK = bytes(2**20)


class Room:
    """Rows for the updates of a round, the same for every round: a new ask writes over those of the last."""

    def __init__(self, rows: Tensor) -> None:
        self._rows = rows

    @classmethod
    def on_host(cls, rows: int, width: int, dtype: torch.dtype) -> Room:
        return cls(torch.empty(rows, width, dtype=dtype))  # takes memory once it is written

    def rows(self, count: int) -> Tensor:
        """The first so many, [count, d]."""
        return self._rows[:count]

    def put(self, row: int, update: Tensor | None) -> None:
        """Writes an update, or zeros."""
        if update is None:
            self._rows[row].zero_()
        else:
            self._rows[row] = update

    def spread(self, places: Sequence[int], count: int) -> Tensor:
        """So many rows, of which those at `places`, in rising order, are what was written so far, and others zero."""
        for row, place in reversed(list(enumerate(places))):
            if row != place:
                self.put(place, self._rows[row])
        for place in range(count):
            if place not in places:
                self.put(place, None)
        return self.rows(count)


class FileRoom(Room):
    """In a file. What is written goes past the mapping, so that no page of it is taken for that."""

    def __init__(self, folder: Path, rows: int, width: int, dtype: torch.dtype) -> None:
        self.folder, self._row_bytes = folder, width * dtype.itemsize
        self._file = file_of(rows * self._row_bytes, folder)
        weakref.finalize(self, self._file.close)
        self._mapped = mmap.mmap(self._file.fileno(), rows * self._row_bytes)
        super().__init__(torch.frombuffer(self._mapped, dtype=dtype).view(rows, width))

    def put(self, row: int, update: Tensor | None) -> None:
        at = row * self._row_bytes
        for part in self._blank() if update is None else [update.detach().cpu().contiguous().numpy().data.cast("B")]:
            at += self._write(part, at)

    def _blank(self) -> Iterator[memoryview]:
        return (memoryview(BLANK)[: self._row_bytes - at] for at in range(0, self._row_bytes, len(BLANK)))

    def _write(self, part: memoryview, at: int) -> int:
        size = len(part)
        try:
            while part:
                count = os.pwrite(self._file.fileno(), part, at)
                part, at = part[count:], at + count
        except OSError as reason:
            raise BazaarError(NOT_WRITTEN.format(folder=self.folder, reason=reason.strerror)) from None
        return size
