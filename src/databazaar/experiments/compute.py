"""Computes what is missing of the evaluation. Runs with torch and NumPy alone:

python -m databazaar.experiments.compute --what all --seeds 10 --data-dir DATA --out OUT --jobs 6
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch

from databazaar.data.datasets import SOURCES
from databazaar.engines.select import pick_device
from databazaar.errors import BazaarError
from databazaar.experiments.forecast import Forecast
from databazaar.experiments.images import image_market, market_from
from databazaar.experiments.methods import METHODS, SHAPLEY, Market, run_method
from databazaar.experiments.mixture import mixture_market
from databazaar.experiments.parts import Piece, Settings, find, save
from databazaar.experiments.protocol_figures import FIGURES
from databazaar.experiments.protocol_quick import QUICK, SYNTHETIC, synthetic_images
from databazaar.experiments.protocol_text import TEXT
from databazaar.experiments.settings import ImageSettings, MixtureSettings, Protocol, changed, checked

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


WORK = {"osmd": 1.0, "uniform": 1.0, "fedsv": 3.5, "g-shapley": 3.5}
"""What a round of a method costs against a round of OSMD: measured on a GPU with 100 providers."""


@dataclass(frozen=True)
class Chore:
    """Some seeds of a piece, to be computed in one go. `cost` is a rough count of local epochs, for the time left."""

    piece: Piece
    seeds: tuple[int, ...]

    @property
    def kind(self) -> tuple[str, str, str]:
        """Chores of one kind take about as long for each unit of their cost."""
        settings = self.piece.settings
        network = settings.network if isinstance(settings, ImageSettings) else "linear"
        return self.piece.experiment, network, self.piece.method

    @property
    def cost(self) -> float:
        settings = self.piece.settings
        size = {"mlp": 1.0, "cnn": 3.0, "linear": 0.3}[self.kind[1]] * settings.samples
        return len(self.seeds) * settings.rounds * settings.per_round * WORK[self.piece.method] * size


def missing(plan: Plan, folder: Path, together: int) -> list[Chore]:
    """What is not on disk yet, in bites of at most `together` seeds; of the mixture more, unless one by one."""
    chores = []
    for piece, count in plan.pieces():
        found = find(folder, piece, range(count))
        left = [seed for seed in range(count) if found is None or seed not in found.seeds]
        size = MIXTURES_SIDE_BY_SIDE if together > 1 and piece.experiment == "mixture" else together
        chores += [Chore(piece, tuple(left[i : i + size])) for i in range(0, len(left), size)]
    return chores


@lru_cache(maxsize=1)  # the chores of one market come one after the other
def market_of(dataset: str, settings: Settings, data: Path | None) -> Market:
    if isinstance(settings, MixtureSettings):
        return mixture_market(settings)
    if dataset in QUICK.images:
        return market_from(synthetic_images(), SYNTHETIC, settings)
    return image_market(dataset, settings, data)


def do(chore: Chore, folder: Path, data: Path | None, device: str, threads: int = 0) -> tuple[Chore, float]:
    """Computes one chore and stores it; gives it back with the seconds it took."""
    if threads:
        torch.set_num_threads(threads)
    market = market_of(chore.piece.dataset, chore.piece.settings, data)
    outcome = run_method(chore.piece.method, market, chore.seeds, device)
    save(folder, chore.piece, outcome, machine(device))
    return chore, outcome.seconds


def machine(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(0)
    return f"{platform.machine()} CPU, {os.cpu_count()} cores"


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
    forecast = Forecast((chore.kind, chore.cost) for chore in chores)
    for done, (chore, seconds) in enumerate(_results(chores, folder, data, where, jobs), 1):
        forecast.finished(chore.kind, chore.cost, seconds)
        if tell is not None:
            tell(chore, seconds, done, len(chores), forecast.seconds_left())


def _results(
    chores: Sequence[Chore], folder: Path, data: Path | None, device: str, jobs: int
) -> Iterator[tuple[Chore, float]]:
    timed = [chore for chore in chores if chore.piece.experiment == "runtime"]
    free = [chore for chore in chores if chore.piece.experiment != "runtime"]
    if jobs > 1 and free:
        yield from _side_by_side(free, folder, data, device, jobs)
        free = []
    for chore in [*free, *timed]:  # what is timed runs alone
        yield do(chore, folder, data, device)


def _side_by_side(
    chores: Sequence[Chore], folder: Path, data: Path | None, device: str, jobs: int
) -> Iterator[tuple[Chore, float]]:
    """Several worker processes. Interrupted, they end at once; what they had finished is on disk."""
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _leave_interrupts_to_the_parent)
    try:
        futures = [pool.submit(do, chore, folder, data, device, 1) for chore in chores]
        for future in as_completed(futures):
            yield future.result()
    except BrokenProcessPool:
        raise BazaarError(
            "a worker process died, perhaps for want of memory: the same command goes on, with fewer --jobs"
        ) from None
    finally:
        for worker in list((pool._processes or {}).values()):
            worker.terminate()
        pool.shutdown(cancel_futures=True)


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


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
