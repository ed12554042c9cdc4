"""What a foreman is told, and what it tells."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Settings:
    """Where the cluster is (None: here, of our own), how many workers it has at most, how many seconds it has to come
    back or to find room for them, the bytes that are on their way at a time, and what versions it must have."""

    address: str | None
    workers: int | None
    wait: float
    store: int
    versions: dict[str, str]


@dataclass(frozen=True)
class SharedArray:
    """An array in a file that two processes of this machine map: what one writes the other reads, without a copy."""

    path: Path
    shape: tuple[int, ...]
    dtype: str

    @classmethod
    def create(cls, folder: Path, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> SharedArray:
        """A new one, of zeros, whose room is taken at once: a full disk is an error here, and not a fault later."""
        own = cls(folder / name, shape, dtype.str)
        size = max(1, int(np.prod(shape)) * dtype.itemsize)
        with own.path.open("wb") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
        return own

    def open(self, *, writable: bool) -> NDArray[Any]:
        if 0 in self.shape:
            return np.zeros(self.shape, dtype=self.dtype)
        return np.asarray(np.memmap(self.path, dtype=self.dtype, mode="r+" if writable else "r", shape=self.shape))


@dataclass(frozen=True)
class Kept:
    """What is sent once, and is then an input of any request by its name; without an array, it is no longer."""

    name: str
    array: SharedArray | None


@dataclass(frozen=True)
class Call:
    """One call of a worker's method: which of the request's inputs it gets, or what was kept, and what else."""

    inputs: tuple[int | str, ...]
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Request:
    """Calls of one method by their places. An answer that is an array goes to the row of `output` with its place."""

    method: str
    inputs: tuple[SharedArray, ...]
    calls: dict[int, Call]
    output: SharedArray


@dataclass(frozen=True)
class Answered:
    """The answer of a call; None where it is an array, and has been written. What is kept has one answer, at 0."""

    place: int
    answer: Any


@dataclass(frozen=True)
class Connected:
    """The cluster is there."""


@dataclass(frozen=True)
class Refused:
    """Why it cannot go on, in one sentence; `unreachable` where it may help to wait."""

    sentence: str
    unreachable: bool = False
