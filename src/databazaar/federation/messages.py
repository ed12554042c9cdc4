"""What the arbiter and a provider say to each other, and the one decoder that both sides trust.

    | "DBZ1" | header length, 4 bytes | header, canonical JSON | safetensors with one vector `w`, or nothing |

Lengths are checked before anything is allocated, the header is matched against exact fields, and the vector
against its type, size and finiteness. A header must be the very bytes that we would have written: no second
spelling, no repeated key. Nothing is unpickled, and no name from the other side is ever imported. Every kind of
message has a protocol number of its own, which changes when its fields do.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Callable
from math import isfinite
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from pydantic import BaseModel, Field, ValidationError
from torch import Tensor

from databazaar.data.schema_message import SchemaMessage, Strict
from databazaar.federation.fair_queue import LONGEST_NAME
from databazaar.federation.frames import Body
from databazaar.federation.receipts import LONGEST_CERTIFICATE, LONGEST_SIGNATURE
from databazaar.federation.transport import Fault, MessageError
from databazaar.ledger.replies import ReplyStatement, SignedReply
from databazaar.models import ModelKind
from databazaar.oracles import OptimizerKind, OracleKind

MAGIC = b"DBZ1"
_LENGTH = struct.Struct(">I")

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
SignedWith = Callable[[str, bytes, str], str]
"""The certificate by which a provider, by name, has signed these bytes; empty where it has not."""
MAX_HEADER = 1024 * 1024

Status = Literal["ok", "refused", "error"]
ReplyCode = Literal[
    "",
    "task-not-allowed",
    "task-does-not-fit",
    "privacy-spent",
    "too-many-questions",
    "computation-failed",
    "consumer-not-allowed",
    "no-accesses-left",
    "consumer-privacy-spent",
    "too-few-rows",
]
"""Why a provider refused or failed, in a reply; empty in one that brings what was asked for. See codes.py."""

_Name = Annotated[str, Field(min_length=1, max_length=100)]
_MaybeName = Annotated[str, Field(max_length=LONGEST_NAME)]
_Run = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
_Round = Annotated[int, Field(ge=0, lt=2**53)]
_Seed = Annotated[int, Field(ge=0, lt=2**63)]
_Size = Annotated[int, Field(ge=1, le=10**7)]
_Sizes = Annotated[tuple[_Size, ...], Field(strict=False, max_length=64)]
_Count = Annotated[int, Field(ge=1, le=10**9)]
_Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Signature = Annotated[str, Field(pattern=r"^([0-9a-f]{2})*$", max_length=LONGEST_SIGNATURE)]


def question_hash(*parts: Body) -> str:
    """SHA-256 of the parts, one after the other: by that of a question a reply says what it answers."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


class ModelMessage(Strict):
    """A built-in model by kind and sizes."""

    kind: ModelKind
    inputs: Annotated[tuple[_Size, ...], Field(strict=False, min_length=1, max_length=3)]
    outputs: _Size
    hidden: _Sizes


class OracleMessage(Strict):
    """A built-in oracle; `step` is this round's."""

    kind: OracleKind
    step: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
    batch_size: _Count
    epochs: Annotated[int, Field(ge=1, le=10**6)]
    momentum: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
    steps: _Count | None = None
    optimizer: OptimizerKind = "sgd"
    weight_decay: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 0.0


class TaskMessage(Strict):
    """The work, as a description. Without a model, only a provider's own callable understands the parameters."""

    model: ModelMessage | None
    loss: Literal["cross-entropy", "squared-error"]
    oracle: OracleMessage
    table: SchemaMessage | None


class Request(Strict):
    """`describe` asks whether the provider would take the task; `update` asks for an update. `consumer` is for whom,
    and `contract` by which agreement: both are the market's word, and empty where there is none, as at home."""

    protocol: Literal[3]
    kind: Literal["update", "describe"]
    run: _Run
    round: _Round
    seed: _Seed
    consumer: _MaybeName
    contract: _MaybeName
    task: TaskMessage


