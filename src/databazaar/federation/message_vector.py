"""The vector of a message: safetensors with the one array `w`, read with care, because it came from another party."""

from __future__ import annotations

import re
import struct
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor

from databazaar.federation.failures import BAD_TENSOR, NOT_FINITE, OTHER_SHAPE, MessageError
from databazaar.federation.payloads import Body

MAX_NUMBERS = 64 * 1024 * 1024
_TENSOR_LENGTH = struct.Struct("<Q")
_MAX_TENSOR_HEADER = 256
_TENSOR_HEADER = re.compile(
    rb'\{"w":\{"dtype":"(F32|F64)","shape":\[([1-9]\d{0,9})\],"data_offsets":\[0,([1-9]\d{0,11})\]\}\} {0,7}'
)
_TYPES: dict[bytes, tuple[np.dtype[Any], torch.dtype]] = {
    b"F32": (np.dtype("<f4"), torch.float32),
    b"F64": (np.dtype("<f8"), torch.float64),
}
_NAMES = {kept: name for name, (_, kept) in _TYPES.items()}


def vector_parts(vector: Tensor | None) -> tuple[bytes, Body]:
    """The vector as it is sent, without a copy: what stands before its numbers, and the memory in which they are."""
    if vector is None:
        return b"", b""
    flat = vector.detach().cpu().contiguous()
    kind = _NAMES.get(flat.dtype)
    if kind is None or flat.dim() != 1 or not len(flat):
        return plainly_encoded(flat), b""
    numbers = flat.numpy().astype(_TYPES[kind][0], copy=False)
    text = b'{"w":{"dtype":"%s","shape":[%d],"data_offsets":[0,%d]}}' % (kind, len(flat), numbers.nbytes)
    text += b" " * (-len(text) % _TENSOR_LENGTH.size)
    return _TENSOR_LENGTH.pack(len(text)) + text, numbers.data.cast("B")


def plainly_encoded(vector: Tensor) -> bytes:
    """The same by safetensors itself, for any tensor; it takes two copies."""
    from safetensors.torch import save

    return save({"w": vector})


def decode_vector(data: Body, at: int, like: Tensor | None = None) -> Tensor | None:
    """The vector that fills `data` from `at` on to its last byte; None where nothing is there. Where `data` came down
    so that it is aligned, the vector lies in its memory."""
    if at == len(data):
        return None
    if len(data) - at < _TENSOR_LENGTH.size:
        raise MessageError(BAD_TENSOR)
    (length,) = _TENSOR_LENGTH.unpack_from(data, at)
    at += _TENSOR_LENGTH.size
    found = _TENSOR_HEADER.fullmatch(data[at : at + length]) if length <= _MAX_TENSOR_HEADER else None
    if found is None:
        raise MessageError(BAD_TENSOR)
    written, kept = _TYPES[found[1]]
    count, size = int(found[2]), int(found[3])
    at += length
    if count > MAX_NUMBERS or size != count * written.itemsize or size != len(data) - at:
        raise MessageError(BAD_TENSOR)
    if like is not None and (list(like.shape) != [count] or like.dtype != kept):
        raise MessageError(OTHER_SHAPE)
    numbers = np.frombuffer(data, written, count, at)
    in_place = numbers.flags.writeable and numbers.flags.aligned and numbers.dtype.isnative
    vector = torch.from_numpy(numbers if in_place else numbers.astype(written.newbyteorder("=")))
    if not all(map(isfinite, torch.aminmax(vector))):  # a NaN anywhere is both the least and the greatest
        raise MessageError(NOT_FINITE)
    return vector
