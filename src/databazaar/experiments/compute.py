"""Computes what is missing of the evaluation. Runs with torch and NumPy alone:

python -m databazaar.experiments.compute --what all --seeds 10 --data-dir DATA --out OUT --jobs 6
"""

from __future__ import annotations

import argparse
import multiprocessing
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from databazaar.data.datasets import SOURCES
from databazaar.engines.select import pick_device
from databazaar.errors import BazaarError
from databazaar.experiments.images import image_market
from databazaar.experiments.methods import METHODS, SHAPLEY, Market, run_method
from databazaar.experiments.mixture import mixture_market
from databazaar.experiments.parts import Piece, find, save
from databazaar.experiments.protocol_figures import FIGURES
from databazaar.experiments.protocol_text import TEXT
from databazaar.experiments.settings import ImageSettings, MixtureSettings, Protocol, changed

PROTOCOLS = {protocol.name: protocol for protocol in (FIGURES, TEXT)}
WHATS = ("revenue", "accuracy", "runtime", "mixture")
SIDE_BY_SIDE = 10
"""Seeds that a GPU trains in one batch; on a CPU it is one, so that little is lost when it is interrupted."""


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
        changes = self.changes or {}
        wanted = [m for m in METHODS if m in self.methods and ("revenue" in self.whats or m not in SHAPLEY)]
        if "mixture" in self.whats:
            settings = changed(protocol.mixture, changes)
            for method in (m for m in reversed(METHODS) if m in self.methods):
                yield Piece("mixture", "mixture", method, settings), self.mixture_seeds
        for dataset in reversed(self.datasets):
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


@dataclass(frozen=True)
class Chore:
    """Some seeds of a piece, to be computed in one go. `cost` is a rough count of local epochs, for the time left."""

    piece: Piece
    seeds: tuple[int, ...]

    @property
    def cost(self) -> float:
        settings = self.piece.settings
        work = {"osmd": 1.0, "uniform": 1.0, "fedsv": 6.0, "g-shapley": 4.0}[self.piece.method]
        size = settings.samples * (3.0 if isinstance(settings, ImageSettings) and settings.network == "cnn" else 1.0)
        return len(self.seeds) * settings.rounds * settings.per_round * work * size


def missing(plan: Plan, folder: Path, together: int) -> list[Chore]:
    """What is not on disk yet, in bites of at most `together` seeds."""
    chores = []
    for piece, count in plan.pieces():
        found = find(folder, piece, range(count))
        left = [seed for seed in range(count) if found is None or seed not in found.seeds]
        chores += [Chore(piece, tuple(left[i : i + together])) for i in range(0, len(left), together)]
    return chores


def market_of(piece: Piece, data: Path | None) -> Market:
    if isinstance(piece.settings, MixtureSettings):
        return mixture_market(piece.settings)
    return image_market(piece.dataset, piece.settings, data)


def do(chore: Chore, folder: Path, data: Path | None, device: str, threads: int = 0) -> tuple[Chore, float]:
    """Computes one chore and stores it; gives it back with the seconds it took."""
    if threads:
        torch.set_num_threads(threads)
    market = market_of(chore.piece, data)
    outcome = run_method(chore.piece.method, market, chore.seeds, device)
    save(folder, chore.piece, outcome, machine(device))
    return chore, outcome.seconds


def machine(device: str) -> str:
    return torch.cuda.get_device_name(0) if device.startswith("cuda") else f"{platform.machine()} CPU"


def compute(
    plan: Plan,
    folder: Path,
    data: Path | None = None,
    device: str = "auto",
    jobs: int = 1,
    tell: Callable[[Chore, float, int, int, float], None] | None = None,
) -> None:
    """Computes everything that is missing. `tell(chore, seconds, done, all, seconds left)` hears of each chore."""
    where = str(pick_device(device))
    together = SIDE_BY_SIDE if where.startswith("cuda") else 1
    chores = missing(plan, folder, together)
    begun, done_cost, all_cost = time.perf_counter(), 0.0, sum(chore.cost for chore in chores)
    for done, (chore, seconds) in enumerate(_results(chores, folder, data, where, jobs), 1):
        done_cost += chore.cost
        left = (time.perf_counter() - begun) * (all_cost / done_cost - 1)
        if tell is not None:
            tell(chore, seconds, done, len(chores), left)


def _results(
    chores: Sequence[Chore], folder: Path, data: Path | None, device: str, jobs: int
) -> Iterator[tuple[Chore, float]]:
    timed = [chore for chore in chores if chore.piece.experiment == "runtime"]
    free = [chore for chore in chores if chore.piece.experiment != "runtime"]
    if jobs > 1 and free:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(jobs, mp_context=context) as pool:
            futures = [pool.submit(do, chore, folder, data, device, 1) for chore in free]
            for future in as_completed(futures):
                yield future.result()
        free = []
    for chore in [*free, *timed]:  # what is timed runs alone
        yield do(chore, folder, data, device)


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
    parser.add_argument("--jobs", type=int, default=1)
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

    def tell(chore: Chore, seconds: float, done: int, count: int, left: float) -> None:
        seeds = f"{len(chore.seeds)} seeds"
        sys.stdout.write(f"{done}/{count} {chore.piece.key} {seeds}: {seconds:.1f} s, about {left:.0f} s left\n")
        sys.stdout.flush()

    begun = time.perf_counter()
    compute(plan, given.out, given.data_dir, given.device, given.jobs, tell)
    sys.stdout.write(f"all of it: {time.perf_counter() - begun:.1f} s on {machine(str(pick_device(given.device)))}\n")


if __name__ == "__main__":
    main()
