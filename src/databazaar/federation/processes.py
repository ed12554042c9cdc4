"""Starting FLARE's own programs, and stopping what we started."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

WINDOW = 8 * 1024 * 1024
"""Bytes of one message that FLARE may have on its way to the other side before that has taken any of them."""

_ENVIRONMENT = {
    "NVFLARE_STREAMING_WINDOW_SIZE": str(WINDOW),
    "NVFLARE_STREAMING_ACK_INTERVAL": str(WINDOW // 4),
    "MALLOC_ARENA_MAX": "2",
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONSAFEPATH": "1",
}


def start_flare(
    module: str,
    workspace: Path,
    config: str,
    settings: Sequence[str],
    max_bytes: int,
    extra: Mapping[str, str] | None = None,
    fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """One of FLARE's programs with our TLS, in its own session, what it prints in the workspace's `output.txt`."""
    program = [sys.executable, "-m", "databazaar.federation.flare", module]
    command = [*program, "-m", str(workspace), "-s", config, "--set", "secure_train=true"]
    with (workspace / "output.txt").open("ab") as output:
        return subprocess.Popen(  # noqa: S603
            [*command, "config_folder=config", *settings],
            cwd=workspace,
            env={**os.environ, **_ENVIRONMENT, "DATABAZAAR_MAX_BYTES": str(max_bytes), **(extra or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=fds,
            start_new_session=True,
        )


def stop(process: subprocess.Popen[bytes], grace: float = 2.0) -> None:
    """End a process that we started: ask, then insist."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    if process.poll() is None:
        process.kill()
    process.wait()
