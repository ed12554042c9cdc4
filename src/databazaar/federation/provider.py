"""The provider's end of the connection: one stream to the market's server, and a handler from bytes to bytes.

The handler is code that the provider installed; nothing that the server sends is ever run. A kit is for one place at a
time. On one machine a second process is stopped; elsewhere two of one name replace each other at the server again and
again, and a provider notices how often it is replaced.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from databazaar.errors import BazaarError
from databazaar.federation.enrolment import load_kit
from databazaar.federation.frames import MAX_BYTES, PIECE, Body, ChunkAssembler, WireError, decode_frame
from databazaar.federation.renewal import kit_warning
from databazaar.federation.tls import open_channel
from databazaar.federation.transport import Lost
from databazaar.federation.wire import REPLACED, SERVICE, Outbox, body_frames, grpc

Handler = Callable[[Body], Body]
"""Takes a question, which is the memory in which it came down where it is large, and returns the answer."""
_WAITING = 8
_FIRST_PAUSE, _STEADY = 1.0, 60.0
"""Seconds until a lost connection is tried again at first, and after which a connection counts as a good one."""
_OFTEN, _MINUTES = 3, 10
log = logging.getLogger(__name__)


class ServerStream:
    """One connection to the server: what goes up, and the questions that are still open."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.open: set[str] = set()
        """The numbers of the questions whose answers are still wanted."""

    def send_answer(self, number: str, code: str, reply: Body) -> None:
        """Piece by piece, no faster than gRPC sends them, and no further once the question is over."""
        header = {"op": "answer", "number": number, "code": code}
        for _, frame in body_frames(header, reply):
            if number not in self.open or not self.outbox.put(frame):
                return
        if len(reply) > PIECE:
            log.info("an answer of %.1f MB is sent", len(reply) / 1e6)


Question = tuple[ServerStream, str, float, Body]


class Waiting:
    """The questions that wait for an answer. The latest count: when there are too many of them, or too many bytes, the
    oldest are dropped, so that memory stays bounded. None says that no more will come."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._questions: deque[Question | None] = deque()
        self._change = threading.Condition()

    def put(self, question: Question | None) -> None:
        with self._change:
            self._questions.append(question)
            held = sum(len(waiting[3]) for waiting in self._questions if waiting is not None)
            while len(self._questions) > 1 and (len(self._questions) > self._most or held > self._most_bytes):
                gone = self._questions.popleft()
                held -= 0 if gone is None else len(gone[3])
            self._change.notify()

    def get(self) -> Question | None:
        with self._change:
            self._change.wait_for(lambda: bool(self._questions))
            return self._questions.popleft()


class Incoming:
    """Large questions that are on their way: never more bytes announced than may be, or the oldest are let go."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._landings: dict[str, ChunkAssembler] = {}

    def add(self, number: str, at: int, size: int, piece: Body) -> Body | None:
        """The question once all of it is here; `at` is where the piece begins."""
        if at == 0 and size == len(piece):
            return piece
        if at == 0:
            self._landings[number] = ChunkAssembler(size)
            while sum(landing.size for landing in self._landings.values()) > self._most_bytes:
                self.drop(next(iter(self._landings)))
        if number not in self._landings:
            return None
        try:
            complete = self._landings[number].add(piece)
        except OverflowError:
            self.drop(number)
            return None
        if not complete:
            return None
        log.info("a question of %.1f MB has come", size / 1e6)
        return self._landings.pop(number).body

    def drop(self, number: str) -> None:
        """No more of this question will come."""
        if (found := self._landings.pop(number, None)) is not None:
            log.warning(
                "a question was lost after %d of %d bytes; the market may ask again", found.received, found.size
            )


