"""A hub that answers on a port of this machine, behind a wire that can be cut."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import uvicorn

from databazaar.service import members
from databazaar.service.database.connection import Database
from databazaar.service.http.app import create_app
from databazaar.service.settings import Settings
from web_market import ENDLESS

PATIENCE = 30.0


class Wire:
    """Passes on what goes to a port, until it is cut: then all that is open breaks, and nothing new gets through."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.heads: list[bytes] = []
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._whole = threading.Event()
        self._whole.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    def _start(self, work: Callable[..., None], *given: object) -> None:
        thread = threading.Thread(target=work, args=given, daemon=True)
        self._threads.append(thread)
        thread.start()

    def cut(self) -> None:
        self._whole.clear()
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._whole.set()

    def close(self) -> None:
        self.cut()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join()
        for one in (self._listener, *self._open):
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if not self._whole.is_set():
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self.target))
            self._open += [near, far]
            for source, sink in ((near, far), (far, near)):
                self._start(self._pass_on, source, sink, source is near)

    def _pass_on(self, source: socket.socket, sink: socket.socket, asked: bool) -> None:
        with suppress(OSError):
            while piece := source.recv(65536):
                if asked:
                    self.heads.append(piece[:2000])
                sink.sendall(piece)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def founded(database: Database, _: Settings) -> members.Invitation:
    with database.begin() as session:
        members.create_market(session, "Harbour market", "EUR")
        return members.make_operator(session, "Harbour Exchange", "hub", "olga@hub.example")


class RunningHub:
    """A market named `Harbour market` in euros, and uvicorn in a thread of this process.

    `market` is what `make` has put into the database: by default, the invitation of its operator.
    """

    def __init__(
        self, home: Path, url: str, make: Callable[[Database, Settings], Any] | None = None, *, supervise: bool = False
    ) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.wire = Wire(listener.getsockname()[1])
        self.address = f"http://127.0.0.1:{self.wire.port}"
        self.settings = Settings(home=home, database=url, address=self.address, runners=1)
        self.database = Database(url)
        self.market = (make or founded)(self.database, self.settings)
        app = create_app(self.settings, self.database, supervise=supervise, limits=ENDLESS())
        config = uvicorn.Config(app, log_config=None, lifespan="on", timeout_graceful_shutdown=1, ws="none")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listener]})

    def link(self, secret: str) -> str:
        return f"{self.address}/join#{secret}"

    def __enter__(self) -> RunningHub:
        self._thread.start()
        deadline = time.monotonic() + PATIENCE
        while not self._server.started:
            assert self._thread.is_alive() and time.monotonic() < deadline, "the hub did not start"
            time.sleep(0.02)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.wire.close()
        self._server.should_exit = True
        self._thread.join(PATIENCE)
        self.database.dispose()
        assert not self._thread.is_alive(), "the hub did not stop"
