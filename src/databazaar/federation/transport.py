"""The seam: ask providers by name, get bytes back, by a deadline."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, cast

from databazaar.errors import BazaarError
from databazaar.federation.exchange import Failures, Lost, Replies, Watch
from databazaar.federation.frames import Channel, ClosedError, Header
from databazaar.federation.payloads import Landing, Transfer, log

_GRACE = 5.0
_SILENCE = 30.0
"""Seconds without a word of the server, which says every second how asks stand, until it is taken to be gone."""


def _log(transfers: Mapping[str, Transfer]) -> None:
    for name, transfer in transfers.items():
        log.info("%s: %s", name, transfer)


class Transport(Protocol):
    """What the arbiter's side needs of a network."""

    def request(self, names: Sequence[str], payload: bytes, timeout: float) -> tuple[Replies, Failures]:
        """Ask each name once. Every name comes back either with its reply or with the reason why there is none, which
        may be that `timeout` seconds have passed since it was asked. It may wait for its turn before."""
        ...

    def connected(self) -> list[str]:
        """Who could be asked now."""
        ...

    def wait_for(self, names: Sequence[str], timeout: float) -> list[str]:
        """Wait until all `names` are connected; returns those that are not when the time is up."""
        ...

    def close(self) -> None:
        """Let go of the network."""
        ...


class LocalTransport(Transport):
    """Handlers in this process, for tests and for a market at home."""

    def __init__(self, handlers: Mapping[str, Callable[[bytes], bytes]]) -> None:
        self._handlers = handlers

    def request(self, names: Sequence[str], payload: bytes, timeout: float) -> tuple[Replies, Failures]:
        replies: Replies = {}
        failures: Failures = {}
        for name in dict.fromkeys(names):
            if name not in self._handlers:
                failures[name] = Lost.NOT_CONNECTED
                continue
            try:
                replies[name] = self._handlers[name](payload)
            except Exception:
                failures[name] = Lost.PROVIDER_ERROR
        return replies, failures

    def connected(self) -> list[str]:
        return sorted(self._handlers)

    def wait_for(self, names: Sequence[str], timeout: float) -> list[str]:
        return sorted(set(names) - set(self._handlers))  # nobody joins later: there is nothing to wait for

    def close(self) -> None:
        pass


class FlareTransport(Transport):
    """The providers connected to a market's FLARE server on this machine.

    Opening it takes no time to speak of: there is no FLARE job behind it. A request that finds the
    server gone raises `BazaarError`, and the one after it connects anew. For one thread at a time.

    `consumer` is for whom it asks: where several ask the same provider, consumers take turns. Without one, it is this
    process. A deadline runs from when a provider is asked, so a request may take longer than that; for a large
    question or answer, from when a piece of it last moved. `watch` hears how far such have come; without it, the log
    does. A large reply is the memory in which it came down, not bytes. With `pack`, large questions and answers are
    compressed between the server and providers that can unpack them.
    """

    def __init__(self, folder: Path, consumer: str = "", watch: Watch | None = None, pack: bool = False) -> None:
        self._watch, self._pack = watch or _log, pack
        self._folder = folder
        self._consumer = consumer or f"process {os.getpid()}"
        self._channel: Channel | None = None
        self._numbers = itertools.count(1)

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def request(self, names: Sequence[str], payload: bytes, timeout: float) -> tuple[Replies, Failures]:
        number = next(self._numbers)
        try:
            channel = self._open()
            if len(payload) > channel.max_bytes:
                raise BazaarError(
                    f"a payload of {len(payload)} bytes is over the limit of {channel.max_bytes}: "
                    "start the server with a higher one"
                )
            return self._ask(channel, number, names, payload, timeout)
        except (ClosedError, TimeoutError):
            self.close()
            raise BazaarError(
                f"the server of the market in {self._folder} went away: bring it up again and resume the run"
            ) from None
        except BaseException:
            self.close()  # interrupted half-way: what comes later on this connection belongs to nobody
            raise

    def wait_for(self, names: Sequence[str], timeout: float) -> list[str]:
        until = time.monotonic() + timeout
        while missing := sorted(set(names) - set(self.connected())):
            if time.monotonic() > until:
                return missing
            time.sleep(0.1)
        return []

    def connected(self) -> list[str]:
        channel = self._open()
        try:
            channel.settimeout(_GRACE)
            channel.send({"op": "status"})
            header, _ = channel.receive()
        except (ClosedError, TimeoutError):
            self.close()
            raise BazaarError(f"the server of the market in {self._folder} went away: bring it up again") from None
        return [str(name) for name in header["connected"]]

    def _ask(
        self, channel: Channel, number: int, names: Sequence[str], payload: bytes, timeout: float
    ) -> tuple[Replies, Failures]:
        asked = list(dict.fromkeys(names))
        replies: Replies = {}
        landings: dict[str, Landing] = {}
        channel.settimeout(_SILENCE)
        request: Header = {
            "op": "request",
            "id": number,
            "names": asked,
            "timeout": timeout,
            "consumer": self._consumer,
            "pack": self._pack,
        }
        channel.send(request, payload)
        while True:
            header, body = channel.receive()
            if header.get("id") != number:
                raise ClosedError("an answer to another request")
            match header["op"]:
                case "done":
                    failures = {str(name): Lost(code) for name, code in header["failures"].items()}
                    return {name: reply for name, reply in replies.items() if name not in failures}, failures
                case "reply":
                    replies[str(header["name"])] = body
                case "piece":
                    name = str(header["name"])
                    landing = landings.setdefault(name, Landing(int(header["size"])))
                    if landing.add(body):
                        replies[name] = cast("bytes", landings.pop(name).body)
                case "transfers":
                    self._watch({str(name): Transfer(**one) for name, one in header["transfers"].items()})

    def _open(self) -> Channel:
        from databazaar.federation import server

        if self._channel is None:
            self._channel = server.connect(self._folder)
        return self._channel

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