class ProviderNode:
    """A provider's end of the connection, as a context manager. Questions are answered in order, `at_once` at a time;
    where that is more than one, the handler is called from as many threads. A connection that is lost is made again,
    after a pause that grows."""

    def __init__(
        self, kit: Path, handler: Handler, max_bytes: int = MAX_BYTES, longest_pause: float = 30.0, at_once: int = 1
    ) -> None:
        self.kit = load_kit(kit)
        self.connected = threading.Event()
        self._handler = handler
        self._max_bytes = max_bytes
        self._longest_pause = longest_pause
        self._questions = Waiting(max(_WAITING, 2 * at_once), 2 * max_bytes)
        self._replaced: deque[float] = deque(maxlen=_OFTEN)
        self._stopping = threading.Event()
        self._call: Any = None
        self._threads = [
            threading.Thread(target=self._keep_connected, name="connection", daemon=True),
            *(threading.Thread(target=self._work, name="handler", daemon=True) for _ in range(at_once)),
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for _handler in self._threads[1:]:
            self._questions.put(None)
        if self._call is not None:
            self._call.cancel()
        self._threads[0].join(5.0)

    def _keep_connected(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            began, why = time.monotonic(), ""
            try:
                why = self._one_connection()
            except BazaarError as error:
                why = str(error)
            except Exception:
                log.exception("the connection to %s failed", self.kit.market)
            self.connected.clear()
            pause = _FIRST_PAUSE if time.monotonic() - began > _STEADY else min(2 * pause, self._longest_pause)
            if not self._stopping.is_set():
                log.warning("%s; next try in %g s", why or f"the connection to {self.kit.market} is lost", pause)
            self._stopping.wait(pause)

    def _one_connection(self) -> str:
        """Joins, and answers until the connection ends; returns why it did."""
        if warning := kit_warning(self.kit.folder):
            log.warning("%s", warning)
        stream, incoming = ServerStream(), Incoming(2 * self._max_bytes)
        with open_channel(self.kit) as channel:
            self._call = channel.stream_stream(f"/{SERVICE}/Join")(stream.outbox)
            try:
                if self._stopping.is_set():
                    return ""
                for message in self._call:
                    self._hear(stream, incoming, message)
                    del message  # or it would be held until the next one comes
            except WireError as wrong:
                return f"{self.kit.market} sends what cannot be read ({wrong})"
            except grpc.RpcError as error:
                return self._lost(error)
            finally:
                stream.open.clear()
                stream.outbox.close()
                self._call.cancel()
        return ""

    def _lost(self, error: Any) -> str:
        why = str(error.details())[:200]
        if error.code() is grpc.StatusCode.PERMISSION_DENIED:
            return f"{self.kit.market} does not let us in: {why}"
        if why == REPLACED and self.often_replaced(time.monotonic()):
            log.warning(
                "%s lets us in and puts us out again and again: if the network is sound, somebody answers with a copy "
                "of this kit; ask the operator who is connected, and to revoke the name",
                self.kit.market,
            )
        return f"the connection to {self.kit.market} is lost: {why}"

    def often_replaced(self, now: float) -> bool:
        """Notes that another connection took our place; whether so often that a copy of the kit may be in use."""
        self._replaced.append(now)
        return len(self._replaced) == _OFTEN and now - self._replaced[0] < 60 * _MINUTES

    def _hear(self, stream: ServerStream, incoming: Incoming, message: bytes) -> None:
        header, piece = decode_frame(message)
        number = str(header.get("number"))
        match header.get("op"):
            case "welcome":
                self.connected.set()
            case "over":
                stream.open.discard(number)
                incoming.drop(number)
            case "ask":
                at, size, seconds = (header.get(key) for key in ("at", "size", "seconds"))
                if not isinstance(at, int) or not isinstance(size, int) or not isinstance(seconds, float | int):
                    raise WireError("a question without a size or a deadline")
                if at == 0:
                    stream.open.add(number)
                whole = incoming.add(number, at, size, bytes(piece))
                if whole is not None:
                    self._questions.put((stream, number, time.monotonic() + seconds, whole))
            case _:
                raise WireError("neither a question nor the end of one")

    def _work(self) -> None:
        while self._answer_next():
            pass

    def _answer_next(self) -> bool:
        """Waits for a question and answers it; nothing of the two is held after that. False where there are no more."""
        if (question := self._questions.get()) is None:
            return False
        stream, number, until, payload = question
        if time.monotonic() >= until or number not in stream.open:
            return True
        try:
            reply = self._handler(payload)
            code, reply = (Lost.TOO_LARGE, b"") if len(reply) > self._max_bytes else ("", reply)
        except Exception:
            log.exception("the handler failed; the market hears only %r", str(Lost.PROVIDER_ERROR))
            code, reply = Lost.PROVIDER_ERROR, b""
        del question, payload
        stream.send_answer(number, code, reply)
        return True


def only_copy(key: Path) -> socket.socket:
    """Holds the key's name on this machine until it is closed: a copy of the kit is the same provider. Where names like
    these are not known, as on other systems than Linux, nothing is held."""
    held = socket.socket(socket.AF_UNIX)
    try:
        held.bind(b"\0databazaar-kit-" + hashlib.sha256(key.read_bytes()).hexdigest().encode())
    except OSError as reason:
        if reason.errno == errno.EADDRINUSE:
            held.close()
            raise BazaarError(
                f"another process answers with a copy of {key.parent.parent}: stop it first; if it is not yours, the "
                "key is stolen, and the operator should revoke it"
            ) from None
    return held
