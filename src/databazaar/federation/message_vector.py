"""The vector of a message: safetensors with the one array `w`, read with care, because it came from another party."""

from __future__ import annotations

import re
import struct
from typing import Any

import numpy as np
import torch
from torch import Tensor

from databazaar.federation.message_faults import BAD_TENSOR, NOT_FINITE, OTHER_SHAPE, MessageError

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


def encode_vector(vector: Tensor | None) -> bytes:
    """The vector as it is sent, nothing where there is none."""
    from safetensors.torch import save

    if vector is None:
        return b""
    return save({"w": vector.detach().cpu().contiguous()})


def decode_vector(data: bytes, at: int, like: Tensor | None = None) -> Tensor | None:
    """The vector that fills `data` from `at` on to its last byte; None where nothing is there."""
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
    vector = torch.from_numpy(np.frombuffer(data, written, count, at).astype(written.newbyteorder("=")))
    if not bool(torch.isfinite(vector).all()):
        raise MessageError(NOT_FINITE)
    return vector
