"""The processes in which I/O fails, forked as tests/system/zygote.py does it, with every figure drawn only once.

What is tested is what reaches the disk. The market is always the same, and so are its figures: the first process that
needs one is the zygote itself, and all others write the bytes that it got.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "system"))

import zygote
from matplotlib.figure import Figure

import databazaar.cli.play as playing
from databazaar.cli.app import main
from databazaar.ledger import sql
from databazaar.reports import draw_all

drawn: dict[str, Figure] = {}
written: dict[tuple[int, str], bytes] = {}
savefig = Figure.savefig


def once(report: Any) -> dict[str, Figure]:
    if not drawn:
        drawn.update(draw_all(report))
    return drawn


def from_memory(self: Figure, target: Any, *, format: str, **more: Any) -> None:
    key = id(self), format
    if key not in written:
        made = io.BytesIO()
        savefig(self, made, format=format, **more)
        written[key] = made.getvalue()
    if isinstance(target, io.StringIO):
        target.write(written[key].decode())
    elif isinstance(target, io.BytesIO):
        target.write(written[key])
    else:
        with Path(target).open("w+b") as file:
            file.write(written[key])


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


if __name__ == "__main__":
    setattr(playing, "draw_all", once)  # noqa: B010
    setattr(Figure, "savefig", from_memory)  # noqa: B010
    sql.PATIENCE = 3
    warm(sys.argv[1])
    zygote.serve()
