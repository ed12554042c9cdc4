"""A provider's end of the stream without our code behind it: it has a real certificate, and says what tests want."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from databazaar.federation.enrolment import load_kit
from databazaar.federation.frames import Header, decode_frame, encode_frame
from databazaar.federation.tls import open_channel
from databazaar.federation.wire import SERVICE, Outbox, grpc


class RawProvider:
    """One stream to the server. Nothing is read of it but what a test reads."""

    def __init__(self, kit: Path) -> None:
        self.kit = load_kit(kit)
        self._outbox = Outbox()
        self._channel = open_channel(self.kit)
        self._call = self._channel.stream_stream(f"/{SERVICE}/Join")(self._outbox)
        self.ended = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._outbox.close()
        self._call.cancel()
        self._channel.close()

    def send(self, header: Header, piece: bytes = b"") -> bool:
        return self.send_raw(encode_frame(header, piece))

    def send_raw(self, message: bytes, seconds: float = 20.0) -> bool:
        """False where the server takes no more."""
        return self._call.is_active() and self._outbox.put(message, seconds)

    def answer(self, number: str, body: bytes, **more: Any) -> bool:
        """A piece of an answer; all of it, unless `more` says otherwise."""
        return self.send({"op": "answer", "number": number, "size": len(body), "code": "", "at": 0, **more}, body)

    def receive(self) -> tuple[Header, bytes]:
        """The next frame; ConnectionError once the stream has ended, and `ended` says why."""
        try:
            header, piece = decode_frame(next(self._call))
        except StopIteration:
            raise ConnectionError("closed") from None
        except grpc.RpcError as error:
            self.ended = str(error.details())
            raise ConnectionError(self.ended) from None
        return header, bytes(piece)

    def question(self) -> tuple[str, bytes]:
        """The next question's number and its text, read to its end."""
        text = bytearray()
        while True:
            header, piece = self.receive()
            if header["op"] == "ask":
                text += piece
                if len(text) == header["size"]:
                    return header["number"], bytes(text)

    def closed(self, seconds: float = 20.0) -> bool:
        """Does the server end the stream?"""

        def read() -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    self.receive()

        reading = threading.Thread(target=read, daemon=True)
        reading.start()
        reading.join(seconds)
        return not reading.is_alive()


@contextlib.contextmanager
def joined(kit: Path) -> Iterator[RawProvider]:
    """Connected, and welcome."""
    with RawProvider(kit) as provider:
        assert provider.receive()[0] == {"op": "welcome"}
        yield provider


class ServerMemory:
    """What the market's server holds, and the most that it has held since this was made; in bytes."""

    def __init__(self, market: Path) -> None:
        self._folder = Path("/proc") / (market / "server.lock").read_text()
        (self._folder / "clear_refs").write_text("5")
        self.at_first = self._read("VmRSS")

    @property
    def grown(self) -> int:
        return self._read("VmHWM") - self.at_first

    def _read(self, name: str) -> int:
        lines = (self._folder / "status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))
