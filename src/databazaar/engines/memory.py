"""Whether a round fits into memory, and where its updates go if not: found out before the first one.

    in memory   K + 3 copies of what is trained: the updates of all that are asked, the model before and after, and the
                best so far; or in place of the last update's, a model that is trained, with its gradient
    in a file   4 copies: all that, with their sum in place of the updates (engines/room.py)

So many were measured (tests/core/test_memory_of_a_round.py). What is known to be held beside them is counted too. It is
an estimate from below: what layers compute, and CUDA graphs, take more.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from databazaar.engines.room import FileRoom, Room
from databazaar.errors import BazaarError
from databazaar.learning.oracles import LocalSGD
from databazaar.scratch import disc_for, free_on, in_memory

CGROUPS = Path("/sys/fs/cgroup")


def free_bytes(device: torch.device) -> int | None:
    """What may still be taken there: of the machine, the container or the process, whichever has least; None where
    nothing says so."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    found = [free for free in (_of_machine(), _of_container(), _of_process()) if free is not None]
    return min(found, default=None)


def _of_machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return None


def _of_container() -> int | None:
    try:
        most = (CGROUPS / "memory.max").read_text(encoding="ascii").strip()
        if most == "max":
            return None
        stat = dict(line.split() for line in (CGROUPS / "memory.stat").read_text(encoding="ascii").splitlines())
        used = int((CGROUPS / "memory.current").read_text(encoding="ascii")) - int(stat.get("inactive_file", 0))
        return max(0, int(most) - used)
    except (OSError, ValueError):
        return None


def _of_process() -> int | None:
    """What `ulimit -d` leaves, which counts memory and no files."""
    return _left("RLIMIT_DATA", "VmData:")


def free_addresses() -> int | None:
    """What `ulimit -v` leaves, which counts files that are mapped as well."""
    return _left("RLIMIT_AS", "VmSize:")


def _left(limit: str, taken: str) -> int | None:
    try:
        import resource

        most = resource.getrlimit(getattr(resource, limit))[0]
        if most == resource.RLIM_INFINITY:
            return None
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return max(0, most - next(int(line.split()[1]) * 1024 for line in lines if line.startswith(taken)))
    except (ImportError, OSError, ValueError, StopIteration):
        return None


@dataclass(frozen=True)
class Need:
    """What a round of a large model has to hold: `asked` updates of so many `params`. `training` are the copies that
    optimizers keep while a provider's update is computed, `more` those that are there all the time or while models are
    scored: the consumer's own update, and a defence's signs. `ahead` says whether the new model is there by then
    (market/fetching.py), `comes` whether answers come down in files of their own before they are written, and `whole`
    why updates must be in memory as a whole, where they must."""

    params: int
    asked: int
    training: int = 0
    more: int = 0
    ahead: bool = False
    comes: bool = False
    whole: str = ""

    @property
    def copies(self) -> int:
        """With the updates in memory. What an optimizer keeps is gone when models are scored."""
        return self.asked + 3 + max(self.training, self.more + self.ahead)

    @property
    def beside(self) -> int:
        """With the updates elsewhere; then their sum is there while models are scored."""
        return 4 + max(self.training, self.more + self.ahead)

    @property
    def elsewhere(self) -> int:
        """Copies in files."""
        return 2 * self.asked if self.comes else self.asked

    def bytes(self, copies: int) -> int:
        return 4 * self.params * copies


@dataclass(frozen=True)
class Free:
    """Bytes that may be taken: on the engine's `device`, on the host, and of addresses; None where nothing says so."""

    device: torch.device
    there: int | None
    host: int | None
    addresses: int | None = None

    @classmethod
    def now(cls, device: torch.device) -> Free:
        host = free_bytes(torch.device("cpu"))
        return cls(device, free_bytes(device) if device.type == "cuda" else host, host, free_addresses())

    def has(self, need: Need, copies: int, mapped: int = 0) -> bool:
        """Whether so many copies fit on the device; on the host they and what is mapped need addresses too."""
        fits = self.there is None or need.bytes(copies) <= self.there
        if self.device.type == "cuda" or self.addresses is None:
            return fits
        return fits and need.bytes(copies + mapped) <= self.addresses

    def __str__(self) -> str:
        if self.addresses is not None and (self.there is None or self.addresses < self.there):
            return f"{_gb(self.addresses)} are free by ulimit -v, which counts files as well"
        return f"{_gb(self.there or 0)} are free on {self.device}"


