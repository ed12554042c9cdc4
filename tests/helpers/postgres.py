"""A PostgreSQL server of the test's own, which it may crash; and a proxy that cuts a connection in mid-commit."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

BINARIES = [Path("/usr/lib/postgresql/15/bin"), *sorted(Path("/usr/lib/postgresql").glob("*/bin"))]
SOCKET = ".s.PGSQL.5432"


def binaries() -> Path:
    on_path = shutil.which("initdb")
    for folder in [*([Path(on_path).parent] if on_path else []), *BINARIES]:
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    pytest.fail("PostgreSQL's initdb and pg_ctl are not here: install the package `postgresql` to run this test")


class Server:
    """The cluster in a folder, reached over a socket in that folder. fsync is off: only a power cut would tell."""

    def __init__(self, home: Path, settings: str) -> None:
        self.home, self.data = home, home / "data"
        self.settings = f"-k {home} -c listen_addresses= -c fsync=off {settings}"
        self.user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name

    def url(self, role: str = "bazaar", database: str = "postgres", home: Path | None = None) -> str:
        return f"postgresql+psycopg://{role}@/{database}?host={home or self.home}"

    def tool(self, name: str, *args: str) -> str:
        """Runs one of PostgreSQL's programs. It refuses to run as root, so root runs it as somebody else."""
        root = os.geteuid() == 0
        prefix = ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"] if root else []
        command = [*prefix, str((binaries() / "initdb").resolve().with_name(name)), *args]
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=120)
        assert done.returncode == 0, f"{name} failed: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self) -> None:
        log = self.home / "log"
        try:
            self._control("-l", str(log), "-o", self.settings, "start")
        except AssertionError as failed:
            pytest.fail(f"{failed}: {log.read_text()[-2000:]}")

    def stop(self) -> None:
        self._control("-m", "immediate", "stop")

    def _control(self, *args: str) -> None:
        self.tool("pg_ctl", "-D", str(self.data), "-w", *args)

    def wait_for_locks(self) -> None:
        """Until nobody holds a run: the server hears a little later than its client that a connection has ended."""
        held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
        while self.tool("psql", "-h", str(self.home), "-U", "bazaar", "-Atc", held, "postgres").strip() != "0":
            time.sleep(0.02)

    def crash(self) -> None:
        """Kills every process of the server at once, as the kernel would that has run out of memory."""
        main = int((self.data / "postmaster.pid").read_text().split()[0])
        children = [int(pid) for pid in Path(f"/proc/{main}/task/{main}/children").read_text().split()]
        for pid in (main, *children):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while any(Path(f"/proc/{pid}/cmdline").exists() and _alive(pid) for pid in (main, *children)):
            time.sleep(0.02)
        for lock in (self.data / "postmaster.pid", self.home / f"{SOCKET}.lock"):
            lock.unlink()  # where nobody reaps the dead, their numbers look alive


def _alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@contextmanager
def running(settings: str = "") -> Iterator[Server]:
    home = Path(tempfile.mkdtemp(prefix="bazaar-pg-", dir="/tmp"))  # a socket's path must be short
    server = Server(home, settings)
    try:
        if os.geteuid() == 0:
            shutil.chown(home, server.user)
        server.tool("initdb", "-D", str(server.data), "-A", "trust", "-U", "bazaar", "--no-sync")
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(home, ignore_errors=True)


class Cutter:
    """A proxy in front of a server. Once armed it lets the next COMMIT through, or keeps it, and cuts the line before
    the client hears an answer."""

    def __init__(self, server: Server, home: Path) -> None:
        self.server, self.home = server, home
        self.armed = False
        self.lets_through = True
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(home / SOCKET))
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                behind = socket.socket(socket.AF_UNIX)
                behind.connect(str(self.server.home / SOCKET))
                silent, answered = threading.Event(), threading.Event()
                for pump in (self._ask, self._answer):
                    threading.Thread(target=pump, args=(client, behind, silent, answered), daemon=True).start()

    def _ask(
        self, client: socket.socket, behind: socket.socket, silent: threading.Event, answered: threading.Event
    ) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                if self.armed and b"COMMIT" in data:
                    self.armed = False
                    silent.set()
                    if self.lets_through:
                        behind.sendall(data)
                        assert answered.wait(60), "the server does not answer"
                    break
                behind.sendall(data)
        for end in (client, behind):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _answer(
        self, client: socket.socket, behind: socket.socket, silent: threading.Event, answered: threading.Event
    ) -> None:
        with suppress(OSError):
            while data := behind.recv(65536):
                if silent.is_set():
                    answered.set()  # and nobody hears it
                else:
                    client.sendall(data)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
