"""What the arbiter and a provider say to each other, and the one decoder that both sides trust.

    | "DBZ1" | header length, 4 bytes | header, canonical JSON | safetensors with one vector `w`, or nothing |

Lengths are checked before anything is allocated, the header is matched against exact fields, and the vector
against its type, size and finiteness. A header must be the very bytes that we would have written: no second
spelling, no repeated key. Nothing is unpickled, and no name from the other side is ever imported.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError
from torch import Tensor

from databazaar.federation.message_faults import (
    BAD_HEADER,
    BAD_TENSOR,
    NOT_A_MESSAGE,
    NOT_SIGNED,
    OTHER_PROVIDER,
    OTHER_QUESTION,
    OTHER_ROUND,
    MessageError,
)
from databazaar.federation.message_shapes import (
    MAX_HEADER,
    ModelMessage,
    OracleMessage,
    ReceiptMessage,
    Reply,
    ReplyCode,
    Request,
    Status,
    TaskMessage,
    hash_of,
)
from databazaar.federation.message_vector import decode_vector, vector_parts
from databazaar.federation.payloads import Body
from databazaar.ledger.replies import SignedReply

__all__ = [
    "MAGIC",
    "MAX_HEADER",
    "Answered",
    "Asked",
    "Heard",
    "ModelMessage",
    "OracleMessage",
    "ReceiptMessage",
    "Reply",
    "ReplyCode",
    "Request",
    "SignedWith",
    "Status",
    "TaskMessage",
    "decode_receipt",
    "decode_reply",
    "decode_request",
    "encode_reply",
    "encode_request",
    "hear_reply",
    "is_receipt",
    "question_hash",
]
MAGIC = b"DBZ1"
_LENGTH = struct.Struct(">I")

SignedWith = Callable[[str, bytes, str], str]
"""The certificate by which a provider, by name, has signed these bytes; empty where it has not."""


class Asked(NamedTuple):
    request: Request
    params: Tensor | None


class Answered(NamedTuple):
    reply: Reply
    update: Tensor | None


class Heard(NamedTuple):
    """A reply that a provider has signed, and the certificate by which it has; `fault` is what is wrong with its
    update, empty where nothing is."""

    reply: Reply
    update: Tensor | None
    fault: str
    signed: SignedReply
    certificate: str


def encode_request(request: Request | ReceiptMessage, params: Tensor | None = None) -> bytes:
    return b"".join((_message(request), *vector_parts(params)))


def question_hash(data: Body) -> str:
    """By which a reply says what it answers."""
    return hash_of(data)


def decode_request(data: Body) -> Asked:
    """A request and, where it asks for an update, the parameters; or MessageError."""
    request, at = _header(data, Request)
    params = decode_vector(data, at)
    if (params is not None) != (request.kind == "update"):
        raise MessageError(BAD_TENSOR)
    return Asked(request, params)


def is_receipt(data: Body) -> bool:
    """Whether it says that it is a receipt; `decode_receipt` then reads it."""
    start, text = len(MAGIC) + _LENGTH.size, b'{"protocol":2,"kind":"receipt",'
    return data[start : start + len(text)] == text


def decode_receipt(data: Body) -> ReceiptMessage:
    """A receipt, whose signature is yet to be checked; or MessageError."""
    message, at = _header(data, ReceiptMessage)
    if at != len(data):
        raise MessageError(BAD_TENSOR)
    return message


def encode_reply(reply: Reply, update: Tensor | bytes | tuple[bytes, Body] | None = None) -> bytes:
    """The reply's bytes. An update that a signature covers is given as `vector_parts` made it."""
    if update is None or isinstance(update, Tensor):
        update = vector_parts(update)
    return b"".join((_message(reply), *((update,) if isinstance(update, bytes) else update)))


def decode_reply(
    data: Body, asked: Request | ReceiptMessage, provider: str, params: Tensor | None, question: str = ""
) -> Answered:
    """The reply of `provider` to `asked`, its update shaped like `params`, or MessageError. Nobody has to sign it, nor
    to say which question it answers; whoever does, must say the right one."""
    reply, at = _addressed(data, asked, provider)
    if reply.question and question and reply.question != question:
        raise MessageError(OTHER_QUESTION)
    return Answered(reply, _update(reply, asked, data, at, params))


def hear_reply(
    data: Body,
    asked: Request | ReceiptMessage,
    provider: str,
    params: Tensor | None,
    question: str,
    signed_with: SignedWith,
) -> Heard:
    """The same of a reply that the provider must have signed, and by it the question and the update; or MessageError.

    Whoever has signed a bad update is answerable for it: what is wrong with it is returned, and not raised.
    """
    reply, at = _addressed(data, asked, provider)
    if reply.question != question:
        raise MessageError(OTHER_QUESTION)
    signed = SignedReply(reply.statement(data[at:]), reply.signature)
    certificate = signed_with(provider, signed.statement.text, reply.signature) if reply.signature else ""
    if not certificate:
        raise MessageError(NOT_SIGNED)
    try:
        return Heard(reply, _update(reply, asked, data, at, params), "", signed, certificate)
    except MessageError as fault:
        return Heard(reply, None, str(fault), signed, certificate)


def _addressed(data: Body, asked: Request | ReceiptMessage, provider: str) -> tuple[Reply, int]:
    """The header of a reply that bears this provider's name, this run and this round; and where it ends."""
    reply, at = _header(data, Reply)
    if reply.provider != provider:
        raise MessageError(OTHER_PROVIDER)
    if (reply.run, reply.round) != (asked.run, asked.round):
        raise MessageError(OTHER_ROUND)
    return reply, at


def _update(reply: Reply, asked: Request | ReceiptMessage, data: Body, at: int, params: Tensor | None) -> Tensor | None:
    """The update, where there has to be one."""
    if (reply.status == "ok") != (reply.code == ""):
        raise MessageError(BAD_HEADER)
    update = decode_vector(data, at, params)
    if (update is not None) != (reply.status == "ok" and asked.kind == "update"):
        raise MessageError(BAD_TENSOR)
    return update


Header = TypeVar("Header", Request, Reply, ReceiptMessage)


def _message(header: BaseModel) -> bytes:
    text = header.model_dump_json().encode()
    if len(text) > MAX_HEADER:
        raise MessageError(BAD_HEADER)
    return MAGIC + _LENGTH.pack(len(text)) + text


def _header(data: Body, kind: type[Header]) -> tuple[Header, int]:
    start = len(MAGIC) + _LENGTH.size
    if len(data) < start or data[: len(MAGIC)] != MAGIC:
        raise MessageError(NOT_A_MESSAGE)
    (length,) = _LENGTH.unpack_from(data, len(MAGIC))
    if length > MAX_HEADER or start + length > len(data):
        raise MessageError(NOT_A_MESSAGE)
    text = bytes(data[start : start + length])
    try:
        header = kind.model_validate_json(text)
    except (ValidationError, ValueError, RecursionError):
        raise MessageError(BAD_HEADER) from None
    if header.model_dump_json().encode() != text:
        raise MessageError(BAD_HEADER)
    return header, start + length
