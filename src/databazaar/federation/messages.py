"""What the arbiter and a provider say to each other, and the one decoder that both sides trust.

    | "DBZ1" | header length, 4 bytes | header, canonical JSON | safetensors with one vector `w`, or nothing |

Lengths are checked before anything is allocated, the header is matched against exact fields, and the vector
against its type, size and finiteness. A header must be the very bytes that we would have written: no second
spelling, no repeated key. Nothing is unpickled, and no name from the other side is ever imported.
"""

from __future__ import annotations

import re
import struct
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from databazaar.data.schema_message import SchemaMessage
from databazaar.learning.kinds import ModelKind, OptimizerKind, OracleKind

MAGIC = b"DBZ1"
MAX_HEADER = 1024 * 1024
MAX_NUMBERS = 64 * 1024 * 1024
_LENGTH = struct.Struct(">I")
_TENSOR_LENGTH = struct.Struct("<Q")
_MAX_TENSOR_HEADER = 256
_TENSOR_HEADER = re.compile(
    rb'\{"w":\{"dtype":"(F32|F64)","shape":\[([1-9]\d{0,9})\],"data_offsets":\[0,([1-9]\d{0,11})\]\}\} {0,7}'
)
_TYPES: dict[bytes, tuple[np.dtype[Any], torch.dtype]] = {
    b"F32": (np.dtype("<f4"), torch.float32),
    b"F64": (np.dtype("<f8"), torch.float64),
}

NOT_A_MESSAGE = "not a message of this protocol"
BAD_HEADER = "the message's header is not valid"
BAD_TENSOR = "the message's vector is not valid"
NOT_FINITE = "the vector holds NaN or infinity"
OTHER_SHAPE = "the update is not shaped like the parameters"
OTHER_ROUND = "the reply belongs to another round or run"
OTHER_PROVIDER = "the reply bears another provider's name"
FAULTS = (NOT_A_MESSAGE, BAD_HEADER, BAD_TENSOR, NOT_FINITE, OTHER_SHAPE, OTHER_ROUND, OTHER_PROVIDER)
"""All that can be wrong with a message: the texts of MessageError."""

Status = Literal["ok", "refused", "error"]
Code = Literal[
    "",
    "task not allowed",
    "task does not fit the data",
    "privacy budget spent",
    "too many questions",
    "computation failed",
]

_Name = Annotated[str, Field(min_length=1, max_length=100)]
_Run = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
_Round = Annotated[int, Field(ge=0, lt=2**53)]
_Seed = Annotated[int, Field(ge=0, lt=2**63)]
_Size = Annotated[int, Field(ge=1, le=10**7)]
_Sizes = Annotated[tuple[_Size, ...], Field(strict=False, max_length=64)]
_Count = Annotated[int, Field(ge=1, le=10**9)]


class MessageError(ValueError):
    """Bytes that are no message of ours. Its text is one of FAULTS."""


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ModelMessage(_Strict):
    """A built-in model by kind and sizes."""

    kind: ModelKind
    inputs: Annotated[tuple[_Size, ...], Field(strict=False, min_length=1, max_length=3)]
    outputs: _Size
    hidden: _Sizes


class OracleMessage(_Strict):
    """A built-in oracle; `step` is this round's."""

    kind: OracleKind
    step: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
    batch_size: _Count
    epochs: Annotated[int, Field(ge=1, le=10**6)]
    momentum: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
    steps: _Count | None = None
    optimizer: OptimizerKind = "sgd"
    weight_decay: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 0.0


class TaskMessage(_Strict):
    """The work, as a description. Without a model, only a provider's own callable understands the parameters."""

    model: ModelMessage | None
    loss: Literal["cross-entropy", "squared-error"]
    oracle: OracleMessage
    table: SchemaMessage | None


class Request(_Strict):
    """`describe` asks whether the provider would take the task; `update` asks for an update."""

    protocol: Literal[1]
    kind: Literal["update", "describe"]
    run: _Run
    round: _Round
    seed: _Seed
    task: TaskMessage


class Reply(_Strict):
    """`epsilon` is what a provider with differential privacy says it has spent so far, at its own `delta`."""

    protocol: Literal[1]
    run: _Run
    round: _Round
    provider: _Name
    status: Status
    code: Code
    epsilon: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None
    delta: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] | None


class Asked(NamedTuple):
    request: Request
    params: Tensor | None


class Answered(NamedTuple):
    reply: Reply
    update: Tensor | None


def encode_request(request: Request, params: Tensor | None = None) -> bytes:
    return _message(request) + _vector(params)


def decode_request(data: bytes) -> Asked:
    """A request and, where it asks for an update, the parameters; or MessageError."""
    request, at = _header(data, Request)
    params = _tensor(data, at)
    if (params is not None) != (request.kind == "update"):
        raise MessageError(BAD_TENSOR)
    return Asked(request, params)


def encode_reply(reply: Reply, update: Tensor | None = None) -> bytes:
    return _message(reply) + _vector(update)


def decode_reply(data: bytes, asked: Request, provider: str, params: Tensor | None) -> Answered:
    """The reply of `provider` to `asked`, its update shaped like `params`, or MessageError."""
    reply, at = _header(data, Reply)
    if reply.provider != provider:
        raise MessageError(OTHER_PROVIDER)
    if (reply.run, reply.round) != (asked.run, asked.round):
        raise MessageError(OTHER_ROUND)
    if (reply.status == "ok") != (reply.code == ""):
        raise MessageError(BAD_HEADER)
    update = _tensor(data, at, params)
    if (update is not None) != (reply.status == "ok" and asked.kind == "update"):
        raise MessageError(BAD_TENSOR)
    return Answered(reply, update)


Header = TypeVar("Header", Request, Reply)


def _message(header: BaseModel) -> bytes:
    text = header.model_dump_json().encode()
    if len(text) > MAX_HEADER:
        raise MessageError(BAD_HEADER)
    return MAGIC + _LENGTH.pack(len(text)) + text


def _header(data: bytes, kind: type[Header]) -> tuple[Header, int]:
    start = len(MAGIC) + _LENGTH.size
    if len(data) < start or data[: len(MAGIC)] != MAGIC:
        raise MessageError(NOT_A_MESSAGE)
    (length,) = _LENGTH.unpack_from(data, len(MAGIC))
    if length > MAX_HEADER or start + length > len(data):
        raise MessageError(NOT_A_MESSAGE)
    text = data[start : start + length]
    try:
        header = kind.model_validate_json(text)
    except (ValidationError, ValueError, RecursionError):
        raise MessageError(BAD_HEADER) from None
    if header.model_dump_json().encode() != text:
        raise MessageError(BAD_HEADER)
    return header, start + length


def _vector(vector: Tensor | None) -> bytes:
    from safetensors.torch import save

    if vector is None:
        return b""
    return save({"w": vector.detach().cpu().contiguous()})


def _tensor(data: bytes, at: int, like: Tensor | None = None) -> Tensor | None:
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
