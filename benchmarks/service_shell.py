"""`bazaar` as it is, which also notes when its rounds were over: `python service_shell.py TIMES run market.toml …`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from databazaar.cli import main
from databazaar.config.play import Playing
from databazaar.market.run import OnRound, Progress


def note_rounds(file: Path) -> None:
    """From here on a run notes when its first and last rounds were over, what it had worked by then, and how many there
    were."""
    settle = Playing.settle

    def noting(self: Playing, tell: OnRound | None = None) -> None:
        first = last = (0.0, 0.0)
        rounds = 0

        def told(progress: Progress) -> None:
            nonlocal first, last, rounds
            last, rounds = (time.time(), time.process_time()), progress.round
            first = first if any(first) else last
            if tell is not None:
                tell(progress)

        settle(self, told)
        file.write_text(json.dumps({"first": first, "last": last, "rounds": rounds}))

    Playing.settle = noting  # type: ignore[method-assign]


if __name__ == "__main__":
    note_rounds(Path(sys.argv[1]))
    sys.argv = ["bazaar", *sys.argv[2:]]
    main()
