"""One GPU for several processes at once: NVIDIA's MPS, while it is needed.

Without it a GPU serves processes by turns of some milliseconds. Whoever waits for a small result, as a market does
several times a round, then waits for everybody else's turn; and a process whose work does not fill the GPU leaves the
rest of it idle. With MPS their kernels run side by side. It comes with the driver, needs no rights beyond one's own,
and changes no result.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

CONTROL = "nvidia-cuda-mps-control"
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
EVERYBODYS = Path("/tmp/nvidia-mps")  # noqa: S108 - NVIDIA's choice
"""Where processes look for MPS that are told of no other place."""
PROBE = """
import ctypes
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
raise SystemExit(cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
"""
"""A process that asks for the GPU and ends: with MPS that may fail where everything else works."""


@contextmanager
def side_by_side(device: str) -> Iterator[bool]:
    """While it lasts, processes that are started share the GPU by MPS; says whether they do. Where there is no MPS, or
    it does not work, or somebody runs it already, everything stays as it is."""
    control = shutil.which(CONTROL)
    if control is None or not device.startswith("cuda") or PIPES in os.environ or EVERYBODYS.exists():
        yield False
        return
    with tempfile.TemporaryDirectory(prefix="mps-", ignore_cleanup_errors=True) as folder:
        own = {PIPES: folder, LOGS: folder}
        before = {name: os.environ.get(name) for name in own}
        try:
            works = _succeeds([control, "-d"], own) and _succeeds([sys.executable, "-c", PROBE], own)
            if works:
                os.environ.update(own)
            yield works
        finally:
            for name, value in before.items():
                os.environ.pop(name, None) if value is None else os.environ.update({name: value})
            _succeeds([control], own, "quit\n")


def _succeeds(command: list[str], more: Mapping[str, str], told: str = "") -> bool:
    try:
        ended = subprocess.run(  # noqa: S603 - NVIDIA's program, or this Python
            command, input=told, text=True, capture_output=True, timeout=60, env={**os.environ, **more}, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ended.returncode == 0
