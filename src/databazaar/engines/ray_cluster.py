"""The one connection that a process has to Ray: to a cluster of its own on this machine, or to one that is there.

Ray unpickles what it is sent and runs it. So a cluster of our own listens on this machine's loopback alone, with a
token that only this process and its children know; and one that is there already must ask for a token, or is refused
(SECURITY.md). This is the only module that imports Ray, and it does so where it is needed.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import sys
import tempfile
import threading
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from databazaar.errors import BazaarError

LEAST_STORE, MOST_OF_SHM = 128 * 2**20, 0.8
"""Ray's shared memory on this machine: at least so many bytes, at most this share of what is free."""
SAFE_SOCKET = 30
"""The longest folder for temporary files in which the names of Ray's sockets, of 107 bytes at most, have room."""

OURS = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Without this, Ray takes the machine's outward address in place of 127.0.0.1, and listens on all of them.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # What workers and daemons print is in Ray's folder of logs, not in the user's terminal.
    "RAY_DEDUP_LOGS": "1",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".*",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "OMP_NUM_THREADS": "1",
}
"""The surroundings of a cluster of our own."""

_lock = threading.RLock()
_shared: dict[str, Cluster] = {}
_token = secrets.token_hex(32)


class LostCluster(Exception):
    """The cluster no longer answers."""


def refuse_without_ray() -> None:
    """Says so before anything is begun, without the second that importing it takes."""
    if find_spec("ray") is None:
        raise BazaarError("engine ray needs Ray: `pip install 'databazaar[ray]'`")


def ray_module() -> Any:
    """Ray itself, which has no types worth the name."""
    import ray

    return ray


def _as_the_environment_says() -> Any:
    """Ray, which reads the environment once, when it is first imported; now again."""
    import ray
    from ray._private import ray_constants
    from ray._raylet import AuthenticationTokenLoader, Config

    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()
    outward = os.environ.get("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", str(int(sys.platform not in ("win32", "darwin"))))
    ray_constants.ENABLE_RAY_CLUSTER = outward not in ("0", "false", "False")
    return ray


