"""The run's side of a foreman: it is started, asked, and replaced when it is gone, with all that was not answered."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from databazaar.cluster.foreman import processors_here
from databazaar.cluster.pool import MOST_DEATHS
from databazaar.cluster.settings import (
    Answered,
    Call,
    Connected,
    Kept,
    Refused,
    Request,
    Settings,
    SharedArray,
)
from databazaar.errors import BazaarError

__all__ = ["Call", "Link", "Settings", "SharedArray", "processors_here", "refuse_without_ray"]

PATIENCE = 15.0
"""Seconds that a foreman has to end its cluster, before it is ended."""
SAFE_SOCKET = 30
"""The longest folder for temporary files in which the names of Ray's sockets, of 107 bytes at most, have room."""
MARGIN = 64 * 2**20
"""Bytes of shared memory that arrays leave free."""


def refuse_without_ray() -> None:
    """Says so before anything is begun, and without the second that importing Ray takes."""
    if find_spec("ray") is None or find_spec("cloudpickle") is None:
        raise BazaarError("engine ray needs Ray: `pip install 'databazaar[ray]'`")


class Link:
    """Has calls answered by workers that are made by `maker`, "module:name", from `work`.

    What a cluster or a foreman that dies has not answered is asked again. `foremen` counts how many there were.
    """

    def __init__(self, settings: Settings, maker: str, work: tuple[Any, ...]) -> None:
        self._settings, self._maker, self._work = settings, maker, work
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._folder: Path | None = None
        self._kept: dict[str, NDArray[Any]] = {}
        self._untold: dict[str, None] = {}
        self.foremen = 0

    def keep(self, name: str, array: NDArray[Any]) -> None:
        """From now on, calls may have this as an input by its name. It is sent once, and must not change."""
        self._kept[name], self._untold[name] = array, None

    def forget(self, name: str) -> None:
        """No call has it any more."""
        if self._kept.pop(name, None) is not None:
            self._untold[name] = None

    def map(
        self, method: str, inputs: Sequence[NDArray[Any]], calls: Sequence[Call], row: tuple[int, ...], dtype: Any
    ) -> tuple[NDArray[Any], dict[int, Any]]:
        """Every call's answer: an array, of this shape and dtype, as a row of the first; any other in the second."""
        with _sharing(inputs, (len(calls), *row), np.dtype(dtype)) as (shared, output):
            rows = output.open(writable=True)  # it outlives its name in the folder
            others: dict[int, Any] = {}
            todo = dict(enumerate(calls))

            def take(answered: Answered) -> None:
                del todo[answered.place]
                if answered.answer is not None:
                    others[answered.place] = answered.answer

            self._until_done(lambda: Request(method, shared, todo, output), todo, take)
            return rows, others

    def _until_done(
        self, request: Callable[[], Request], todo: Mapping[int, Any], take: Callable[[Answered], None]
    ) -> None:
        losses = 0
        while todo:
            left = len(todo)
            try:
                connection = self._connected()
                self._tell(connection)
                connection.send(request())
                while todo:
                    take(self._heard(connection))
            except (EOFError, OSError):
                self._discard()
                losses = losses + 1 if len(todo) == left else 0
                if losses == MOST_DEATHS:
                    raise BazaarError(
                        f"the Ray cluster was lost {losses} times on end without an answer: see what becomes of it, "
                        "and go on with the run"
                    ) from None

    def _tell(self, connection: Connection) -> None:
        """What is kept and what no longer is."""
        while self._untold:
            name = next(iter(self._untold))  # in their order: what is forgotten makes room for what is new
            del self._untold[name]
            array = self._kept.get(name)
            with _sharing([] if array is None else [array], (0,), np.dtype(np.uint8)) as (shared, _):
                connection.send(Kept(name, *shared or (None,)))
                self._heard(connection)

    def _heard(self, connection: Connection) -> Answered:
        message = connection.recv()
        if isinstance(message, Refused):
            self._discard()
            raise BazaarError(message.sentence)
        assert isinstance(message, Answered)
        return message

    def _connected(self) -> Connection:
        """A foreman with a cluster. One that was there before may take its time to come back. So may what answers at
        ray://: it starts later than its head, and what it starts for a run may die (ray-project/ray#63202)."""
        patient = self.foremen or (self._settings.address or "").startswith("ray://")
        until = time.monotonic() + (self._settings.wait if patient else 0.0)
        while self._connection is None:
            connection = self._start()
            message = connection.recv()
            if isinstance(message, Connected):
                self._connection, self._untold = connection, dict.fromkeys(self._kept)
                self.foremen += 1
                break
            connection.close()
            self._discard()
            assert isinstance(message, Refused)
            if not message.unreachable or time.monotonic() > until:
                raise BazaarError(message.sentence)
            time.sleep(1.0)
        return self._connection

    def _start(self) -> Connection:
        import cloudpickle

        try:
            work = cloudpickle.dumps(self._work)
        except (TypeError, AttributeError, pickle.PicklingError) as reason:
            raise BazaarError(
                f"models, losses and oracles go to other processes, and one of them cannot ({reason}): leave out what "
                "belongs to this process alone, such as locks and open files"
            ) from None
        ours, theirs = Pipe()
        path = os.pathsep.join(place or str(Path.cwd()) for place in sys.path)
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "databazaar.cluster.foreman", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the run, which then ends it
        )
        theirs.close()
        self._folder = Path(tempfile.mkdtemp(prefix="bz", dir=_short_folder()))
        ours.send((self._settings, self._folder, self._maker, work))
        return ours

    def _discard(self) -> None:
        """Lets go of a foreman that is gone or to be gone, and of Ray's processes, which end with it."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def close(self) -> None:
        """Ends the workers, and a cluster of our own."""
        if self._connection is not None and self._process is not None:
            with suppress(OSError, subprocess.TimeoutExpired):
                self._connection.send(None)
                self._process.wait(PATIENCE)
        self._discard()


@contextmanager
def _sharing(
    inputs: Sequence[NDArray[Any]], shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Iterator[tuple[tuple[SharedArray, ...], SharedArray]]:
    """The inputs where a foreman can read them, and room for an output."""
    folder = _folder_for(sum(one.nbytes for one in inputs) + int(np.prod(shape)) * dtype.itemsize)
    try:
        shared = []
        for place, one in enumerate(inputs):
            shared.append(SharedArray.create(folder, f"input-{place}", one.shape, one.dtype))
            np.copyto(shared[-1].open(writable=True), one)
        yield tuple(shared), SharedArray.create(folder, "output", shape, dtype)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _short_folder() -> str:
    usual = tempfile.gettempdir()
    return usual if len(usual) <= SAFE_SOCKET else "/tmp"  # noqa: S108


def _folder_for(size: int) -> Path:
    """Where arrays are shared: in memory, if they fit there."""
    shm = Path("/dev/shm")  # noqa: S108
    fits = shm.is_dir() and os.access(shm, os.W_OK) and shutil.disk_usage(shm).free > size + MARGIN
    return Path(tempfile.mkdtemp(prefix="bz", dir=shm if fits else None))
