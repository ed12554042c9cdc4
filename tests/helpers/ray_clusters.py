"""Real clusters of Ray on this machine, what runs in their workers, and what is killed of them."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from databazaar.engines.ray_cluster import OWN_CLUSTER, processors_here

Vector = NDArray[np.floating[Any]]
# Ray gives way to all others by default, and on a busy machine waits for them.
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
WORKERS = min(2, processors_here())
FOR_CLIENTS = {"GRPC_ENABLE_FORK_SUPPORT": "0", "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "120"}
"""What docs/how-to/ray.md says to set where a head starts that is joined by ray://."""


@dataclass(frozen=True)
class Mortal:
    """An oracle that pulls the parameters towards `goal`; where the file is missing, it first writes it and kills."""

    goal: float
    mark: Path
    victims: Callable[[], list[int]]

    def __call__(self, params: Vector) -> Vector:
        if not self.mark.exists():
            self.mark.touch()
            for victim in self.victims():
                os.kill(victim, signal.SIGKILL)
        return 0.5 * (self.goal - params)


def this_worker() -> list[int]:
    return [os.getpid()]


def all_workers() -> list[int]:
    """This one last; those that are about to start as well."""
    until(lambda: len(workers_of(os.getppid())) >= WORKERS)
    return sorted(workers_of(os.getppid()), key=lambda pid: pid == os.getpid())


def workers_of(raylet: int) -> list[int]:
    return [pid for pid in children_of(raylet) if command_of(pid).startswith((b"ray::IDLE", b"ray::compute_update"))]


def the_whole_cluster() -> list[int]:
    """All workers; the raylet, which is their parent; and whatever else of Ray's its parent has started."""
    raylet = os.getppid()
    daemons = [pid for pid in children_of(parent_of(raylet)) if b"session_" in command_of(pid)]
    assert raylet in daemons
    workers = [pid for pid in children_of(raylet) if pid != os.getpid()]
    return [*daemons, *workers, os.getpid()]


def children_of(parent: int) -> list[int]:
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if parent_of(pid) == parent]


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended
        return 0


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def until(condition: Callable[[], bool]) -> None:
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it has not come about in two minutes")


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def other_workers() -> list[int]:
    """All but this one, whatever they hold."""
    return [pid for pid in all_workers() if pid != os.getpid()]


def doomed(params: Vector) -> Vector:
    """An oracle that every worker dies of."""
    os.kill(os.getpid(), signal.SIGKILL)
    return params


@dataclass(frozen=True)
class Head:
    address: str
    client: str
    """The address for runs on other machines."""
    token: Path
    process: subprocess.Popen[bytes]


@contextmanager
def running_head(workers: int) -> Iterator[Head]:
    """A cluster that is there: it listens on the loopback address, on ports that were free, and asks for a token. What
    answers runs on other machines may take a moment more.

    All of it ends with the process of the command: the kernel sees to that.
    """
    folder = Path(tempfile.mkdtemp(prefix="bz", dir="/tmp"))  # short, as the names of sockets must be
    token, said = folder / "token", folder / "head.txt"
    token.write_text(secrets.token_hex(32))
    auth = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    port = free_port()
    options = {
        "port": 0,
        "node-ip-address": "127.0.0.1",
        "include-dashboard": "false",
        "include-log-monitor": "false",
        "dashboard-agent-listen-port": 0,
        "ray-client-server-port": port,
        "min-worker-port": 0,
        "max-worker-port": 0,
        "num-cpus": workers,
        "object-store-memory": 128 * 2**20,
        "temp-dir": folder,
    }
    environment = {**os.environ, **OWN_CLUSTER, **FOR_CLIENTS, **auth, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
    command += [f"--{name}={value}" for name, value in options.items()]
    with said.open("w") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=file)
    try:
        written = folder / "ray_current_cluster"
        while not (written.exists() and (address := written.read_text().strip())):
            assert process.poll() is None, said.read_text()
            time.sleep(0.1)
        yield Head(address, f"ray://127.0.0.1:{port}", token, process)
    finally:
        process.terminate()
        try:
            process.wait(30)
        finally:
            process.kill()
        shutil.rmtree(folder, ignore_errors=True)
