"""The provider's own process: it holds the data and the handler, and keeps FLARE's client connected.

    python -m databazaar.federation.provider KIT --handler package.module:function

The handler takes bytes and returns bytes. It is code the provider installed; nothing the server sends
is ever run. FLARE's client is a child process that only passes bytes on, and is started again if it ends.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from databazaar.errors import BazaarError
from databazaar.federation.check import stranger
from databazaar.federation.exchange import Lost
from databazaar.federation.frames import MAX_BYTES, Channel, ClosedError, Header
from databazaar.federation.onboarding import Kit, load_kit
from databazaar.federation.payloads import PIECE, Body, Landing, Meter, amount, pieces
from databazaar.federation.processes import start_flare, stop
from databazaar.federation.renewal import kit_warning

Handler = Callable[[Body], Body]
"""Takes a question, which is the memory in which it came down where it is large, and returns the answer."""
_PROGRAM = "nvflare.private.fed.app.client.client_train"
_HEARTBEAT = 2.0
_WAITING = 8
log = logging.getLogger(__name__)


Question = tuple[Channel, str, float, Body]


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
            while len(self._questions) > 1 and self._too_many():
                self._questions.popleft()
            self._change.notify()

    def get(self) -> Question | None:
        with self._change:
            self._change.wait_for(lambda: bool(self._questions))
            return self._questions.popleft()

    def _too_many(self) -> bool:
        held = sum(len(question[3]) for question in self._questions if question is not None)
        return len(self._questions) > self._most or held > self._most_bytes


class Incoming:
    """Large questions that are on their way: never more bytes announced than may be, or the oldest are let go."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._landings: dict[str, tuple[Landing, Meter]] = {}

    def add(self, number: str, size: int, piece: Body) -> Body | None:
        """The question once all of it is here."""
        if number not in self._landings:
            self._landings[number] = Landing(size), Meter("question received", size)
            while sum(landing.size for landing, _ in self._landings.values()) > self._most_bytes:
                self.drop(next(iter(self._landings)))
        if number not in self._landings:
            return None
        landing, meter = self._landings[number]
        try:
            complete = landing.add(piece)
        except OverflowError:
            self.drop(number)
            return None
        meter.moved(landing.received)
        return self._landings.pop(number)[0].body if complete else None

    def drop(self, number: str) -> None:
        """No more of this question will come."""
        if (found := self._landings.pop(number, None)) is not None:
            log.warning(
                "a question was lost after %s; the market may ask again", amount(found[0].received, found[0].size)
            )