def room_for(need: Need, free: Free, folders: Sequence[Path] = ()) -> Room | None:
    """Where a market's updates go: None for where they are computed, as everywhere that memory lasts. Else they go to
    the host where that has the memory and a GPU does not; else to a file in the first of these folders, or among
    temporary files, that is on a disc with room for it. A market whose rounds the kernel would end is refused."""
    if free.has(need, need.copies):
        return None
    much = f"a round needs {_gb(need.bytes(need.copies))}, {need.copies} copies of the {need.params:,} parameters that "
    much += f"are trained, and {free}"
    smaller = "train fewer parameters (an adapter), or take a machine with more memory"
    fewer = f"lower per_round = {need.asked}, {smaller}"
    if need.whole:
        raise BazaarError(f"{much}; the updates cannot be kept in a file, because {need.whole}: {fewer}")
    on_gpu = free.device.type == "cuda"
    if not free.has(need, need.beside, 0 if on_gpu else need.elsewhere):
        least = f"{_gb(need.bytes(need.beside))}, {need.beside} copies"
        remedy = fewer if free.has(need, need.beside) else smaller
        raise BazaarError(f"{much}; with the updates in a file it still needs {least}: {remedy}")
    size = need.bytes(need.elsewhere)
    if on_gpu and (free.host is None or size + need.bytes(2) <= free.host):  # the host has the last model and the best
        return Room.on_host(need.asked, need.params, torch.float32)
    places = [*folders, Path(tempfile.gettempdir()), Path("/var/tmp")]  # noqa: S108 - a file without a name
    folder = disc_for(size, places)
    if folder is None:
        raise BazaarError(
            f"{much}; a file for the updates needs {_gb(size)} of a disc, and there is {_told(places)}: make room "
            f"there, set TMPDIR to a folder on a larger disc, or {fewer}"
        )
    try:
        return FileRoom(folder, need.asked, need.params, torch.float32)
    except OSError as reason:
        raise BazaarError(
            f"{much}; a file for the updates could not be made in {folder} ({reason.strerror}): set TMPDIR to a folder "
            f"on a larger disc, or {fewer}"
        ) from None


def training_copies(oracles: Sequence[object], device: torch.device) -> int:
    """The most copies that an optimizer keeps beside model and gradient: one for momentum, two for Adam. What a step
    makes in between is a layer's on a CPU. On a GPU the model is one vector (engines/alone.py), and so is that."""
    own = [oracle for oracle in oracles if isinstance(oracle, LocalSGD)]
    kept = [2 if oracle.optimizer == "adam" else bool(oracle.momentum) for oracle in own]
    between = [device.type == "cuda" and (oracle.optimizer == "adam" or oracle.weight_decay > 0) for oracle in own]
    return max((one + more for one, more in zip(kept, between, strict=True)), default=0)


def out_of_memory(reason: BaseException) -> bool:
    """Whether this is said where there is no memory left. On a CPU torch has no exception of its own for that."""
    lacks = "can't allocate memory" in str(reason) or "not enough memory" in str(reason)
    return isinstance(reason, MemoryError | torch.OutOfMemoryError) or (isinstance(reason, RuntimeError) and lacks)


@contextmanager
def memory_may_run_out() -> Iterator[None]:
    """A sentence in place of what a library says when it gets no memory."""
    try:
        yield
    except Exception as reason:
        if not out_of_memory(reason):
            raise
        raise BazaarError(
            f"memory ran out in the middle of a round ({' '.join(str(reason).split())[:120]}): nothing of it is paid; "
            "resume the run with more memory, or begin one with a lower per_round or smaller batches"
        ) from reason


def _told(places: Sequence[Path]) -> str:
    """What there is of room in these places."""
    told = {str(place): "memory" if in_memory(place) else f"{_gb(free_on(place))} free" for place in places}
    return ", ".join(f"{place} ({what})" for place, what in told.items())


def _gb(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
