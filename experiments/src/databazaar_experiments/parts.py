"""Finished parts of the evaluation on disk, so that nothing is computed twice and an interruption loses little."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from databazaar.errors import BazaarError
from databazaar_experiments.methods import Measurement
from databazaar_experiments.settings import ImageSettings, MixtureSettings, read_by

Settings = ImageSettings | MixtureSettings


LINEAR = 0.05
"""What a sample costs a linear model, where it costs a network one."""


@dataclass(frozen=True)
class Case:
    """One method on one market: `experiment` is images, runtime or mixture; runtime has a number of providers."""

    experiment: str
    dataset: str
    method: str
    settings: Settings

    @property
    def key(self) -> str:
        """Names the case and all that it depends on: of the settings, those that its method reads."""
        read = json.dumps(read_by(self.method, self.settings), sort_keys=True)
        digest = hashlib.sha256(read.encode()).hexdigest()[:10]
        size = f"-n{self.settings.providers}" if self.experiment == "runtime" else ""
        return f"{self.experiment}-{self.dataset}{size}-{self.method}-{digest}"


@dataclass(frozen=True)
class Part:
    """Some seeds of a case, which are computed in one go and stored in one file."""

    case: Case
    seeds: tuple[int, ...]

    @property
    def name(self) -> str:
        """The name of its file, without the ending."""
        return f"{self.case.key}-seeds{self.seeds[0]}-{self.seeds[-1]}"

    @property
    def kind(self) -> tuple[str, str, str]:
        """Parts of one kind differ in their data and seeds alone."""
        settings = self.case.settings
        network = settings.network if isinstance(settings, ImageSettings) else "linear"
        return network, self.case.method, self.case.experiment

    @property
    def rough_size(self) -> float:
        """The samples that the accesses of all seeds go through: how long it takes beside other parts, roughly."""
        settings = self.case.settings
        samples = len(self.seeds) * settings.rounds * settings.per_round * settings.samples
        return samples if isinstance(settings, ImageSettings) else samples * LINEAR


def save(folder: Path, case: Case, measurement: Measurement, machine: str, jobs: int = 1) -> Path:
    """One file for some seeds of a case; it appears only when it is whole. `jobs` shared the machine meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{Part(case, tuple(measurement.seeds)).name}.npz"
    about: dict[str, Any] = {
        "experiment": case.experiment,
        "dataset": case.dataset,
        "method": case.method,
        "settings": read_by(case.method, case.settings),
        "machine": machine,
        "jobs": jobs,
        "seconds": measurement.seconds,
        "stopped": measurement.stopped,
    }
    draft = path.with_suffix(".partial")
    with draft.open("wb") as file:
        np.savez_compressed(
            file,
            seeds=np.array(measurement.seeds),
            pay=measurement.pay,
            rounds=measurement.rounds,
            curve=measurement.curve,
            permutations=measurement.permutations,
            about=np.frombuffer(json.dumps(about).encode(), dtype=np.uint8),
        )
    draft.replace(path)
    return path


@dataclass(frozen=True)
class Found:
    """All finished seeds of a case, in order, and the `parts` they are from.

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


def find(folder: Path, case: Case, seeds: Sequence[int]) -> Found | None:
    """What is finished of the wanted seeds; None where nothing is."""
    rows: dict[int, tuple[Any, Any, Any]] = {}
    rounds, seconds, machines = np.zeros(0, dtype=np.int64), 0.0, []
    jobs, parts = [], []
    for path in sorted(folder.glob(f"{case.key}-seeds*.npz")):
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
