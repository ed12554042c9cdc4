"""What a provider may say to the market's server: each of FLARE's frames is looked at before FLARE sees it.

    | length, 4 | header length, 2 | kind, 1 | – | – | app, 2 | stream, 2 | sequence, 2 | header, msgpack | payload |

Who speaks is told by the certificate of the connection, never by what a frame says of itself. No network in here.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import msgpack
from nvflare.fuel.f3.cellnet.defs import CellChannel, CellChannelTopic, MessageHeaderKey, MessageType
from nvflare.fuel.f3.sfm.constants import HandshakeKeys, Types
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_ACK_TOPIC,
    STREAM_CHANNEL,
    STREAM_CHUNK_SIZE,
    STREAM_DATA_TOPIC,
    STREAM_ERROR_TOPIC,
    StreamHeaderKey,
)
from nvflare.private.defs import CellMessageHeaderKeys

CHANNEL = "databazaar"
ASK, ANSWER, HERE = "ask", "answer", "here"
NUMBER, CODE, SECONDS = "databazaar.number", "databazaar.code", "databazaar.seconds"
PACKED, UNPACKS = "databazaar.packed", "databazaar.unpacks"
SERVER = "server"

SMALL = 64 * 1024
"""Bytes of a frame that carries no answer."""
LARGEST = STREAM_CHUNK_SIZE + 2 * SMALL
"""Bytes of any frame: one chunk of an answer, and its header."""
UNREGISTERED_BYTES = 4 * SMALL
"""What a connection may send in all before its provider is registered."""

_PREFIX = struct.Struct(">IHBBHHHH")
_APP = 1
_HELLO_BYTES = 4096
_UPKEEP = {
    (CellChannel.SERVER_MAIN, CellChannelTopic.Challenge),
    (CellChannel.SERVER_MAIN, CellChannelTopic.Register),
    (CellChannel.SERVER_MAIN, CellChannelTopic.Quit),
    (CellChannel.SERVER_MAIN, CellChannelTopic.HEART_BEAT),
    (CellChannel.CELLNET, CellChannelTopic.Bye),
}
_STREAM_UPKEEP = {(STREAM_CHANNEL, STREAM_ACK_TOPIC), (STREAM_CHANNEL, STREAM_ERROR_TOPIC)}
_NEVER = (MessageHeaderKey.SECURE, MessageHeaderKey.ENCRYPTED, MessageHeaderKey.SERVER_TRANSIT_REQUIRED)

log = logging.getLogger(__name__)


class UnwelcomeError(Exception):
    """This connection is to be closed; the text says why."""


class Verdict(Enum):
    """What becomes of a frame."""

    DROP = auto()
    """It is forgotten, and the connection goes on."""
    CHATTER = auto()
    """FLARE may have it."""
    ANSWER = auto()
    """FLARE may have it, and it is a piece of an answer that somebody waits for."""


def _nobody(*_: object) -> bool:
    return False


@dataclass
class House:
    """What the server knows of its guests. As long as nobody has told it, they may do no more than register."""

    registered: Callable[[str], bool] = _nobody
    revoked: Callable[[str], bool] = _nobody
    expects: Callable[[str, object], bool] = _nobody
    """Does anybody wait for this provider's answer to the question of this number, or for it to be done with it?"""
    sends: Callable[[str, object], bool] = _nobody
    """Is this stream a question on its way to this provider? Their numbers are easily guessed."""
    awaits: Callable[[object], bool] = _nobody
    """Does anybody wait for a reply to the request of this number?"""