class ReceiptMessage(Strict):
    """A receipt for its provider to keep (federation/receipts.py): its text, signed by the market's server, with the
    server's certificate in PEM. `round` is how many rounds were settled by then."""

    protocol: Literal[2]
    kind: Literal["receipt"]
    run: _Run
    round: _Round
    receipt: Annotated[str, Field(max_length=MAX_HEADER)]
    signature: _Signature
    certificate: Annotated[str, Field(max_length=LONGEST_CERTIFICATE)]


class Reply(Strict):
    """`epsilon` is what a provider with differential privacy says it has spent so far, at its own `delta`. `question`
    is the hash of the bytes that it answers, and `signature` stands under both: they are empty where no party needs to
    prove anything, as in a market at home."""

    protocol: Literal[2]
    run: _Run
    round: _Round
    provider: _Name
    status: Status
    code: ReplyCode
    epsilon: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None
    delta: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] | None
    question: _Hash | Literal[""] = ""
    signature: _Signature = ""

    def statement(self, *update: Body) -> ReplyStatement:
        """What is signed of it, with the update's bytes as they are sent, in one or several parts."""
        update_hash = question_hash(*update) if any(map(len, update)) else ""
        said = (self.run, self.round, self.provider, self.question, self.status, self.code, update_hash)
        return ReplyStatement(*said)


class VerifiedReply(NamedTuple):
    """A reply, and its update where it brings one. Where the provider had to sign it: what it `signed`, the
    `certificate` by which it has, and the `fault` of its update, empty where there is none."""

    reply: Reply
    update: Tensor | None
    fault: str = ""
    signed: SignedReply | None = None
    certificate: str = ""


def encode_request(request: Request | ReceiptMessage, params: Tensor | None = None) -> bytes:
    return b"".join((_message(request), *vector_parts(params)))


def decode_request(data: Body) -> tuple[Request, Tensor | None]:
    """A request and, where it asks for an update, the parameters; or MessageError."""
    request, at = _header(data, Request)
    params = decode_vector(data, at)
    if (params is not None) != (request.kind == "update"):
        raise MessageError(Fault.BAD_TENSOR)
    return request, params


def is_receipt(data: Body) -> bool:
    """Whether it says that it is a receipt; `decode_receipt` then reads it."""
    start, text = len(MAGIC) + _LENGTH.size, b'{"protocol":2,"kind":"receipt",'
    return data[start : start + len(text)] == text


def decode_receipt(data: Body) -> ReceiptMessage:
    """A receipt, whose signature is yet to be checked; or MessageError."""
    message, at = _header(data, ReceiptMessage)
    if at != len(data):
        raise MessageError(Fault.BAD_TENSOR)
    return message


def encode_reply(reply: Reply, update: Tensor | tuple[bytes, Body] | None = None) -> bytes:
    """The reply's bytes. An update that a signature covers is given as `vector_parts` made it."""
    return b"".join((_message(reply), *(update if isinstance(update, tuple) else vector_parts(update))))


def decode_reply(
    data: Body,
    asked: Request | ReceiptMessage,
    provider: str,
    params: Tensor | None,
    question: str = "",
    signed_with: SignedWith | None = None,
) -> VerifiedReply:
    """The reply of `provider` to `asked`, its update shaped like `params`, or MessageError. With `signed_with` the
    provider must have signed it, and by it the question and the update. The signer of a bad update is answerable for
    it: the fault is returned, and not raised. Without, a reply need not say which question it answers; one that does
    must say the right one."""
    reply, at = _header(data, Reply)
    if reply.provider != provider:
        raise MessageError(Fault.OTHER_PROVIDER)
    if (reply.run, reply.round) != (asked.run, asked.round):
        raise MessageError(Fault.OTHER_ROUND)
    if reply.question != question and (signed_with is not None or (reply.question and question)):
        raise MessageError(Fault.OTHER_QUESTION)
    if signed_with is None:
        return VerifiedReply(reply, _update(reply, asked, data, at, params))
    signed = SignedReply(reply.statement(data[at:]), reply.signature)
    certificate = signed_with(provider, signed.statement.text, reply.signature) if reply.signature else ""
    if not certificate:
        raise MessageError(Fault.NOT_SIGNED)
    try:
        return VerifiedReply(reply, _update(reply, asked, data, at, params), "", signed, certificate)
    except MessageError as fault:
        return VerifiedReply(reply, None, str(fault), signed, certificate)


