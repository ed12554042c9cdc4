"""How long each run of the evaluation took by the wall clock: a line a run, beside the parts that it computed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = "walls.jsonl"


@dataclass(frozen=True)
class Wall:
    """One run: on which machine, with how many worker processes, for how long, and which parts came of it."""

    machine: str
    jobs: int
    seconds: float
    parts: tuple[str, ...]


def append(folder: Path, wall: Wall) -> None:
    """Adds a line in one write, so that runs beside each other do not mix theirs."""
    line = json.dumps({**asdict(wall), "seconds": round(wall.seconds, 3)}) + "\n"
    with (folder / FILE).open("a", encoding="utf-8") as file:
        file.write(line)


def read(folder: Path) -> tuple[Wall, ...]:
    """All runs that were recorded, in their order. A line cut off by a crash is left out: its parts are not timed."""
    path = folder / FILE
    walls = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        with suppress(ValueError, KeyError, TypeError):
            told = json.loads(line)
            walls.append(Wall(told["machine"], int(told["jobs"]), float(told["seconds"]), tuple(told["parts"])))
    return tuple(walls)


def behind(walls: Sequence[Wall], parts: frozenset[str]) -> tuple[list[Wall], frozenset[str]]:
    """The runs that these parts came of, and the parts of which no run is recorded."""
    mine = [wall for wall in walls if parts & set(wall.parts)]
    return mine, parts - {part for wall in mine for part in wall.parts}
