"""Parts at work: one after the other in this process, or several at a time in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import platform
import re
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache, partial
from pathlib import Path

import torch

from databazaar.errors import BazaarError
from databazaar_experiments.datasets import SOURCES, load_images
from databazaar_experiments.images import market_from
from databazaar_experiments.methods import PaperMarket, run_method
from databazaar_experiments.mixture import mixture_market
from databazaar_experiments.parts import Part, Settings, save
from databazaar_experiments.progress import Meter, Shares
from databazaar_experiments.protocol_quick import QUICK, SYNTHETIC, synthetic_images
from databazaar_experiments.settings import MixtureSettings

MOST_JOBS = 12
"""Worker processes that share a GPU where nobody says how many."""
REPORT_EVERY = 0.5
"""Seconds between two reports on what other processes compute."""
TOO_FULL = "perhaps for want of memory: the same command goes on, with fewer --jobs"


def jobs_for(device: str) -> int:
    """One on a CPU, whose threads one process uses already; on a GPU three for every four cores, up to 12."""
    return max(1, min(MOST_JOBS, 3 * cores() // 4)) if device.startswith("cuda") else 1


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


images_of = lru_cache(maxsize=1)(load_images)  # so do the markets of one dataset


@lru_cache(maxsize=1)  # the parts of one market come one after the other
def market_of(dataset: str, settings: Settings, data: Path | None) -> PaperMarket:
    if isinstance(settings, MixtureSettings):
        return mixture_market(settings)
    if dataset in QUICK.images:
        return market_from(synthetic_images(), SYNTHETIC, settings)
    return market_from(images_of(dataset, data), SOURCES[dataset], settings)


def compute_part(
    part: Part, folder: Path, data: Path | None, device: str, jobs: int, on_share: Callable[[float], None]
) -> float:
    """Computes one part and stores it; gives the seconds it took, with all that it had to load."""
    begun = time.monotonic()
    on_share(0.0)
    if jobs > 1:
        torch.set_num_threads(1)
    market = market_of(part.case.dataset, part.case.settings, data)
    measurement = run_method(part.case.method, market, part.seeds, device, on_share)
    save(folder, part.case, measurement, machine(device), jobs)
    return time.monotonic() - begun


def in_this_process(places: Sequence[int], meter: Meter, folder: Path, data: Path | None, device: str) -> None:
    """Computes the meter's parts at these places, one after the other."""
    for place in places:
        seconds = compute_part(meter.parts[place], folder, data, device, 1, partial(meter.advance, place))
        meter.finish(place, seconds)


def in_processes(places: Sequence[int], meter: Meter, folder: Path, data: Path | None, device: str, jobs: int) -> None:
    """The same in several processes. Interrupted, they end at once; what they had finished is on disk."""
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _start, (meter.shares,))
    try:
        waiting = {pool.submit(_work, place, meter.parts[place], folder, data, device, jobs) for place in places}
        while waiting:
            done, waiting = wait(waiting, REPORT_EVERY, FIRST_COMPLETED)
            meter.report()
            for future in done:
                meter.finish(*future.result())
    except BrokenProcessPool:
        raise BazaarError(f"a worker process died, {TOO_FULL}") from None
    except torch.OutOfMemoryError:
        raise BazaarError(f"{machine(device)} is full, {TOO_FULL}") from None
    finally:
        for worker in list((pool._processes or {}).values()):
            worker.terminate()
        pool.shutdown(cancel_futures=True)


_shares: Shares = []
"""In a worker process, the memory that it has in common with the parent."""


def _start(shares: Shares) -> None:
    global _shares
    _shares = shares
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # interrupts are the parent's


def _work(place: int, part: Part, folder: Path, data: Path | None, device: str, jobs: int) -> tuple[int, float]:
    return place, compute_part(part, folder, data, device, jobs, partial(_shares.__setitem__, place))