@dataclass
class Guest:
    """One connection, under the name in its certificate."""

    name: str
    house: House
    greeted: bool = False
    spent: int = field(default=0)

    def judge(self, frame: bytes) -> Verdict:
        """What becomes of this frame; raises UnwelcomeError where the connection must end."""
        if self.house.revoked(self.name):
            raise UnwelcomeError("it is revoked")
        if not _PREFIX.size <= len(frame) <= LARGEST:
            raise UnwelcomeError("a frame is over the size limit or has no prefix")
        if self.house.registered(self.name):
            self.spent = 0
        else:
            self.spent += len(frame)
            if self.spent > UNREGISTERED_BYTES:
                raise UnwelcomeError("it sends much and does not register")
        length, head, kind, _, _, app, _, _ = _PREFIX.unpack_from(frame)
        start = _PREFIX.size + head
        if length != len(frame) or start > length:
            raise UnwelcomeError("a frame lies about its length")
        if kind == Types.HELLO:
            return self._hello(frame[start:] if not head else b"")
        if not self.greeted:
            raise UnwelcomeError("it did not say who it is")
        if kind in (Types.PING, Types.PONG) and length <= _HELLO_BYTES:
            return Verdict.CHATTER
        if kind != Types.DATA or app != _APP:
            raise UnwelcomeError(f"a frame is of kind {kind}")
        return self._data(_headers(frame[_PREFIX.size : start]), length)

    def _hello(self, payload: bytes) -> Verdict:
        claimed = _headers(payload[: _HELLO_BYTES + 1]) if len(payload) <= _HELLO_BYTES else {}
        name = claimed.get(HandshakeKeys.ENDPOINT_NAME)
        if self.greeted or name != self.name:
            raise UnwelcomeError(f"authenticated as {self.name!r} but claimed endpoint {str(name)[:100]!r}")
        self.greeted = True
        return Verdict.CHATTER

    def _data(self, headers: dict[str, Any], length: int) -> Verdict:
        get = headers.get
        where = get(MessageHeaderKey.CHANNEL), get(MessageHeaderKey.TOPIC)
        if (why := self._forged(headers)) is not None:
            return self._refuse(f"{why} {where}")
        if get(MessageHeaderKey.MSG_TYPE) == MessageType.REPLY:
            return Verdict.CHATTER if self.house.awaits(get(MessageHeaderKey.REQ_ID)) else Verdict.DROP
        if get(MessageHeaderKey.MSG_TYPE) != MessageType.REQ or not all(isinstance(part, str) for part in where):
            return self._refuse("that is no request")
        registered = self.house.registered(self.name)
        if registered and where == (STREAM_CHANNEL, STREAM_DATA_TOPIC) and get(StreamHeaderKey.CHANNEL) == CHANNEL:
            if get(StreamHeaderKey.TOPIC) == ANSWER:
                return Verdict.ANSWER if self.house.expects(self.name, get(NUMBER)) else Verdict.DROP
            if get(StreamHeaderKey.TOPIC) == HERE:
                return self._small(length)
        if where in _UPKEEP:
            return self._small(length)
        if where in _STREAM_UPKEEP:
            own = registered and self.house.sends(self.name, get(StreamHeaderKey.STREAM_ID))
            return self._small(length) if own else Verdict.DROP
        return self._refuse(f"that is not for providers: {where}")

    def _forged(self, headers: dict[str, Any]) -> str | None:
        """What in these headers is not this guest's to say; FLARE would believe all of it."""
        for key in (MessageHeaderKey.ORIGIN, MessageHeaderKey.FROM_CELL):
            if headers.get(key) != self.name:
                return f"in the name of {str(headers.get(key))[:100]!r}:"
        if headers.get(CellMessageHeaderKeys.CLIENT_NAME, self.name) != self.name:
            return "with another's registration:"
        for key in (MessageHeaderKey.DESTINATION, MessageHeaderKey.TO_CELL):
            if headers.get(key) != SERVER:
                return f"to {str(headers.get(key))[:100]!r}:"
        match headers.get(MessageHeaderKey.ROUTE):
            case [[name, float() | int()]] if name == self.name:
                pass
            case _:
                return "by another route:"
        if MessageHeaderKey.CONN_URL in headers or any(headers.get(key) for key in _NEVER):
            return "with what no provider needs:"
        return None

    def _small(self, length: int) -> Verdict:
        if length > SMALL:
            raise UnwelcomeError("a message that is no answer is over the size limit")
        return Verdict.CHATTER

    def _refuse(self, what: str) -> Verdict:
        log.warning("refused a message of %s %s", self.name, what[:300])
        return Verdict.DROP


def _headers(packed: bytes) -> dict[str, Any]:
    """FLARE's header, and nothing of it is trusted: a flat reading of at most 64 kB of msgpack."""
    try:
        found = msgpack.unpackb(packed)
    except Exception:  # whatever msgpack makes of these bytes, they are no header
        raise UnwelcomeError("a frame's header is not valid") from None
    if not isinstance(found, dict):
        raise UnwelcomeError("a frame's header is not valid")
    return found
