"""The process that is connected to Ray, one for each engine: `python -m databazaar.cluster.foreman FD`.

Ray ends a process whose cluster is gone, without a word and at any call. So it is never imported where a run is: the
run has a foreman, and where that is gone makes another, who starts a cluster or joins the old one again.

Ray unpickles what it is sent and runs it. So a cluster of our own listens on the loopback address alone, with a token
that nobody but the foreman and its children have; and one that is there must ask for a token, or it is refused
(SECURITY.md). What Ray and its workers print goes to its folder of logs.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import socket
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from databazaar.cluster.pool import WorkerPool
from databazaar.cluster.settings import Answered, Connected, Kept, Refused, Request, Settings
from databazaar.errors import BazaarError

LEAST_STORE, MOST_OF_SHM = 128 * 2**20, 0.6
"""Ray's shared memory on this machine: at least so many bytes, at most this share of what is free."""
REACH = 10.0
"""Seconds that a machine has to take a connection."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")
TAKE_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Without this, Ray takes the machine's outward address in place of 127.0.0.1: it listens there, and looks there."""
OUR_CLUSTER = {
    **TAKE_LOOPBACK,
    # Who does not answer on the loopback address is dead: Ray would hope for a minute that another takes its place.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "10",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "OMP_NUM_THREADS": "1",
}


class UnreachableError(BazaarError):
    """There is no cluster where one should be; it may come back."""


def main() -> None:
    """Serves one engine until it hangs up, or has died."""
    parent, left = os.getppid(), list[Path]()
    threading.Thread(target=_end_with, args=(parent, left), daemon=True).start()
    connection = Connection(int(sys.argv[1]))
    settings, folder, maker, work = connection.recv()
    try:
        ray = _start(settings, folder) if settings.address is None else _join(settings.address)
        pool = WorkerPool(ray, settings, maker, work)
        connection.send(Connected())
        while (request := connection.recv()) is not None:
            if isinstance(request, Kept):
                left[:] = [] if request.array is None else [request.array.path.parent]
                pool.keep(request)
                connection.send(Answered(0, None))
                continue
            assert isinstance(request, Request)
            left[:] = [request.output.path.parent]
            pool.serve(request, connection.send)
        ray.shutdown()
    except UnreachableError as reason:
        connection.send(Refused(str(reason), unreachable=True))
    except BazaarError as reason:
        connection.send(Refused(str(reason)))
    except (EOFError, ConnectionError):
        _clear(left)  # whoever wanted it is gone


def _end_with(parent: int, left: list[Path]) -> None:
    """Ray's own processes here end with this one: the kernel sees to it. `left` is memory that a killed run shared."""
    while os.getppid() == parent:
        time.sleep(1.0)
    _clear(left)
    os._exit(1)


def _clear(folders: list[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _start(settings: Settings, folder: Path) -> Any:
    os.environ.update(OUR_CLUSTER, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    ray = _imported()
    try:
        ray.init(
            address="local",
            num_cpus=processors_here(),
            num_gpus=0,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.CRITICAL,
            object_store_memory=_within_shm(settings.store),
            _temp_dir=str(folder),
        )
    except Exception as reason:
        raise BazaarError(f"Ray does not start on this machine ({_brief(reason)}): use another engine") from None
    if ray.util.get_node_ip_address() not in LOOPBACK:
        raise BazaarError("this version of Ray does not keep to the loopback address: install ray==2.60.0")
    return ray


def _join(address: str) -> Any:
    os.environ.update(RAY_AUTH_MODE="token", RAY_CLIENT_RECONNECT_GRACE_PERIOD="5")
    host, _, port = address.removeprefix("ray://").rpartition(":")
    host = host.strip("[]")
    if host in LOOPBACK:
        os.environ.update(TAKE_LOOPBACK)
    try:
        socket.create_connection((host, int(port)), timeout=REACH).close()  # Ray itself would try for minutes
        ray = _imported()
        ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
        mode = ray.get(ray.remote(num_cpus=0)(_auth_mode).remote(), timeout=60)
    except Exception as reason:
        raise UnreachableError(
            f"no Ray cluster answers at {address} ({_brief(reason)}): start it, or mend engine.address, and give its "
            "token in RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH"
        ) from None
    if mode != "token":
        raise BazaarError(
            f"the Ray cluster at {address} takes orders from whoever can reach it: start it with RAY_AUTH_MODE=token "
            "on every machine"
        )
    return ray


def _imported() -> Any:
    """Ray, which reads the environment when it is imported."""
    import ray

    return ray


def _auth_mode() -> str:
    """What the cluster's own processes say of its authentication."""
    return os.environ.get("RAY_AUTH_MODE", "").lower()


def processors_here() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _within_shm(size: int) -> int:
    """No more than fits: Ray would take a file on the disk for all of it."""
    shm = Path("/dev/shm")  # noqa: S108
    room = int(MOST_OF_SHM * shutil.disk_usage(shm).free) if shm.is_dir() else size
    return max(LEAST_STORE, min(size, room))


def _brief(reason: BaseException) -> str:
    lines = [line.strip() for line in str(reason).splitlines() if line.strip()] or [type(reason).__name__]
    return lines[0].rstrip(".:")[:200]


if __name__ == "__main__":
    main()
