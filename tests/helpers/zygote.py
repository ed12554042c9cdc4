"""Starts Python programs in real processes without paying torch's import each time: imports all, then forks on request.

Requests come as packets of JSON on a socket, each with four files: standard input, output and error of the new process,
and a channel. The channel tells the id of the process and, once that has ended, its exit code (minus the signal that
killed it); signals for the process are read from it. `processes.Forked` is the other end. Several workers of the tests
may be connected, and the zygote ends when none is any more.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import inspect
import io
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
import weakref
from collections.abc import Callable, Sequence
from multiprocessing import connection, forkserver, util
from pathlib import Path
from types import ModuleType
from typing import Any

from undrawn import undraw

LOADED = (
    "databazaar.cli.app",
    "databazaar.cli.federation_demo",
    "databazaar.cli.enrolment",
    "databazaar.cli.play",
    "databazaar.cli.server",
    "databazaar.config.check",
    "databazaar.engines.stacks",
    "databazaar.service.hub.frozen",
    "databazaar.service.hub.runner",
    "databazaar.service.hub.settlement",
    "databazaar.service.notary.responder",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
    "numba",
    "pandas",
    "pyarrow.parquet",
    "safetensors.numpy",
    "sqlalchemy.dialects.sqlite",
    "torch",
)
Request = dict[str, Any]
EVERY_WARNING = ("error", None, Warning, None, 0)
"""The filter that PYTHONWARNINGS=error stands for; the zygote itself is started so."""


def serve(listener: socket.socket, prepare: Callable[[Request], None] = lambda request: None) -> None:
    """Forks a process for each request until nobody is connected. `prepare` is called in each, before it runs."""
    controls = [listener.accept()[0]]
    channels: dict[int, socket.socket] = {}
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    controls[0].send(b"ready")
    while controls:
        watched: list[Any] = [listener, *controls, woken, *channels.values()]
        readable = select.select(watched, [], [])[0]
        if woken in readable:
            os.read(woken, 4096)
        for pid, channel in list(channels.items()):
            if channel in readable and not _pass_on(channel, pid):
                channels.pop(pid).close()
            elif os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                _, status = os.waitpid(pid, 0)
                with contextlib.suppress(OSError):
                    channel.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
                channels.pop(pid).close()
        if listener in readable:
            controls.append(listener.accept()[0])
            controls[-1].send(b"ready")
        for control in [one for one in controls if one in readable]:
            packet, files, _, _ = socket.recv_fds(control, 2**20, 4)
            if not packet:
                controls.remove(control)
                control.close()
                continue
            channel = socket.socket(fileno=files.pop())
            pid = os.fork()
            if pid == 0:
                for other in (listener, *controls, channel, *channels.values()):
                    other.close()
                _live(json.loads(packet), files, prepare)
            channels[pid] = channel
            channel.sendall(f"{pid}\n".encode())
            for file in files:
                os.close(file)
    for pid in channels:
        os.kill(pid, signal.SIGKILL)
    listener.close()


def _pass_on(channel: socket.socket, pid: int) -> bool:
    """Sends the signals on that were asked for; False where nobody listens any more, which ends the process."""
    try:
        asked = channel.recv(4096).decode().split()
    except OSError:
        asked = []
    for number in asked or [str(int(signal.SIGKILL))]:
        os.kill(pid, int(number))
    if not asked:
        os.waitpid(pid, 0)
    return bool(asked)


def _live(request: Request, files: Sequence[int], prepare: Callable[[Request], None]) -> None:
    """The life of a new process."""
    end_as_python_does(lambda: _program(request, files, prepare))


def _program(request: Request, files: Sequence[int], prepare: Callable[[Request], None]) -> None:
    """Makes it what a fresh interpreter would be, and runs what was asked for."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream, file in enumerate(files):
        os.dup2(file, stream)
    os.closerange(3, 4096)
    if request["session"]:
        os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    tempfile.tempdir = None
    _open_streams()
    if os.environ.get("PYTHONWARNINGS") != "error" and EVERY_WARNING in warnings.filters:
        warnings.filters.remove(EVERY_WARNING)  # type: ignore[attr-defined]
    subprocess.Popen = ForkedHere  # type: ignore[misc]
    prepare(request)
    if not request["draws"]:
        undraw()
    if request["serves"]:
        _have_forkserver()
    run(request["args"])


