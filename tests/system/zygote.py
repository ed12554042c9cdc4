"""Starts `bazaar` in real processes without paying torch's import each time: imports all, then forks on request.

Each line of JSON on standard input is answered by one on standard output: {"args": […], "cwd": …, "log": …} by the
new process's id, with {"fault": […]} beside it where that process is to fail by tests/hostile/faults;
{"wait": true} by its exit code, or minus the signal that killed it; {"wait": false} by the same, or null while it runs.
A process is reaped only when asked for, so that its id stays its own until then.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

import matplotlib.backends.backend_agg
import pandas
import pyarrow.parquet  # noqa: F401
import torch

import databazaar.cli.play
from databazaar.cli.app import main


def child(args: list[str], cwd: str, log: str, fault: tuple[int, int, int, str] | None = None) -> None:
    os.chdir(cwd)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(file, stream)
    sys.argv = ["bazaar", *args]
    if fault is not None:
        what, nth, error, path = fault
        journal = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        ctypes.CDLL(None).faults_arm(os.fsencode(cwd), what, ctypes.c_long(nth), error, journal)
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def serve() -> None:
    torch.set_num_threads(1)
    assert matplotlib.backends.backend_agg and pandas and databazaar.cli.play
    pid = 0
    answer: int | None
    for line in sys.stdin:
        request = json.loads(line)
        if "args" in request:
            pid = os.fork()
            if pid == 0:
                child(**request)
            answer = pid
        else:
            ended, status = os.waitpid(pid, 0 if request["wait"] else os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if ended else None
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
