"""Computes what is missing of the evaluation. Runs with torch and NumPy alone:

python -m databazaar_experiments.compute --what all --seeds 10 --data-dir DATA --out OUT
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from databazaar.engines.select import pick_device
from databazaar.errors import BazaarError
from databazaar_experiments import walls
from databazaar_experiments.datasets import SOURCES
from databazaar_experiments.forecast import Forecast, Work
from databazaar_experiments.methods import METHODS, SHAPLEY
from databazaar_experiments.parts import Piece, find, part_name
from databazaar_experiments.protocol_figures import FIGURES
from databazaar_experiments.protocol_quick import QUICK
from databazaar_experiments.protocol_text import TEXT
from databazaar_experiments.settings import ImageSettings, Protocol, changed, checked
from databazaar_experiments.walls import Wall
from databazaar_experiments.watch import News, Tell, Watch, looking
from databazaar_experiments.workers import jobs_for, machine, new_shares, one_by_one, side_by_side

PROTOCOLS = {protocol.name: protocol for protocol in (FIGURES, TEXT, QUICK)}
WHATS = ("revenue", "accuracy", "runtime", "mixture")
SIDE_BY_SIDE = 10
"""Seeds that a GPU trains in one batch; on a CPU it is one, so that little is lost when it is interrupted."""
MIXTURES_SIDE_BY_SIDE = 25
"""The same for the mixture, whose model is so small that a batch of ten leaves a GPU waiting."""


@dataclass(frozen=True)
class Plan:
    """What is to be reproduced: experiments, datasets, seeds, and settings changed on the command line."""

    whats: tuple[str, ...] = WHATS
    datasets: tuple[str, ...] = tuple(SOURCES)
    seeds: int = 10
    mixture_seeds: int = 100
    protocol: str = "figures"
    methods: tuple[str, ...] = METHODS
    changes: Mapping[str, str] | None = None

    def pieces(self) -> Iterator[tuple[Piece, int]]:
        """Every piece with the number of its seeds; long ones first, so that workers end together."""
        protocol = _chosen(self.protocol)
        changes = checked(self.changes or {})
        wanted = [m for m in METHODS if m in self.methods and ("revenue" in self.whats or m not in SHAPLEY)]
        if "mixture" in self.whats:
            settings = changed(protocol.mixture, changes)
            for method in (m for m in reversed(METHODS) if m in self.methods):
                yield Piece("mixture", "mixture", method, settings), self.mixture_seeds
        for dataset in reversed(self.datasets):
            if dataset not in protocol.images:
                raise BazaarError(f"dataset {dataset!r} is unknown: use {', '.join(protocol.images)}")
            images = changed(protocol.images[dataset], changes)
            if "revenue" in self.whats or "accuracy" in self.whats:
                for method in reversed(wanted):
                    yield Piece("images", dataset, method, images), self.seeds
            if "runtime" in self.whats:
                runtime = changed(protocol.runtime, changes)
                for n in runtime.providers:
                    sized = replace(
                        images,
                        providers=n,
                        samples=runtime.samples,
                        per_round=max(1, round(n * runtime.share_per_round)),
                        rounds=runtime.rounds,
                    )
                    for method in (m for m in METHODS if m in self.methods):
                        yield Piece("runtime", dataset, method, sized), 1


def _chosen(name: str) -> Protocol:
    if name not in PROTOCOLS:
        raise BazaarError(f"protocol {name!r} is unknown: use {' or '.join(PROTOCOLS)}")
    return PROTOCOLS[name]


WORK = {"osmd": 1.0, "uniform": 0.6, "fedsv": 2.0, "g-shapley": 2.0}
"""What a round of a method costs against a round of OSMD: roughly, from parts measured on a GPU with 100 providers."""
SIZE = {"mlp": 1.0, "cnn": 1.5, "linear": 0.3}
"""What a sample of a network costs: roughly, from the same parts."""
LINEAR_ON_A_CPU = 0.02


@dataclass(frozen=True)
class Chore:
    """Some seeds of a piece, to be computed in one go."""

    piece: Piece
    seeds: tuple[int, ...]

    @property
    def kind(self) -> tuple[str, str, str]:
        """Chores of one kind take about as long for each unit of their cost."""
        settings = self.piece.settings
        network = settings.network if isinstance(settings, ImageSettings) else "linear"
        return network, self.piece.method, self.piece.experiment

    def cost(self, gpu: bool) -> float:
        """A rough count of local epochs, for the time left."""
        settings, network = self.piece.settings, self.kind[0]
        size = settings.samples * (SIZE[network] if gpu or network != "linear" else LINEAR_ON_A_CPU)
        return len(self.seeds) * settings.rounds * settings.per_round * WORK[self.piece.method] * size


def missing(plan: Plan, folder: Path, together: int) -> list[Chore]:
    """What is not on disk yet, in bites of at most `together` seeds; of the mixture more, unless one by one.

    One chore of each kind comes first: that tells the time left, and something of everything is there early.
    """
    chores = []
    for piece, count in plan.pieces():
        found = find(folder, piece, range(count))
        left = [seed for seed in range(count) if found is None or seed not in found.seeds]
        size = MIXTURES_SIDE_BY_SIDE if together > 1 and piece.experiment == "mixture" else together
        chores += [Chore(piece, tuple(left[i : i + size])) for i in range(0, len(left), size)]
    first = {chore.kind: chore for chore in reversed(chores)}
    return sorted(chores, key=lambda chore: first[chore.kind] is not chore)


def compute(
    plan: Plan,
    folder: Path,
    data: Path | None = None,
    device: str = "auto",
    jobs: int | None = None,
    tell: Tell = lambda news: None,
) -> None:
    """Computes everything that is missing. `tell` hears of it about twice a second, and as each chore is finished.

    `jobs` are worker processes: one on a CPU and several on a GPU unless you say. What is timed runs alone.
    """
    where = str(pick_device(device))
    gpu = where.startswith("cuda")
    chores = missing(plan, folder, SIDE_BY_SIDE if gpu else 1)
    if not chores:
        return
    alone = [timed(chore, gpu) for chore in chores]
    jobs = min(jobs or jobs_for(where), max(alone.count(False), 1))
    shares = new_shares(len(chores), jobs)
    works = [Work(chore.kind, chore.cost(gpu), single) for chore, single in zip(chores, alone, strict=True)]
    watch = Watch(chores, Forecast(works, jobs), shares, tell)
    begun = time.monotonic()
    free = [(place, chore) for place, chore in enumerate(chores) if not alone[place]]
    rest = [(place, chore) for place, chore in enumerate(chores) if alone[place]]
    rest.sort(key=lambda numbered: (numbered[1].piece.dataset, numbered[1].piece.settings.providers))  # loads each once
    try:
        with looking(watch):
            if jobs > 1:
                for place, seconds in side_by_side(free, folder, data, where, jobs, shares):
                    watch.finished(place, seconds)
                free = []
            for place, seconds in one_by_one([*free, *rest], folder, data, where, shares):
                watch.finished(place, seconds)
    finally:
        names = [part_name(chore.piece, chore.seeds) for chore in chores]
        done = tuple(name for name in names if (folder / f"{name}.npz").exists())
        if done:
            walls.append(folder, Wall(machine(where), jobs, time.monotonic() - begun, done))


def timed(chore: Chore, gpu: bool) -> bool:
    """Whether a chore's own seconds are a result: the runtime study, and on a GPU MNIST with OSMD."""
    piece = chore.piece
    return piece.experiment == "runtime" or (gpu and (piece.dataset, piece.method) == ("mnist", "osmd"))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--what", default="all")
    parser.add_argument("--dataset", default=",".join(SOURCES))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--mixture-seeds", type=int, default=100)
    parser.add_argument("--protocol", default="figures")
    parser.add_argument("--data-dir", type=Path, default=None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args(arguments)
    plan = Plan(
        whats=WHATS if given.what == "all" else tuple(given.what.split(",")),
        datasets=tuple(given.dataset.split(",")),
        seeds=given.seeds,
        mixture_seeds=given.mixture_seeds,
        protocol=given.protocol,
        methods=tuple(given.methods.split(",")),
        changes=dict(change.split("=", 1) for change in given.set),
    )

    def tell(news: News) -> None:
        if news.finished is not None:
            name = f"{news.finished.piece.key} {len(news.finished.seeds)} seeds"
            left = f", about {news.left:.0f} s left" if math.isfinite(news.left) else ""
            sys.stdout.write(f"{news.done}/{news.count} {name}: {news.seconds:.1f} s{left}\n")
            sys.stdout.flush()

    begun = time.perf_counter()
    compute(plan, given.out, given.data_dir, given.device, given.jobs, tell)
    sys.stdout.write(f"all of it: {time.perf_counter() - begun:.1f} s on {machine(str(pick_device(given.device)))}\n")


if __name__ == "__main__":
    main()
