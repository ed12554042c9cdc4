"""Arrays that are too large for a database: files beside it, which take turns.

A round writes its arrays into files that the last transaction does not name, and waits for the disk. The round's own
transaction then names them, with their hashes: the files that a ledger names are whole whenever the process is killed.
An array that the last transaction names already, such as the best model so far, is not written again.

Each file is a safetensors file of one vector.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from databazaar.canonical import canonical
from databazaar.errors import BazaarError, LedgerError, UncheckableError
from databazaar.files import open_plain
from databazaar.vectors import TYPES, hash_array

LARGE = 2**22
"""Bytes from which on an array is large: a million numbers of a model."""
LARGEST = 4 * 2**30
"""Bytes of the largest: as of a model's file, more is not read."""
HEADER = 4096
"""Bytes before the numbers: they begin with a page of the file."""
PARAMS = "params"
"""What the parameters are called among a snapshot's arrays."""
_NAME = re.compile(r"snapshot-[1-9][0-9]{0,2}\.safetensors")


def is_large(array: NDArray[Any]) -> bool:
    return array.nbytes >= LARGE and array.dtype.str in TYPES.values()


class HashedArray:
    """An array with its hash, which is computed once, when it is first asked for."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = np.asarray(array, order="C")

    @cached_property
    def hash(self) -> str:
        return hash_array(self.array)


class DamagedFileError(LedgerError):
    """A file that a ledger names is not there, or not what was written."""


@dataclass(frozen=True)
class ArrayFile:
    """Where an array is, as a transaction names it."""

    file: str
    type: str
    shape: list[int]
    hash: str

    def __post_init__(self) -> None:
        shape = isinstance(self.shape, list) and all(type(size) is int and 0 <= size <= LARGEST for size in self.shape)
        texts = all(isinstance(text, str) for text in (self.file, self.type, self.hash))
        if not shape or not texts or not _NAME.fullmatch(self.file) or self.type not in TYPES.values():
            raise ValueError("it names no file of ours")

    def read(self, folder: Path) -> HashedArray:
        """The array as it was written. Anything else is refused by its size or its hash."""
        path, dtype = folder / self.file, np.dtype(self.type)
        size = math.prod(self.shape) * dtype.itemsize
        if size > LARGEST:
            raise self._refused(path, f"is said to have {size:,} bytes, and up to {LARGEST:,} are read")
        try:
            with open_plain(path, folder) as file:
                if os.fstat(file.fileno()).st_size != HEADER + size:
                    raise self._refused(path, "has another size than the ledger says")
                file.seek(HEADER)
                array = np.empty(self.shape, dtype)
                rest = _bytes_of(array)
                while rest and (count := file.readinto(rest)):
                    rest = rest[count:]
        except FileNotFoundError:
            raise self._refused(path, "is missing") from None
        except OSError as reason:
            raise self._refused(path, f"cannot be read ({reason.strerror})") from None
        except UncheckableError:  # no right to read it says nothing about what it holds
            raise
        except BazaarError as odd:
            raise odd if isinstance(odd, DamagedFileError) else DamagedFileError(str(odd)) from None
        found = HashedArray(array)
        if rest or found.hash != self.hash:
            raise self._refused(path, "does not hold the numbers that the ledger names")
        return found

    def _refused(self, path: Path, why: str) -> DamagedFileError:
        return DamagedFileError(f"{path}, which the next round starts from, {why}: put the old file back")


Places = dict[str, ArrayFile]
"""By the arrays' names."""


def places_in(text: bytes) -> Places:
    """The files that a transaction names; none where the parameters are in the database. What is no such text is a
    ValueError."""
    if not text.startswith(b"{"):  # as safetensors it would have a header of petabytes
        return {}
    try:
        return {name: ArrayFile(**place) for name, place in json.loads(text).items()}
    except (TypeError, AttributeError, RecursionError) as reason:
        raise ValueError(f"it names no files ({reason!r:.60})") from None


def text_of(places: Places) -> bytes:
    """Places as a transaction holds them."""
    return canonical({name: vars(place) for name, place in places.items()}).encode()


class Files:
    """The files of one run, in its folder. `write` writes arrays, and `keep` says that a transaction names them now.
    `named` tells which files the last transaction names, after another process or a commit that failed."""

    def __init__(self, folder: Path, named: Callable[[], Iterable[str]]) -> None:
        self.folder = folder.absolute()
        self._named = named
        self._kept: dict[str, HashedArray | None] | None = None  # what must not be written, where known
        self._written: dict[str, HashedArray | None] = {}

    def write(self, arrays: Mapping[str, HashedArray]) -> Places:
        """Where these arrays are, once they are durable there."""
        kept = dict.fromkeys(self._named()) if self._kept is None else self._kept
        self._kept, self._written = None, {}  # until it is known what was committed
        there = {id(large): file for file, large in kept.items() if large is not None}
        places, new = {}, False
        for name, large in arrays.items():
            if id(large) not in there:
                taken = {*kept, *self._written}
                free = (f"snapshot-{number}.safetensors" for number in range(1, 1000))
                there[id(large)] = file = next(file for file in free if file not in taken)
                self._write(self.folder / file, large.array)
                new = True
            file = there[id(large)]
            self._written[file] = large
            places[name] = ArrayFile(file, large.array.dtype.str, list(large.array.shape), large.hash)
        if new:
            sync_folder(self.folder)
        return places

    def keep(self) -> None:
        """The arrays that were written last are the ones that the ledger names from now on."""
        self._kept = self._written

    def _write(self, path: Path, array: NDArray[Any]) -> None:
        """Makes a new file: what lies in its place, whatever that is, is not written to."""
        if array.nbytes > LARGEST:
            raise BazaarError(f"the model has {array.nbytes:,} bytes: no more than {LARGEST:,} can be read again")
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o666)
        try:
            _write_at(descriptor, memoryview(_header(array)), 0)
            _write_at(descriptor, _bytes_of(array), HEADER)
            getattr(os, "fdatasync", os.fsync)(descriptor)  # macOS has no fdatasync
        finally:
            os.close(descriptor)

    def remove(self) -> None:
        """Removes all files of this kind from the folder: the ledger names none of them any more."""
        for path in self.folder.glob("snapshot-*"):
            if _NAME.fullmatch(path.name):
                path.unlink()


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _bytes_of(array: NDArray[Any]) -> memoryview:
    """The array's own memory."""
    return array.reshape(-1).view(np.uint8).data


def _header(array: NDArray[Any]) -> bytes:
    """What stands before the numbers of a vector in safetensors, filled up with spaces."""
    kinds = {spelling: kind for kind, spelling in TYPES.items()}
    vector = {"dtype": kinds[array.dtype.str], "shape": [array.size], "data_offsets": [0, array.nbytes]}
    text = json.dumps({"__metadata__": {"order": '["w"]'}, "w": vector}).encode()
    return (HEADER - 8).to_bytes(8, "little") + text.ljust(HEADER - 8)


def _write_at(descriptor: int, rest: memoryview, offset: int) -> None:
    while rest:
        count = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[count:], offset + count