def _update(reply: Reply, asked: Request | ReceiptMessage, data: Body, at: int, params: Tensor | None) -> Tensor | None:
    """The update, where there has to be one."""
    if (reply.status == "ok") != (reply.code == ""):
        raise MessageError(Fault.BAD_HEADER)
    update = decode_vector(data, at, params)
    if (update is not None) != (reply.status == "ok" and asked.kind == "update"):
        raise MessageError(Fault.BAD_TENSOR)
    return update


Header = TypeVar("Header", Request, Reply, ReceiptMessage)


def _message(header: BaseModel) -> bytes:
    text = header.model_dump_json().encode()
    if len(text) > MAX_HEADER:
        raise MessageError(Fault.BAD_HEADER)
    return MAGIC + _LENGTH.pack(len(text)) + text


def _header(data: Body, kind: type[Header]) -> tuple[Header, int]:
    start = len(MAGIC) + _LENGTH.size
    if len(data) < start or data[: len(MAGIC)] != MAGIC:
        raise MessageError(Fault.NOT_A_MESSAGE)
    (length,) = _LENGTH.unpack_from(data, len(MAGIC))
    if length > MAX_HEADER or start + length > len(data):
        raise MessageError(Fault.NOT_A_MESSAGE)
    text = bytes(data[start : start + length])
    try:
        header = kind.model_validate_json(text)
    except (ValidationError, ValueError, RecursionError):
        raise MessageError(Fault.BAD_HEADER) from None
    if header.model_dump_json().encode() != text:
        raise MessageError(Fault.BAD_HEADER)
    return header, start + length


def vector_parts(vector: Tensor | None) -> tuple[bytes, Body]:
    """The vector as it is sent, without a copy: what stands before its numbers, and the memory in which they are."""
    if vector is None:
        return b"", b""
    flat = vector.detach().cpu().contiguous()
    kind = _NAMES.get(flat.dtype)
    if kind is None or flat.dim() != 1 or not len(flat):
        from safetensors.torch import save

        return save({"w": flat}), b""
    numbers = flat.numpy().astype(_TYPES[kind][0], copy=False)
    text = b'{"w":{"dtype":"%s","shape":[%d],"data_offsets":[0,%d]}}' % (kind, len(flat), numbers.nbytes)
    text += b" " * (-len(text) % _TENSOR_LENGTH.size)
    return _TENSOR_LENGTH.pack(len(text)) + text, numbers.data.cast("B")


def decode_vector(data: Body, at: int, like: Tensor | None = None) -> Tensor | None:
    """The vector that fills `data` from `at` on to its last byte; None where nothing is there. Where `data` came down
    so that it is aligned, the vector lies in its memory."""
    if at == len(data):
        return None
    if len(data) - at < _TENSOR_LENGTH.size:
        raise MessageError(Fault.BAD_TENSOR)
    (length,) = _TENSOR_LENGTH.unpack_from(data, at)
    at += _TENSOR_LENGTH.size
    found = _TENSOR_HEADER.fullmatch(data[at : at + length]) if length <= _MAX_TENSOR_HEADER else None
    if found is None:
        raise MessageError(Fault.BAD_TENSOR)
    written, kept = _TYPES[found[1]]
    count, size = int(found[2]), int(found[3])
    at += length
    if count > MAX_NUMBERS or size != count * written.itemsize or size != len(data) - at:
        raise MessageError(Fault.BAD_TENSOR)
    if like is not None and (list(like.shape) != [count] or like.dtype != kept):
        raise MessageError(Fault.OTHER_SHAPE)
    numbers = np.frombuffer(data, written, count, at)
    in_place = numbers.flags.writeable and numbers.flags.aligned and numbers.dtype.isnative
    vector = torch.from_numpy(numbers if in_place else numbers.astype(written.newbyteorder("=")))
    if not all(map(isfinite, torch.aminmax(vector))):  # a NaN anywhere is both the least and the greatest
        raise MessageError(Fault.NOT_FINITE)
    return vector
