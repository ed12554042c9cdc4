"""The tiers of the tests: a unit test, as each is that is not marked, starts no process and opens no socket."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from multiprocessing import util
from typing import Any

import pytest

MARKS = ("process", "browser")
STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec"}
OPENS = {"socket.connect", "socket.bind"}
REFUSED = STARTS | OPENS
"""Events that Python's own audit tells of. A pair of sockets, as event loops have, is neither bound nor connected."""
PROBE = ("::1", 0)
"""Where urllib3 binds when it is imported, to see whether there is IPv6."""
_spawn: Any = util.spawnv_passfds


class Tiers:
    """Refuses such a thing to a test without a mark. Threads that were there before the test are not its own."""

    def __init__(self) -> None:
        self._unit: str | None = None
        self._others: set[threading.Thread] = set()
        sys.addaudithook(self._hear)
        vars(util)["spawnv_passfds"] = self._spawn  # multiprocessing starts what the audit does not hear

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in REFUSED or self._unit is None:  # it hears a million events, most of them of other things
            return
        if event in OPENS and (args[0].family == socket.AF_UNIX or args[1] == PROBE):
            return
        if threading.current_thread() not in self._others:
            pytest.fail(f"{self._unit} is a unit test, and does {event}{args!r:.200}: mark it with pytest.mark.process")

    def _spawn(self, *args: Any) -> Any:
        self._hear("os.posix_spawn", args)
        return _spawn(*args)

    @contextmanager
    def _during(self, item: pytest.Item) -> Iterator[None]:
        main = threading.main_thread()
        self._others = {thread for thread in threading.enumerate() if thread is not main}
        self._unit = None if any(map(item.get_closest_marker, MARKS)) else item.nodeid
        try:
            yield
        finally:
            self._unit = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        with self._during(item):
            yield

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        with self._during(item):
            yield
