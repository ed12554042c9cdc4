"""The market's server on this machine: up, down, status and queues, revoke, capacities.

The server's process holds a lock on `server.lock` for as long as it lives. So whether it is up is the kernel's word,
and depends on no clock and on no process id that may have been given to another.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from databazaar.errors import BazaarError
from databazaar.federation import enrolment
from databazaar.federation.enrolment_files import PRIVATE, keep_capacity
from databazaar.federation.fair_queue import Queue
from databazaar.federation.frames import MAX_BYTES, Header
from databazaar.federation.grpc_transport import LocalServer
from databazaar.federation.market_server import LOCK
from databazaar.files import lock, unless_locked

_PROGRAM = "databazaar.federation.market_server"
_ENVIRONMENT = {"MALLOC_ARENA_MAX": "2", "OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}
_ours: dict[int, subprocess.Popen[bytes]] = {}  # servers started by this very process, which must reap them


@dataclass(frozen=True)
class Status:
    """What the operator sees of the server. `queues` has the providers that are asked for anything."""

    up: bool
    answers: bool
    pid: int | None
    address: str
    members: list[str]
    connected: list[str]
    revoked: list[str]
    queues: dict[str, Queue]


def up(folder: Path, wait: float = 60.0, max_bytes: int = MAX_BYTES) -> int:
    """Start the server and return its process id once it takes requests."""
    market = enrolment.operator_folder(folder)
    with _claim(market) as held:
        _check_port(market)
        with (market.server / "output.txt").open("ab") as output:
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", _PROGRAM, str(market.folder), str(max_bytes)],
                env={**os.environ, **_ENVIRONMENT},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[held.fileno()],
                start_new_session=True,
            )
    _ours[process.pid] = process
    until = time.monotonic() + wait
    while time.monotonic() < until:
        if process.poll() is not None:
            raise BazaarError(f"the server of {market.name} stopped at once: read {market.server / 'output.txt'}")
        with contextlib.suppress(BazaarError):
            _command(market, {"op": "status"}, 1.0)
            return process.pid
        time.sleep(0.1)
    down(folder)
    raise BazaarError(f"the server of {market.name} was not ready in {wait:g} s: read {market.server / 'log.txt'}")


def down(folder: Path, grace: float = 5.0) -> bool:
    """Stop the server. False if it was not up."""
    market = enrolment.operator_folder(folder)
    pid = _running(market)
    if pid is None:
        return False
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        if gone := _by(grace, lambda: not _held(market)):
            break
    if (ours := _ours.pop(pid, None)) is not None:
        ours.wait()
    if not gone:
        raise BazaarError(f"the server of {market.name} does not end: stop process {pid} yourself")
    return True


def status(folder: Path, wait: float = 10.0) -> Status:
    market = enrolment.operator_folder(folder)
    pid = _running(market)
    found: Header = {}
    if pid is not None:
        with contextlib.suppress(BazaarError):
            found = _command(market, {"op": "status"}, wait)
    return Status(
        up=pid is not None,
        answers=bool(found),
        pid=pid,
        address=f"{market.host}:{market.port}",
        members=enrolment.members(folder),
        connected=found.get("connected", []),
        revoked=sorted(enrolment.revoked(folder)),
        queues={name: Queue(**queue) for name, queue in found.get("queues", {}).items()},
    )


def set_capacity(folder: Path, provider: str, capacity: int) -> None:
    """From now on so many asks of the provider may be under way; a server that is up knows it within a second."""
    market = enrolment.operator_folder(folder)
    if provider not in (known := enrolment.members(folder)):
        raise BazaarError(f"{market.name} has no provider {provider}: its providers are {', '.join(known) or 'none'}")
    keep_capacity(market.server, provider, capacity)


def revoke(folder: Path, provider: str, wait: float = 10.0) -> bool:
    """Shut a provider out for good. A server that is up closes its connections at once, and an error says so where it
    does not confirm that; False where the server is down."""
    market = enrolment.operator_folder(folder)
    enrolment.record_revocation(folder, provider)
    try:
        said = _command(market, {"op": "revoke", "name": provider}, wait)
    except BazaarError:
        if not _held(market):
            return False
        said = {}
    if (said.get("name"), said.get("closed")) != (provider, True):
        raise BazaarError(
            f"{provider} is recorded as revoked, but the server that is up has not confirmed it and may still let it "
            "in: run `bazaar federation down` and `bazaar federation up`"
        )
    return True


def _command(market: enrolment.OperatorFolder, header: Header, wait: float) -> Header:
    with contextlib.closing(LocalServer(market)) as server:
        return server.command(header, wait)


def _claim(market: enrolment.OperatorFolder) -> FileIO:
    """The lock, for a server that is about to start."""
    path = market.folder / LOCK
    path.touch(PRIVATE)
    try:
        held = lock(path, "the server is up")
    except BazaarError:
        pid = _running(market)
        raise BazaarError(
            f"the server of {market.name} is already up as process {pid}: use it, or take it down first"
        ) from None
    path.write_text("")
    return held


def _held(market: enrolment.OperatorFolder) -> bool:
    """Does a server's process hold the lock?"""
    path = market.folder / LOCK
    if not path.exists():
        return False
    with unless_locked(path) as free:
        return not free


def _running(market: enrolment.OperatorFolder) -> int | None:
    """The server's process id, which it writes down as the first thing it does; None where it is not up."""
    path = market.folder / LOCK
    for ended in [pid for pid, process in _ours.items() if process.poll() is not None]:
        del _ours[ended]
    if not _held(market):
        return None
    if not _by(2.0, lambda: bool(path.read_text()) or not _held(market)):
        raise BazaarError(f"the server of {market.name} is just starting: try again in a moment")
    return int(path.read_text()) if _held(market) else None


def _by(seconds: float, true: Callable[[], bool]) -> bool:
    """Does this come true in that time?"""
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def _check_port(market: enrolment.OperatorFolder, wait: float = 5.0) -> None:
    """Refuse a port that something listens on; a server just killed may hold it a moment more."""

    def free() -> bool:
        with contextlib.suppress(OSError), socket.create_server(("", market.port)):
            return True
        return False

    if not _by(wait, free):
        raise BazaarError(f"port {market.port} is taken: stop what listens there, or make the market anew")