def _open_streams() -> None:
    """Python's own for the files that are there now."""
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), "utf-8")  # type: ignore[misc]
    for number, name, errors in ((1, "stdout", "strict"), (2, "stderr", "backslashreplace")):
        file = io.FileIO(number, "w", closefd=False)
        raw = file if unbuffered else io.BufferedWriter(file)
        eager = name == "stderr" or os.isatty(number)
        stream = io.TextIOWrapper(raw, "utf-8", errors, line_buffering=eager, write_through=unbuffered)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def run(args: Sequence[str]) -> None:
    """What the interpreter does with these arguments: `python -m module …`, `python -c code …`, `python script …`, or a
    script that is executable."""
    given = list(args)
    if given[0] == sys.executable:
        del given[0]
    while given[0] == "-W":
        warnings.simplefilter(given[1])  # type: ignore[arg-type]
        del given[:2]
    first = given[0]
    if first in ("-m", "-c"):
        sys.path[0] = "" if first == "-c" else str(Path.cwd())
    else:
        sys.path[0] = str(Path(first).resolve().parent)
    sys.path[1:1] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if first == "-m":
        sys.argv = given[1:]
        sys.modules.pop(given[1], None)
        runpy.run_module(given[1], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv = ["-c", *given[2:]]
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(given[1], "<string>", "exec"), main.__dict__)
    else:
        sys.argv = given
        runpy.run_path(first, run_name="__main__")


def end_as_python_does(program: Callable[[], None]) -> None:
    """Runs it and ends the process, as the interpreter does: threads are waited for, what is left is cleared."""
    code = 1
    try:
        program()
        code = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        else:
            code = int(end.code or 0)
    except KeyboardInterrupt:
        traceback.print_exc()
        code = -signal.SIGINT
    except BaseException:
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)


class ForkedHere(subprocess.Popen[Any]):
    """In the place of subprocess.Popen in a process that was forked: what would start `bazaar` is forked once more."""

    _by_name = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]

    def _execute_child(self, *given: Any) -> None:
        named = self._by_name.bind(self, *given).arguments
        args = [os.fspath(one) for one in named["args"]] if not isinstance(named["args"], str | bytes) else []
        if args[:3] != [sys.executable, "-m", "databazaar"] or named["pass_fds"]:
            super()._execute_child(*given)  # type: ignore[misc]
            return
        stdio = [named["p2cread"], named["c2pwrite"], named["errwrite"]]
        self.pid = os.fork()
        if self.pid == 0:
            files = [os.dup(place if file == -1 else file) for place, file in enumerate(stdio)]
            env = dict(named["env"] or os.environ)
            cwd = os.fspath(named["cwd"] or Path.cwd())
            asked = {"args": args, "cwd": cwd, "env": env, "session": named["start_new_session"]}
            _live({**asked, "serves": False, "draws": True}, files, _forget_the_parent)
        self._child_created = True
        self._close_pipe_fds(*(named[n] for n in PIPES))  # type: ignore[attr-defined]


def _forget_the_parent(_: Request) -> None:
    """What the parent clears at its end, such as its temporary folders, is not this process's to clear."""
    finalize: Any = weakref.finalize
    finalize._registry.clear()
    finalize._registered_with_atexit = False
    atexit._clear()
    atexit.register(util._exit_function)  # type: ignore[attr-defined]


PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")


def new_address() -> str:
    """Where a server that multiprocessing talks to can listen."""
    made: str = vars(connection)["arbitrary_address"]("AF_UNIX")
    return made


def _have_forkserver() -> None:
    """Gives this process the server that multiprocessing would start, forked too: everything is loaded in it."""
    server: Any = forkserver._forkserver
    listener = socket.socket(socket.AF_UNIX)
    address = new_address()
    listener.bind(address)
    listener.listen()
    alive, held = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(held)
        end_as_python_does(lambda: forkserver.main(listener.detach(), alive, [], sys_path=list(sys.path)))
    os.close(alive)
    listener.close()
    server._forkserver_address, server._forkserver_alive_fd, server._forkserver_pid = address, held, pid


def load() -> None:
    for name in LOADED:
        importlib.import_module(name)
    loaded: Any = sys.modules
    loaded["torch"].set_num_threads(1)
    loaded["databazaar.market.purchase"].SINGLES = 1  # as in the tests' own process: see tests/conftest.py


if __name__ == "__main__":
    load()
    serve(socket.socket(fileno=int(sys.argv[1])))
