"""Whether a round fits into memory: found out before the first one, and said with numbers."""

from __future__ import annotations

from pathlib import Path

import torch

from databazaar.errors import BazaarError

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
    """What `ulimit -v` leaves."""
    try:
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most == resource.RLIM_INFINITY:
            return None
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        return max(0, most - pages * resource.getpagesize())
    except (ImportError, OSError, ValueError):
        return None


def refuse_too_large(params: int, asked: int, device: torch.device, free: int | None) -> None:
    """Refuses a market whose rounds the kernel would end: one holds the updates of all that are asked, the model before
    and after, and the best so far. So many copies were measured (tests/core/test_memory_of_a_round.py) with plain SGD;
    it is an estimate from below: optimizers, some rules, what layers compute and CUDA graphs hold more."""
    needed = (asked + 3) * 4 * params
    if free is not None and needed > free:
        raise BazaarError(
            f"a round needs {needed / 1e9:,.1f} GB, {asked + 3} copies of the {params:,} parameters that are trained, "
            f"and {free / 1e9:,.1f} GB are free on {device}: lower per_round = {asked}, train fewer parameters (an "
            "adapter), or take a machine with more memory"
        )
