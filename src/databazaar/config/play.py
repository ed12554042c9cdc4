"""A job played in a run's folder, from its start or from where it was stopped."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from databazaar import __version__
from databazaar.config.jobs import Job
from databazaar.engines import Engine
from databazaar.market.arbiter import Arbiter
from databazaar.market.purchase import judge_purchase
from databazaar.market.run import OnRound
from databazaar.runs.folder import RunFolder


@dataclass(frozen=True)
class Playing:
    """A job with its arbiter and folder. `changed` is what of the environment is not as it was when the run began."""

    job: Job
    arbiter: Arbiter
    folder: RunFolder
    changed: dict[str, str] = field(default_factory=dict)

    def settle(self, tell: OnRound | None = None) -> None:
        """Plays the run to its end. `tell` gets the Progress after every round."""
        self.arbiter.run(self.folder, tell=tell)

    def judge(self) -> None:
        """Sets the model beside the alternatives. The consumer has rows for that: see `Job.can_be_judged`."""
        bought = self.folder.delivered()
        worth = judge_purchase(self.arbiter, self.folder.report(), bought=bought, scale=self.job.target_scale)
        self.folder.note_worth(worth)


@contextmanager
def begun(job: Job, path: Path, id: str | None = None, engine: Engine | None = None) -> Iterator[Playing]:
    """A new run: once the job is known to be sound, its folder is made, with an `id` under that one."""
    with job.consumer.limited_threads(), closing(job.arbiter(engine=engine)) as arbiter:  # finds what else is wrong
        recipe = {**job.recipe, "title": job.title, **({} if id is None else {"id": id})}
        folder = RunFolder.create(path, recipe, job.profile)
        folder.state(environment_of(arbiter.engine.device))
        yield Playing(job, arbiter, folder)


def is_over(job: Job, folder: RunFolder) -> bool:
    """Whether the run is finished, and judged where it can be."""
    return folder.finished and (folder.worth() is not None or not job.can_be_judged)


@contextmanager
def resumed(job: Job, folder: RunFolder, begun_in: dict[str, str], engine: Engine | None = None) -> Iterator[Playing]:
    """A run from where its folder stands. `begun_in` is the environment that the ledger names: another one is allowed,
    and noted."""
    with job.consumer.limited_threads(), closing(job.arbiter(engine=engine)) as arbiter:
        here = environment_of(arbiter.engine.device)
        folder.state(here)
        changed = {name: value for name, value in here.items() if begun_in and begun_in.get(name) != value}
        if changed and not folder.finished:
            folder.note_resumed(in_words(changed))
        yield Playing(job, arbiter, folder, {} if folder.finished else changed)


def environment_of(device: torch.device) -> dict[str, str]:
    """The program, what it computes with, and where."""
    where = f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)
    return {
        "databazaar": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "device": where,
        "threads": str(torch.get_num_threads()),
    }


def in_words(environment: dict[str, str]) -> str:
    """One line for people.

    >>> in_words({"databazaar": "0.5.0", "device": "cpu"})
    'databazaar 0.5.0, device cpu'
    """
    return ", ".join(f"{name} {value}" for name, value in environment.items())
