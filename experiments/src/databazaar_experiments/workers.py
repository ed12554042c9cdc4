"""Chores at work: one after the other in this process, or side by side in several."""

from __future__ import annotations

import multiprocessing
import os
import platform
import re
import signal
import time
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from databazaar.errors import BazaarError
from databazaar_experiments.images import image_market, market_from
from databazaar_experiments.methods import Market, run_method
from databazaar_experiments.mixture import mixture_market
from databazaar_experiments.parts import Settings, save
from databazaar_experiments.protocol_quick import QUICK, SYNTHETIC, synthetic_images
from databazaar_experiments.settings import MixtureSettings
from databazaar_experiments.watch import BEGUN

if TYPE_CHECKING:
    from databazaar_experiments.compute import Chore

MOST_JOBS = 8
"""Worker processes that share a GPU where nobody says how many."""
TOO_FULL = "perhaps for want of memory: the same command goes on, with fewer --jobs"
Shares = MutableSequence[float]


def jobs_for(device: str) -> int:
    """One on a CPU, whose threads one process uses already; on a GPU one for every other core, up to eight."""
    return max(1, min(MOST_JOBS, cores() // 2)) if device.startswith("cuda") else 1


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(0)
    return f"{platform.machine()} CPU, {os.cpu_count()} cores"


def is_gpu(name: str) -> bool:
    """Whether `machine` gave this name to a GPU.

    >>> is_gpu("NVIDIA H200"), is_gpu("x86_64 CPU, 2 cores")
    (True, False)
    """
    return not re.fullmatch(r".* CPU, \d+ cores", name)


@lru_cache(maxsize=1)  # the chores of one market come one after the other
def market_of(dataset: str, settings: Settings, data: Path | None) -> Market:
    if isinstance(settings, MixtureSettings):
        return mixture_market(settings)
    if dataset in QUICK.images:
        return market_from(synthetic_images(), SYNTHETIC, settings)
    return image_market(dataset, settings, data)


def do(
    chore: Chore,
    folder: Path,
    data: Path | None,
    device: str,
    jobs: int = 1,
    tell: Callable[[float], None] = lambda share: None,
) -> float:
    """Computes one chore and stores it; gives the seconds it took, with all that it had to load."""
    begun = time.monotonic()
    if jobs > 1:
        torch.set_num_threads(1)
    market = market_of(chore.piece.dataset, chore.piece.settings, data)
    outcome = run_method(chore.piece.method, market, chore.seeds, device, tell)
    save(folder, chore.piece, outcome, machine(device), jobs)
    return time.monotonic() - begun


def one_by_one(
    chores: Sequence[tuple[int, Chore]], folder: Path, data: Path | None, device: str, shares: Shares
) -> Iterator[tuple[int, float]]:
    """In this process. Gives the place of each chore as it is finished, and its seconds."""
    for place, chore in chores:
        shares[place] = BEGUN
        yield place, do(chore, folder, data, device, 1, partial(raise_to, shares, place))


def side_by_side(
    chores: Sequence[tuple[int, Chore]], folder: Path, data: Path | None, device: str, jobs: int, shares: Shares
) -> Iterator[tuple[int, float]]:
    """The same in several processes. Interrupted, they end at once; what they had finished is on disk."""
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _begin, (shares,))
    try:
        futures = [pool.submit(_work, place, chore, folder, data, device, jobs) for place, chore in chores]
        for future in as_completed(futures):
            yield future.result()
    except BrokenProcessPool:
        raise BazaarError(f"a worker process died, {TOO_FULL}") from None
    except torch.OutOfMemoryError:
        raise BazaarError(f"{machine(device)} is full, {TOO_FULL}") from None
    finally:
        for worker in list((pool._processes or {}).values()):
            worker.terminate()
        pool.shutdown(cancel_futures=True)


def raise_to(shares: Shares, place: int, share: float) -> None:
    shares[place] = max(share, BEGUN)


def new_shares(count: int, jobs: int) -> Shares:
    """A number a chore; for several processes in memory that they share, without a lock."""
    if jobs == 1:
        return [0.0] * count
    shared: Shares = multiprocessing.get_context("spawn").RawArray("d", count)
    return shared


_shares: Shares = []
"""In a worker process, the numbers that it shares with the parent."""


def _begin(shares: Shares) -> None:
    global _shares
    _shares = shares
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # interrupts are the parent's


def _work(place: int, chore: Chore, folder: Path, data: Path | None, device: str, jobs: int) -> tuple[int, float]:
    raise_to(_shares, place, 0.0)
    return place, do(chore, folder, data, device, jobs, partial(raise_to, _shares, place))
