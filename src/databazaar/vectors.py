"""Parameter vectors outside of torch: their hash, and arrays as safetensors. A ledger is read with this alone."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from io import FileIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def hash_array(array: Array) -> str:
    """SHA-256 of a parameter vector: its type, its length and its bytes."""
    array = np.asarray(array, order="C")
    digest = hashlib.sha256(f"{array.dtype.str}:{array.size}:".encode())
    digest.update(array.data)
    return digest.hexdigest()


class HashedArray:
    """An array with its hash, which is computed once, when it is first asked for."""

    def __init__(self, array: Array) -> None:
        self.array = np.asarray(array, order="C")

    @cached_property
    def hash(self) -> str:
        return hash_array(self.array)


def pack(arrays: Mapping[str, Array]) -> bytes:
    """Named arrays as safetensors, which remember their order."""
    from safetensors.numpy import save

    return save(
        {name: np.asarray(array, order="C") for name, array in arrays.items()},
        metadata={"order": json.dumps(list(arrays))},
    )


def unpack(data: bytes) -> dict[str, Array]:
    """The arrays that `pack` wrote, in their order. Bytes that are none are a ValueError."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        named: dict[str, Array] = load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        order = json.loads(header["__metadata__"]["order"])
        return {name: named[name] for name in order}
    except (SafetensorError, KeyError, TypeError, ValueError) as reason:
        raise ValueError(f"these bytes are no arrays ({reason})") from None


LARGEST_HEADER = 2**24
"""Bytes of a safetensors header: the names of a hundred thousand tensors."""
TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1", "U8": "|u1"}
"""The types of arrays, as safetensors spell them and as NumPy does."""
Tensors = list[tuple[str, list[int]]]
"""The tensors of a model by their names and shapes, in the order in which its vector holds them."""


def measure_packed(file: FileIO, most: int) -> tuple[str, Tensors]:
    """The hash of a parameter vector in a file of safetensors, and its tensors. The file may come from anybody: its
    header is checked, and the numbers pass in pieces. What does not fit together is a ValueError."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if size > most or length > min(size - 8, LARGEST_HEADER):
        raise ValueError("its header or its size is not that of a model")
    try:
        header = json.loads(file.read(length))
        order = json.loads(header.pop("__metadata__")["order"])
        if sorted(order) != sorted(header):
            raise ValueError("its order names other tensors than it has")
        parts = [(name, [*map(int, header[name]["shape"])], *map(int, header[name]["data_offsets"])) for name in order]
        kinds = {header[name]["dtype"] for name in order}
        dtype = np.dtype(TYPES[kinds.pop()])
    except (KeyError, TypeError, AttributeError, RecursionError, OverflowError) as reason:
        raise ValueError(f"its header cannot be read ({reason!r:.60})") from None
    places = sorted((begin, end) for _, _, begin, end in parts)
    whole = [0, *(end for _, end in places)] == [*(begin for begin, _ in places), size - 8 - length]
    if kinds or not whole or any(end - begin != math.prod(shape) * dtype.itemsize for _, shape, begin, end in parts):
        raise ValueError("its tensors do not fill it")
    digest = hashlib.sha256(f"{dtype.str}:{(size - 8 - length) // dtype.itemsize}:".encode())
    for _, _, begin, end in parts:
        file.seek(8 + length + begin)
        while begin < end and (piece := file.read(min(2**20, end - begin))):
            digest.update(piece)
            begin += len(piece)
    return digest.hexdigest(), [(name, shape) for name, shape, _, _ in parts]


def layout_digest(tensors: Iterable[tuple[str, Iterable[int]]]) -> str:
    """What makes a model of a vector of numbers: the names, shapes and order of its tensors."""
    named = [[name, list(shape)] for name, shape in tensors]
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()


def hash_packed(data: bytes) -> str:
    """The hash of a parameter vector that was packed, whole or tensor by tensor."""
    return hash_array(np.concatenate([array.reshape(-1) for array in unpack(data).values()]))
