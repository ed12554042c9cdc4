"""A market, its server and its providers on loopback, with real certificates and real processes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from databazaar.federation import enrolment, server
from processes import Forked

HERE = Path(__file__).parent
SEARCH_PATH = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
MAX_BYTES = 4_000_000
WAIT = 90.0
"""Seconds to wait for what must come, such as providers that connect: many, because this machine may be busy."""


def free_port() -> int:
    """Below the ports of outgoing connections, so that it stays free. The kernel knows which are taken."""
    tables = [Path(f"/proc/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    taken = {int(line.split()[1].rpartition(":")[2], 16) for table in tables for line in table}
    return random.choice([port for port in range(20_000, 32_000) if port not in taken])


def eventually(true: Callable[[], bool], seconds: float = WAIT) -> bool:
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


class Federation:
    """A market's folder, its server, and one process a provider."""

    def __init__(self, root: Path, name: str = "fraud") -> None:
        self.root = root
        self.market = enrolment.init_market(root / "market", name, "localhost", free_port()).folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def enroll(self, name: str) -> Path:
        kit = self.root / name
        asked = enrolment.request(enrolment.invite(self.market, name), kit)
        return enrolment.complete(kit, enrolment.sign(self.market, asked)).folder

    def up(self) -> None:
        server.up(self.market, max_bytes=MAX_BYTES)

    def start(self, name: str, kit: Path | None = None) -> subprocess.Popen[bytes]:
        kit = kit or self.root / name
        command = [sys.executable, "-m", "provider_process", str(kit), "parties:noting", str(MAX_BYTES)]
        with (kit / "provider.txt").open("ab") as output:
            process = Forked(
                command,
                env={**os.environ, "PYTHONPATH": SEARCH_PATH, "PARTY": name, "NOTES": str(kit / "notes.txt")},
                stdout=output,
                stderr=output,
            )
        self.processes[kit.name] = process
        return process

    def kill(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def close(self) -> None:
        everything = [p for p in self.processes.values() if p.poll() is None]
        children = [c for p in everything for c in psutil.Process(p.pid).children(recursive=True)]
        for process in everything:
            process.terminate()
        for process in everything:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        server.down(self.market)
        alive = psutil.wait_procs(children, timeout=5)[1]
        for child in alive:
            child.kill()
        assert not alive, "a provider left a process behind"

    def edit(self, path: str, change: Callable[[dict[str, Any]], object]) -> None:
        file = self.root / path
        value = json.loads(file.read_text())
        change(value)
        file.write_text(json.dumps(value))


def server_log(federation: Federation) -> str:
    return (federation.market / "server" / "log.txt").read_text()
