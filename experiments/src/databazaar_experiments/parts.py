"""Finished pieces of the evaluation on disk, so that nothing is computed twice and an interruption loses little."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from databazaar.errors import BazaarError
from databazaar_experiments.methods import Outcome
from databazaar_experiments.settings import ImageSettings, MixtureSettings

Settings = ImageSettings | MixtureSettings


@dataclass(frozen=True)
class Piece:
    """One method on one market: `experiment` is images, runtime or mixture; runtime has a number of providers."""

    experiment: str
    dataset: str
    method: str
    settings: Settings

    @property
    def key(self) -> str:
        """Names the piece and everything that it depends on."""
        digest = hashlib.sha256(json.dumps(asdict(self.settings), sort_keys=True).encode()).hexdigest()[:10]
        size = f"-n{self.settings.providers}" if self.experiment == "runtime" else ""
        return f"{self.experiment}-{self.dataset}{size}-{self.method}-{digest}"


def part_name(piece: Piece, seeds: Sequence[int]) -> str:
    """The name of the file for these seeds, without its ending."""
    return f"{piece.key}-seeds{seeds[0]}-{seeds[-1]}"


def save(folder: Path, piece: Piece, outcome: Outcome, machine: str, jobs: int = 1) -> Path:
    """One file for some seeds of a piece; it appears only when it is whole. `jobs` shared the machine meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{part_name(piece, outcome.seeds)}.npz"
    about: dict[str, Any] = {
        "experiment": piece.experiment,
        "dataset": piece.dataset,
        "method": piece.method,
        "settings": asdict(piece.settings),
        "machine": machine,
        "jobs": jobs,
        "seconds": outcome.seconds,
        "stopped": outcome.stopped,
    }
    draft = path.with_suffix(".partial")
    with draft.open("wb") as file:
        np.savez_compressed(
            file,
            seeds=np.array(outcome.seeds),
            pay=outcome.pay,
            rounds=outcome.rounds,
            curve=outcome.curve,
            permutations=outcome.permutations,
            about=np.frombuffer(json.dumps(about).encode(), dtype=np.uint8),
        )
    draft.replace(path)
    return path


@dataclass(frozen=True)
class Found:
    """All finished seeds of a piece, in order, and the `parts` they are from.

    `jobs` is how many worker processes shared the machine, the most of all parts; 0 where a part does not say.
    """

    seeds: list[int]
    pay: np.ndarray
    rounds: np.ndarray
    curve: np.ndarray
    permutations: np.ndarray
    seconds: float
    machines: tuple[str, ...]
    jobs: int
    parts: tuple[str, ...]


def find(folder: Path, piece: Piece, seeds: Sequence[int]) -> Found | None:
    """What is finished of the wanted seeds; None where nothing is."""
    rows: dict[int, tuple[Any, Any, Any]] = {}
    rounds, seconds, machines = np.zeros(0, dtype=np.int64), 0.0, []
    jobs, parts = [], []
    for path in sorted(folder.glob(f"{piece.key}-seeds*.npz")):
        try:
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            about = json.loads(arrays["about"].tobytes())
        except (OSError, ValueError, KeyError, zipfile.BadZipFile):
            raise BazaarError(f"{path} cannot be read: remove it, it is computed again") from None
        for place, seed in enumerate(arrays["seeds"].tolist()):
            if seed in seeds and seed not in rows:
                rows[seed] = tuple(_row(arrays[name], place) for name in ("pay", "curve", "permutations"))
        rounds = arrays["rounds"]
        seconds += about["seconds"]
        machines.append(about["machine"])
        jobs.append(about.get("jobs", 0))  # parts from before it was noted
        parts.append(path.stem)
    if not rows:
        return None
    done = sorted(rows)
    pay, curve, permutations = (np.array([rows[seed][i] for seed in done]) for i in range(3))
    shared = max(jobs) if all(jobs) else 0
    return Found(done, pay, rounds, curve, permutations, seconds, tuple(dict.fromkeys(machines)), shared, tuple(parts))


def _row(values: np.ndarray, place: int) -> Any:
    return values[place] if len(values) else np.zeros(0)
