"""The processes in which I/O fails, forked as tests/helpers/zygote.py does it, with every figure drawn only once.

What is tested is what reaches the disk. The market is always the same, and so are its figures: the first process that
needs one is the zygote itself, and all others write the bytes that it got.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "helpers"))

from matplotlib.figure import Figure

import zygote
from databazaar.cli.app import main
from databazaar.ledger import snapshot_files, sql
from databazaar.reports import run_page as report_files
from databazaar.reports import style
from databazaar.reports.figures import draw_all

drawn: dict[str, Figure] = {}


def once(report: Any) -> dict[str, Figure]:
    if not drawn:
        drawn.update(draw_all(report))
    return drawn


def from_memory(write: Callable[[Figure], Any]) -> Callable[[Figure], Any]:
    """The same file of the same figure."""
    written: dict[int, Any] = {}

    def known(figure: Figure) -> Any:
        if id(figure) not in written:
            written[id(figure)] = write(figure)
        return written[id(figure)]

    return known


def warm(cwd: str) -> None:
    """Plays the market once in this very process, so that all that is imported late, and drawn, is there."""
    os.chdir(cwd)
    sys.argv = ["bazaar", "run", "market.toml", "--out", "whole", "--quiet", "--engine", "loop"]
    silent, told = os.open(os.devnull, os.O_WRONLY), os.dup(1)
    os.dup2(silent, 1)
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
    sys.stdout.flush()
    os.dup2(told, 1)


def arm(request: dict[str, Any]) -> None:
    """Lets a call of this process fail, where that was asked for."""
    if request["fault"] is not None:
        what, nth, error, path = request["fault"]
        journal = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        ctypes.CDLL(None).faults_arm(os.fsencode(request["cwd"]), what, ctypes.c_long(nth), error, journal)


if __name__ == "__main__":
    setattr(report_files, "draw_all", once)  # noqa: B010
    for file in ("as_svg", "as_png"):
        setattr(style, file, from_memory(getattr(style, file)))
    sql.PATIENCE = 3
    snapshot_files.LARGE = 1 if sys.argv[2] == "large" else snapshot_files.LARGE
    listener = socket.socket(fileno=int(sys.argv[3]))
    zygote.load()
    warm(sys.argv[1])
    zygote.serve(listener, arm)
