"""The connection of this process to a Ray cluster: one that it starts on this machine, or one that it joins.

Ray unpickles what it is sent and runs it. So a cluster of our own listens on the loopback address alone, with a token
that only this process and its children have; a cluster that is joined must ask for a token, or it is refused
(SECURITY.md).
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import signal
import socket
import tempfile
import threading
import time
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from databazaar.errors import BazaarError

STORE, LEAST_STORE, MOST_OF_SHM = 8 * 2**30, 128 * 2**20, 0.6
"""Ray's shared memory on this machine: at most so many bytes, at least so many, and at most this share of /dev/shm."""
REACH = 10.0
"""Seconds that a machine has to take a connection."""
SAFE_SOCKET = 30
"""The longest folder for temporary files in which the names of Ray's sockets, of 107 bytes at most, have room."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")
KEEP_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Without this, Ray takes the machine's outward address in place of 127.0.0.1: it listens there, and looks there."""
OWN_CLUSTER = {
    **KEEP_LOOPBACK,
    # On the loopback address no answer means that it is dead: Ray would hope for a minute that another takes its place.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "10",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "OMP_NUM_THREADS": "1",
}
VERSIONED = ("databazaar", "torch", "numpy")


def processors_here() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def versions() -> dict[str, str]:
    """The versions of the packages that bits depend on."""
    return {name: metadata.version(name) for name in VERSIONED}


def refuse_without_ray() -> None:
    """Says so before anything is begun, and without the second that importing Ray takes."""
    if find_spec("ray") is None:
        raise BazaarError("engine ray needs Ray: `pip install 'databazaar[ray]'`")


class Cluster:
    """A process has one at a time. `ray` is the module, connected; `workers` is how many tasks run at once."""

    def __init__(self, address: str | None, workers: int | None, wait: float) -> None:
        handler = signal.getsignal(signal.SIGTERM)  # Ray puts its own in its place
        self._folder: str | None = None
        try:
            self.ray = self._start() if address is None else _join(address, wait)
            processors = int(self.ray.cluster_resources().get("CPU", 0))
            self.workers = workers or processors
            if processors < max(1, self.workers):  # Ray would let tasks wait for ever
                raise BazaarError(
                    f"workers = {self.workers} and the Ray cluster has {processors} processors: lower workers, "
                    "or add machines"
                )
        except BaseException:
            self.close()
            raise
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, handler)

    def _start(self) -> Any:
        os.environ.update(OWN_CLUSTER, RAY_AUTH_MODE="token")
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # a process has one token, which Ray reads once
        import ray

        usual = tempfile.gettempdir()
        self._folder = tempfile.mkdtemp(prefix="bz", dir=usual if len(usual) <= SAFE_SOCKET else "/tmp")  # noqa: S108
        try:
            ray.init(
                address="local",
                num_cpus=processors_here(),
                num_gpus=0,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.CRITICAL,
                object_store_memory=_store(),
                _temp_dir=self._folder,
            )
        except Exception as reason:
            raise BazaarError(f"Ray does not start on this machine ({brief(reason)}): use another engine") from None
        if ray.util.get_node_ip_address() not in LOOPBACK:
            raise BazaarError("this version of Ray does not keep to the loopback address: install ray==2.60.0")
        return ray

    def close(self) -> None:
        """Ends the workers of this process, and a cluster of its own."""
        import ray

        ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def _join(address: str, wait: float) -> Any:
    """What answers at ray:// starts later than its head, and what it starts for a run may die (ray-project/ray#63202):
    there it is tried again for `wait` seconds."""
    os.environ.update(RAY_AUTH_MODE="token")
    host, _, port = address.removeprefix("ray://").rpartition(":")
    host = host.strip("[]")
    if host in LOOPBACK:
        os.environ.update(KEEP_LOOPBACK)
    until = time.monotonic() + (wait if address.startswith("ray://") else 0.0)
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=REACH).close()  # Ray itself would try for minutes
            import ray

            ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
            mode = ray.get(ray.remote(num_cpus=0)(_auth_mode).remote(), timeout=60)
            break
        except Exception as reason:
            if time.monotonic() > until:
                raise BazaarError(
                    f"no Ray cluster answers at {address} ({brief(reason)}): start it, or mend RAY_ADDRESS, and "
                    "give its token in RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH"
                ) from None
            time.sleep(1.0)
    if mode != "token":
        raise BazaarError(
            f"the Ray cluster at {address} takes orders from anybody who can reach it: start it with "
            "RAY_AUTH_MODE=token on every machine"
        )
    return ray


def _auth_mode() -> str:
    """What the cluster's own processes say of its authentication."""
    return os.environ.get("RAY_AUTH_MODE", "").lower()


def _store() -> int:
    """No more than fits into shared memory: Ray would take a file on the disk for all of it."""
    shm = Path("/dev/shm")  # noqa: S108
    room = int(MOST_OF_SHM * shutil.disk_usage(shm).free) if shm.is_dir() else STORE
    return max(LEAST_STORE, min(STORE, room))


def brief(reason: BaseException) -> str:
    """The line that says why, of the many that Ray has."""
    lines = [line.strip() for line in str(reason).splitlines() if line.strip()] or [type(reason).__name__]
    return next((line for line in reversed(lines) if "Error" in line or "exit" in line), lines[0])[:200].rstrip(".:")