class Cluster:
    """A connection that several engines of a process share; the last one that lets go ends it.

    `generation` counts how often it was made: workers and objects of an earlier one are gone.
    """

    def __init__(self, address: str | None, wait: float) -> None:
        self.address, self.wait = address, wait
        self.generation = 0
        self.users = 0
        self._mine = False
        self._store = LEAST_STORE
        self._folder: Path | None = None
        self._environment: dict[str, str | None] = {}

    @classmethod
    def shared(cls, address: str | None, wait: float) -> Cluster:
        """The process's connection to this address, for one more user. There is one at a time."""
        with _lock:
            for other in _shared:
                if other != (address or ""):
                    raise BazaarError(
                        f"this process is connected to {other or 'a cluster of its own'} and cannot also reach "
                        f"{address or 'one of its own'}: close the other engine first"
                    )
            cluster = _shared.setdefault(address or "", cls(address, wait))
            cluster.users += 1
            return cluster

    def release(self) -> None:
        """One user less; with the last one the connection goes, and a cluster of our own with it."""
        with _lock:
            self.users -= 1
            if self.users == 0:
                _shared.pop(self.address or "", None)
                self._disconnect()

    def connect(self, store: int) -> None:
        """Connects, unless that is done. `store` are the bytes that are on their way at a time."""
        with _lock:
            if self.generation == 0:
                self._store = max(LEAST_STORE, store)
                self._connect()
                self.generation = 1

    def reconnect(self, generation: int) -> None:
        """Connects anew after the connection of that generation was lost, unless somebody has done so."""
        with _lock:
            if generation != self.generation:
                return
            if not self._mine and self.address is None:
                raise BazaarError(
                    "the connection to Ray that this process had is lost: connect again, and go on with the run"
                )
            self._disconnect()
            until = time.monotonic() + self.wait
            while True:
                try:
                    self._connect()
                    break
                except BazaarError:
                    if self.address is None or time.monotonic() > until:
                        raise
                    time.sleep(1.0)
            self.generation += 1

    def lost(self) -> bool:
        """Whether a cluster of our own has died. Of others, only their workers tell."""
        if not self._mine:
            return False
        node = ray_module()._private.worker._global_node
        return node is None or any(kind in ("raylet", "gcs_server") for kind, _ in node.dead_processes())

    def processors(self) -> int:
        """The processors that the cluster has, of all machines."""
        return int(ray_module().cluster_resources().get("CPU", 0))

    def free_processors(self) -> int:
        """Those of them that nobody holds."""
        return int(ray_module().available_resources().get("CPU", 0))

    def _connect(self) -> None:
        if self.address is None:
            self._start()
        else:
            self._join(self.address)

    def _start(self) -> None:
        if "ray" in sys.modules and ray_module().is_initialized():
            return  # whoever uses databazaar has connected already, and it is theirs to end
        self._set({**OURS, "RAY_AUTH_TOKEN": _token})
        ray = _as_the_environment_says()
        self._folder = Path(tempfile.mkdtemp(prefix="bz", dir=_short_folder()))
        try:
            ray.init(
                address="local",
                num_cpus=here(),
                num_gpus=0,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.CRITICAL,
                object_store_memory=_within_shm(self._store),
                _temp_dir=str(self._folder),
            )
        except Exception as reason:
            self._disconnect()
            raise BazaarError(f"Ray does not start on this machine ({_brief(reason)}): use another engine") from None
        self._mine = True
        if ray.util.get_node_ip_address() not in ("127.0.0.1", "::1"):
            self._disconnect()
            raise BazaarError("this version of Ray does not keep to the loopback address: install ray==2.60.0")

    def _join(self, address: str) -> None:
        quiet = {name: OURS[name] for name in ("RAY_AUTH_MODE", "RAY_DEDUP_LOGS", "RAY_DEDUP_LOGS_SKIP_REGEX")}
        if "ray" in sys.modules and ray_module().is_initialized():
            return
        # Ray ends the process where a cluster does not come back in time: a run is to end with a sentence instead.
        self._set({**quiet, "RAY_gcs_rpc_server_reconnect_timeout_s": str(int(self.wait) + 600)})
        ray = _as_the_environment_says()
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
        except Exception as reason:
            self._disconnect()
            raise BazaarError(
                f"no Ray cluster can be reached at {address} ({_brief(reason)}): start it, or mend engine.address, and "
                "give its token in RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH"
            ) from None
        self._mine = True
        mode = ray.get(ray.remote(num_cpus=0)(_auth_mode).remote())
        if mode != "token":
            self._disconnect()
            raise BazaarError(
                f"the Ray cluster at {address} takes orders from whoever can reach it: start it with "
                "RAY_AUTH_MODE=token on every machine"
            )

    def _disconnect(self) -> None:
        if self._mine:
            with suppress(Exception):
                ray_module().shutdown()
        self._mine = False
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        self._restore()

    def _set(self, variables: dict[str, str]) -> None:
        """Sets variables of the environment, which Ray's processes get, until the connection ends."""
        self._environment = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)

    def _restore(self) -> None:
        for name, before in self._environment.items():
            if before is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = before
        self._environment = {}


def here() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _auth_mode() -> str:
    """What the cluster's own processes say of its authentication."""
    return os.environ.get("RAY_AUTH_MODE", "").lower()


def _short_folder() -> str:
    usual = tempfile.gettempdir()
    return usual if len(usual) <= SAFE_SOCKET else "/tmp"  # noqa: S108


def _within_shm(size: int) -> int:
    """No more than fits: Ray would warn, and take a file on the disk for all of it."""
    shm = Path("/dev/shm")  # noqa: S108
    return size if not shm.is_dir() else max(LEAST_STORE, min(size, int(MOST_OF_SHM * shutil.disk_usage(shm).free)))


def _brief(reason: BaseException) -> str:
    lines = [line.strip() for line in str(reason).splitlines() if line.strip()] or [type(reason).__name__]
    return lines[0].rstrip(".:")[:200]
