"""The market's FLARE server on this machine: up, down, status, revoke."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from databazaar.errors import BazaarError
from databazaar.federation import onboarding
from databazaar.federation.frames import MAX_BYTES, Channel, ClosedError, Header
from databazaar.federation.kits import write_json
from databazaar.federation.processes import start_flare

_PROGRAM = "nvflare.private.fed.app.server.server_train"
_ours: dict[int, subprocess.Popen[bytes]] = {}  # servers started by this very process, which must reap them


@dataclass(frozen=True)
class Status:
    """What the operator sees: is the server up, and who is there."""

    up: bool
    pid: int | None
    address: str
    members: list[str]
    connected: list[str]
    revoked: list[str]


def up(folder: Path, wait: float = 60.0, max_bytes: int = MAX_BYTES) -> int:
    """Start the server and return its process id once it takes requests."""
    market = onboarding.operator_folder(folder)
    if (pid := _running(market)) is not None:
        raise BazaarError(f"the server of {market.name} is already up as process {pid}: use it, or take it down first")
    _check_port(market)
    relay = market.server / "relay.json"
    relay.unlink(missing_ok=True)
    process = start_flare(_PROGRAM, market.server, "fed_server.json", ["org=market"], max_bytes)
    _ours[process.pid] = process
    write_json(
        market.folder / "process.json",
        {"pid": process.pid, "created": psutil.Process(process.pid).create_time()},
    )
    until = time.monotonic() + wait
    while time.monotonic() < until:
        if process.poll() is not None:
            raise BazaarError(f"the server of {market.name} stopped at once: read {market.server / 'output.txt'}")
        if relay.exists() and _listens(market):
            return process.pid
        time.sleep(0.1)
    down(folder)
    raise BazaarError(f"the server of {market.name} was not ready in {wait:g} s: read {market.server / 'log.txt'}")


def down(folder: Path, grace: float = 5.0) -> bool:
    """Stop the server. False if it was not up."""
    market = onboarding.operator_folder(folder)
    pid = _running(market)
    if pid is None:
        return False
    process = psutil.Process(pid)
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(grace)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(grace)
    if (ours := _ours.pop(pid, None)) is not None:
        ours.wait()
    (market.folder / "process.json").unlink(missing_ok=True)
    (market.server / "relay.json").unlink(missing_ok=True)
    return True


def status(folder: Path) -> Status:
    market = onboarding.operator_folder(folder)
    pid = _running(market)
    connected: list[str] = []
    if pid is not None:
        with contextlib.suppress(BazaarError, ClosedError, TimeoutError):
            connected = [str(name) for name in _command(market, {"op": "status"})["connected"]]
    return Status(
        up=pid is not None,
        pid=pid,
        address=f"{market.host}:{market.port}",
        members=onboarding.members(folder),
        connected=connected,
        revoked=sorted(onboarding.revoked(folder)),
    )


def revoke(folder: Path, provider: str) -> None:
    """Shut a provider out for good, at once if the server is up.

    FLARE checks no revocation list: the certificate still passes TLS, but FLARE's server refuses the
    name when it registers, and drops every message that carries no valid registration.
    """
    market = onboarding.operator_folder(folder)
    onboarding.record_revocation(folder, provider)
    if _running(market) is not None:
        _command(market, {"op": "revoke", "name": provider})


def connect(folder: Path) -> Channel:
    """A channel to the server's relay, open only to who can read the market's folder."""
    market = onboarding.operator_folder(folder)
    try:
        relay = json.loads((market.server / "relay.json").read_text())
        connection = socket.create_connection(("127.0.0.1", relay["port"]), timeout=10.0)
    except (OSError, ValueError):
        raise BazaarError(f"the server of {market.name} is not up: run `bazaar federation up`") from None
    channel = Channel(connection, int(relay["max_bytes"]))
    channel.send({"op": "hello", "token": relay["token"]})
    return channel


def _command(market: onboarding.OperatorFolder, header: dict[str, str]) -> Header:
    channel = connect(market.folder)
    try:
        channel.settimeout(10.0)
        channel.send(header)
        return channel.receive()[0]
    finally:
        channel.close()


def _running(market: onboarding.OperatorFolder) -> int | None:
    """The server's process id, if the process we wrote down still lives and is the same one."""
    try:
        noted = json.loads((market.folder / "process.json").read_text())
        if (ours := _ours.get(noted["pid"])) is not None and ours.poll() is not None:
            del _ours[noted["pid"]]
            return None
        process = psutil.Process(noted["pid"])
        alive = process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - noted["created"]) < 1.0
    except (OSError, ValueError, psutil.Error):
        return None
    return int(noted["pid"]) if alive else None


def _check_port(market: onboarding.OperatorFolder, wait: float = 5.0) -> None:
    """Refuse a port that something listens on; a server just killed may hold it a moment more."""
    until = time.monotonic() + wait
    while True:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", market.port))
                return
            except OSError:
                if time.monotonic() > until:
                    raise BazaarError(
                        f"port {market.port} is taken: stop what listens there, or make the market anew"
                    ) from None
        time.sleep(0.1)


def _listens(market: onboarding.OperatorFolder) -> bool:
    for host in (market.host, "127.0.0.1"):
        with contextlib.suppress(OSError), socket.create_connection((host, market.port), timeout=1.0):
            return True
    return False
