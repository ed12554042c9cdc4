"""Parameter vectors outside of torch: their hash, and arrays as safetensors. A ledger is read with this alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
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


def pack(arrays: Mapping[str, Array]) -> bytes:
    """Named arrays as safetensors, which remember their order."""
    from safetensors.numpy import save

    whole = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    return save(whole, metadata={"order": json.dumps(list(whole))})


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


def hash_packed(data: bytes) -> str:
    """The hash of a parameter vector that was packed, whole or tensor by tensor."""
    return hash_array(np.concatenate([array.reshape(-1) for array in unpack(data).values()]))
