"""The one way of tests to start `bazaar`, or other Python with torch, in a real process: forked, in milliseconds."""

from __future__ import annotations

import atexit
import contextlib
import functools
import inspect
import json
import os
import secrets
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import zygote

BAZAAR = str(Path(sys.executable).with_name("bazaar"))
ENVIRONMENT = {"PYTHONWARNINGS": "error", "ARROW_DEFAULT_MEMORY_POOL": "system"}
"""Of the zygote: what is read when a module is loaded, and must be as for the processes that it forks."""
PATIENCE = 300.0
"""Seconds after which a command will not end any more, also on a busy machine."""


SHARED = Path(os.environ.setdefault("TESTS_ZYGOTE", f"{tempfile.gettempdir()}/zygote-{secrets.token_hex(8)}"))
"""Where the one of a run of the tests listens: pytest's workers inherit it from the process that starts them."""


class Zygote:
    """The process that has everything imported and forks others: the one that listens at an address, or a new one."""

    def __init__(self, *command: str | Path, env: dict[str, str] | None = None, address: Path | None = None) -> None:
        self._address = address or SHARED.with_suffix(f".{secrets.token_hex(8)}")
        self._process: subprocess.Popen[bytes] | None = None
        self._control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._control.connect(str(self._address))
        except (FileNotFoundError, ConnectionRefusedError) as nobody:
            if isinstance(nobody, ConnectionRefusedError):
                self._address.unlink(missing_ok=True)  # who listened there has died
            self._start(command or (zygote.__file__,), env or {})
        assert self._control.recv(16) == b"ready", "the zygote did not start"

    def _start(self, command: Sequence[str | Path], env: dict[str, str]) -> None:
        """Listens before the address is there: others may connect while it loads, and only one of them starts it."""
        draft = Path(f"{self._address}.{os.getpid()}")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(draft))
            listener.listen()
            first = False
            with contextlib.suppress(FileExistsError):
                self._address.hardlink_to(draft)
                first = True
            draft.unlink()
            self._control.connect(str(self._address))
            if first:
                self._process = subprocess.Popen(
                    [sys.executable, *command, str(listener.fileno())],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[listener.fileno()],
                    env={**os.environ, **ENVIRONMENT, **env},
                )

    def fork(self, request: dict[str, Any], files: Sequence[int]) -> None:
        socket.send_fds(self._control, [json.dumps(request).encode()], list(files))

    def close(self) -> None:
        """It ends when nobody is connected any more."""
        self._control.close()
        if self._process:
            self._address.unlink(missing_ok=True)
            try:
                self._process.wait(0 if self._address == SHARED else 60)
            except subprocess.TimeoutExpired:
                self._process.returncode = 0  # others are connected: it is theirs now


@functools.cache
def shared_zygote() -> Zygote:
    """The one of this run of the tests, started by whichever worker wants it first."""
    joined = Zygote(address=SHARED)
    atexit.register(joined.close)
    return joined


class Forked(subprocess.Popen[Any]):
    """A subprocess.Popen that is forked from a zygote. `args` are those of Python, or a script; there is no shell.

    With `serves` it is a process that starts others by multiprocessing's server: it has one then, forked too. Its
    reports have drawings only with `draws`. `more` is for a zygote that has a use for it.
    """

    _by_name = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]

    def __init__(
        self,
        args: Sequence[str | Path],
        *,
        serves: bool = False,
        draws: bool = False,
        zygote: Zygote | None = None,
        more: dict[str, Any] | None = None,
        **given: Any,
    ) -> None:
        self._zygote = zygote or shared_zygote()
        self._more = {"serves": serves, "draws": draws, **(more or {})}
        super().__init__(args, **given)

    def _execute_child(self, *given: Any) -> None:
        named = self._by_name.bind(self, *given).arguments
        assert not named["preexec_fn"] and not named["pass_fds"] and not named["shell"]
        sys.audit("subprocess.Popen", *(named[n] for n in ("executable", "args", "cwd", "env")))
        stdio = [named["p2cread"], named["c2pwrite"], named["errwrite"]]
        self._channel, theirs = socket.socketpair()
        request = {
            "args": [os.fspath(one) for one in named["args"]],
            "cwd": os.fspath(named["cwd"] or Path.cwd()),
            "env": dict(os.environ if named["env"] is None else named["env"]),
            "session": named["start_new_session"],
            **self._more,
        }
        with theirs:
            files = [place if file == -1 else file for place, file in enumerate(stdio)]
            self._zygote.fork(request, [*files, theirs.fileno()])
        self.pid = self._told()
        self._child_created = True
        self._close_pipe_fds(*(named[n] for n in zygote.PIPES))  # type: ignore[attr-defined]

    def _told(self) -> int:
        line = bytearray()
        while not line.endswith(b"\n"):
            piece = self._channel.recv(1)
            assert piece, "the zygote has ended"
            line += piece
        return int(line)

    def _internal_poll(self, _deadstate: object = None) -> int | None:
        if self.returncode is None and select.select([self._channel], [], [], 0)[0]:
            self._wait(None)
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if self.returncode is None:
            if not select.select([self._channel], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self.returncode = self._told()
            self._channel.close()
        return self.returncode

    def send_signal(self, sig: int) -> None:
        """By the zygote, which knows whether the process is still there."""
        if self.poll() is None:
            self._channel.sendall(f"{int(sig)}\n".encode())


def run(
    args: Sequence[str | Path], *, timeout: float = PATIENCE, text: bool = True, **given: Any
) -> subprocess.CompletedProcess[Any]:
    """As subprocess.run, with what it writes captured."""
    with Forked(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=text, **given) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
        return subprocess.CompletedProcess(args, process.returncode, out, err)


def wait_until(holds: Callable[[], bool], process: subprocess.Popen[Any]) -> None:
    """Until something holds that a process does. It must not end before."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert process.poll() is None, f"{process.args!r} has ended with {process.returncode}"
        assert time.monotonic() < end, "it did not come to hold"
        time.sleep(0.005)


FORKSERVER = """
import socket, sys
from multiprocessing import forkserver
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("ready", flush=True)
forkserver.main(listener.detach(), 0, [])
"""


def fork_the_forkserver() -> None:
    """The server that multiprocessing starts in this process, when it is first wanted, is forked from the zygote. What
    it forks in turn, such as a hub's runners, makes reports without drawings."""
    server: Any = forkserver._forkserver

    def ensure_running() -> None:
        if server._forkserver_address is None:
            sys.audit("os.posix_spawn", sys.executable, ["the fork server"], {})
            address = zygote.new_address()
            search = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            pipes["env"] = {**os.environ, "PYTHONPATH": search}
            process = ensure_running.process = Forked([sys.executable, "-c", FORKSERVER, address], **pipes)  # type: ignore[attr-defined]
            assert process.stdin is not None and process.stdout is not None and process.stdout.readline() == b"ready\n"
            process.stdout.close()
            server._forkserver_address, server._forkserver_alive_fd = address, process.stdin.fileno()

    server.ensure_running = forkserver.ensure_running = ensure_running
