"""Arrays that are too large for a database: files beside it, named by the hashes of what they hold.

A round writes its arrays into files that the last transaction does not name, and waits for the disk. The round's own
transaction then names them: the files that a ledger names are whole whenever the process is killed. An array that the
last transaction names already, such as the best model so far, is not written again.

Each file is a safetensors file of one vector.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from databazaar.canonical import canonical
from databazaar.errors import BazaarError, LedgerError, UncheckableError
from databazaar.files import open_plain, write_pieces
from databazaar.ledger.replies import is_hash
from databazaar.vectors import TYPES, HashedArray

LARGE = 2**22
"""Bytes from which on an array is large: a million numbers of a model."""
LARGEST = 4 * 2**30
"""Bytes of the largest: as of a model's file, more is not read."""
HEADER = 4096
"""Bytes before the numbers: they begin with a page of the file."""
PARAMS = "params"
"""What the parameters are called among a snapshot's arrays."""


def is_large(array: NDArray[Any]) -> bool:
    return array.nbytes >= LARGE and array.dtype.str in TYPES.values()


class DamagedFileError(LedgerError):
    """A file that a ledger names is not there, or not what was written."""


@dataclass(frozen=True)
class ArrayFile:
    """A large array, as a transaction names it."""

    type: str
    shape: list[int]
    hash: str

    def __post_init__(self) -> None:
        shape = isinstance(self.shape, list) and all(type(size) is int and 0 <= size <= LARGEST for size in self.shape)
        if not shape or not is_hash(self.hash) or self.type not in TYPES.values():
            raise ValueError("it names no file of ours")

    @property
    def file(self) -> str:
        return f"snapshot-{self.hash}.safetensors"

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
    """The files that a transaction names; none where the database holds the parameters. A ValueError is other text."""
    if not text.startswith(b"{"):  # as safetensors it would have a header of petabytes
        return {}
    try:
        return {name: ArrayFile(**place) for name, place in json.loads(text).items()}
    except (TypeError, AttributeError, RecursionError) as reason:
        raise ValueError(f"it names no files ({reason!r:.60})") from None


def text_of(places: Places) -> bytes:
    return canonical({name: vars(place) for name, place in places.items()}).encode()


def write_files(folder: Path, arrays: Mapping[str, HashedArray], named: Collection[str]) -> Places:
    """Makes these arrays durable, and says where they are. The files that the last transaction has `named` stay, and
    are not written again; all others are removed first."""
    remove_files(folder, but=named)
    places, written = dict[str, ArrayFile](), set(named)
    for name, large in arrays.items():
        array = large.array
        if array.nbytes > LARGEST:
            raise BazaarError(f"the model has {array.nbytes:,} bytes: no more than {LARGEST:,} can be read again")
        places[name] = place = ArrayFile(array.dtype.str, list(array.shape), large.hash)
        if place.file not in written:
            write_pieces(folder / place.file, [_header(array), _bytes_of(array)])
            written.add(place.file)
    return places


def remove_files(folder: Path, but: Collection[str] = ()) -> None:
    """Removes the files of this kind that a ledger does not name any more."""
    for path in folder.glob("snapshot-*.safetensors"):
        if path.name not in but and is_hash(path.stem.removeprefix("snapshot-")):
            path.unlink()


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _header(array: NDArray[Any]) -> bytes:
    """What stands before the numbers of a vector in safetensors, filled up with spaces."""
    kinds = {spelling: kind for kind, spelling in TYPES.items()}
    vector = {"dtype": kinds[array.dtype.str], "shape": [array.size], "data_offsets": [0, array.nbytes]}
    text = json.dumps({"__metadata__": {"order": '["w"]'}, "w": vector}).encode()
    return (HEADER - 8).to_bytes(8, "little") + text.ljust(HEADER - 8)