class ProviderNode:
    """A provider's end of the connection, as a context manager. Questions are answered in order, `at_once` at a time;
    where that is more than one, the handler is called from as many threads."""

    def __init__(
        self,
        kit: Path,
        handler: Handler,
        max_bytes: int = MAX_BYTES,
        longest_pause: float = 30.0,
        at_once: int = 1,
    ) -> None:
        self.kit = load_kit(kit)
        self.connected = threading.Event()
        self._handler = handler
        self._max_bytes = max_bytes
        self._longest_pause = longest_pause
        self._questions = Waiting(max(_WAITING, 2 * at_once), 2 * max_bytes)
        self._stopping = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._threads = [
            threading.Thread(target=self._keep_connected, name="flare", daemon=True),
            *(threading.Thread(target=self._work, name="handler", daemon=True) for _ in range(at_once)),
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        for _ in self._threads[1:]:
            self._questions.put(None)
        if self._channel is not None:
            self._channel.close()
        if self._child is not None:
            stop(self._child)
        self._threads[0].join(5.0)

    def _keep_connected(self) -> None:
        pause = 1.0
        while not self._stopping.is_set():
            began = time.monotonic()
            self._one_connection()
            pause = 1.0 if time.monotonic() - began > 60.0 else min(2 * pause, self._longest_pause)
            if not self.connected.is_set() and not self._stopping.is_set():
                where = self.kit.folder / "log.txt"
                log.warning("%s let us not in: read %s; next try in %g s", self.kit.market, where, pause)
            self.connected.clear()
            self._stopping.wait(pause)

    def _one_connection(self) -> None:
        if not market_answers(self.kit, self._stopping, self._longest_pause):
            return
        here, there = socket.socketpair()
        with there:
            child = self._child = start_flare(
                _PROGRAM,
                self.kit.folder,
                "fed_client.json",
                [f"uid={self.kit.provider}", f"org={self.kit.provider}", f"heart_beat_interval={_HEARTBEAT}"],
                self._max_bytes,
                {"DATABAZAAR_PROVIDER_FD": str(there.fileno())},
                fds=[there.fileno()],
            )
        channel = self._channel = Channel(here, self._max_bytes)
        incoming = Incoming(2 * self._max_bytes)
        try:
            while True:
                header, body = channel.receive()
                self._hear(channel, incoming, header, body)
                del body  # or it would be held until the next one comes
        except (ClosedError, KeyError, ValueError):
            pass
        finally:
            channel.close()
            stop(child)

    def _hear(self, channel: Channel, incoming: Incoming, header: Header, body: Body) -> None:
        """One word of FLARE's client."""
        match header.get("op"):
            case "connected":
                self.connected.set()
            case "lost":
                incoming.drop(str(header["number"]))
            case "ask":
                number, size = str(header["number"]), header.get("size")
                whole = body if size is None else incoming.add(number, int(size), body)
                if whole is not None:
                    until = time.monotonic() + float(header["seconds"])
                    self._questions.put((channel, number, until, whole))

    def _work(self) -> None:
        while self._answer_next():
            pass

    def _answer_next(self) -> bool:
        """Waits for a question and answers it; nothing of the two is held after that. False where there are no more."""
        if (question := self._questions.get()) is None:
            return False
        channel, number, until, payload = question
        if time.monotonic() >= until:
            return True
        code: str = ""
        reply: Body = b""
        try:
            reply = self._handler(payload)
            if len(reply) > self._max_bytes:
                code, reply = Lost.TOO_LARGE, b""
        except Exception:
            log.exception("the handler failed; the market hears only %r", str(Lost.PROVIDER_ERROR))
            code, reply = Lost.PROVIDER_ERROR, b""
        del question, payload
        with contextlib.suppress(ClosedError):
            send_answer(channel, number, code, reply)
        return True


def send_answer(channel: Channel, number: str, code: str, reply: Body) -> None:
    """To FLARE's client: as a whole, or where it is large piece by piece, no faster than they are sent on."""
    header: Header = {"number": number, "code": code}
    if len(reply) <= PIECE:
        return channel.send(header, reply)
    meter = Meter("answer sent", len(reply))
    for at, piece in pieces(reply):
        channel.send({**header, "size": len(reply)}, piece)
        meter.moved(at + len(piece))
    return None


def market_answers(kit: Kit, ending: threading.Event, pause: float) -> bool:
    """Waits while somebody else answers at the market's address, and says so; False once this process is to end.

    FLARE's client would refuse them too, but tells nobody. A certificate that ends soon is spoken of as well.
    """
    try:
        if warning := kit_warning(kit.folder):
            log.warning("%s", warning)
    except BazaarError as error:
        log.warning("%s", error)
    while not ending.is_set():
        if not (why := stranger(kit)):
            return True
        log.warning("%s", why)
        ending.wait(pause)
    return False


def load_function(name: str, missing: str, wanted: str) -> Callable[..., Any]:
    """`package.module:function` as the provider wrote it on its own command line."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError):
        raise BazaarError(f"{missing}: write module:function of something installed here") from None
    if not callable(found):
        raise BazaarError(f"{name} cannot be called: name a function from {wanted}")
    function: Callable[..., Any] = found
    return function


def load_handler(name: str) -> Handler:
    function = load_function(name, f"no handler {name!r}", "bytes to bytes")
    return lambda payload: function(bytes(payload))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m databazaar.federation.provider")
    parser.add_argument("kit", type=Path)
    parser.add_argument("--handler", required=True, metavar="MODULE:FUNCTION")
    parser.add_argument("--max-bytes", type=int, default=MAX_BYTES)
    given = parser.parse_args(arguments)
    done = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: done.set())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        with ProviderNode(given.kit, load_handler(given.handler), given.max_bytes) as node:
            kit = node.kit
            log.info("%s joins %s at %s:%d", kit.provider, kit.market, kit.host, kit.port)
            done.wait()
    except BazaarError as error:
        log.error("%s", error)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
