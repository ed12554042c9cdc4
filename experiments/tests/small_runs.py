"""Evaluations that take seconds: the quick protocol, made smaller still."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from databazaar_experiments.methods import PAPER_METHODS, Measurement
from databazaar_experiments.parts import Case, save
from databazaar_experiments.plan import ReproductionPlan
from databazaar_experiments.results import Results, gather, groups_of

torch.set_num_threads(1)

TINY = {
    "images.rounds": "3",
    "images.providers": "8",
    "images.group_sizes": "2,2,2,2",
    "images.samples": "10",
    "images.holdout": "40",
    "images.per_round": "2",
    "images.g_max_permutations": "3",
    "images.fed_max_permutations": "3",
    "runtime.providers": "4,8",
    "runtime.samples": "10",
    "runtime.rounds": "2",
    "mixture.rounds": "6",
    "mixture.providers": "8",
    "mixture.dimensions": "10",
    "mixture.samples": "20",
    "mixture.per_round": "2",
    "mixture.g_max_permutations": "5",
    "mixture.fed_max_permutations": "5",
}
SETS = [part for name, value in TINY.items() for part in ("--set", f"{name}={value}")]


def tiny_plan(*whats: str, seeds: int = 2, methods: tuple[str, ...] = PAPER_METHODS) -> ReproductionPlan:
    return ReproductionPlan(whats or ("revenue",), ("synthetic",), seeds, seeds, "quick", methods, TINY)


def pretend(
    folder: Path,
    case: Case,
    pay_by_group: list[float],
    final: float = 0.9,
    seeds: int = 10,
    machine: str = "a <machine> & more",
    seconds: float = 7.0,
    jobs: int = 1,
) -> None:
    """A finished part in which every provider of a group earns the same, and every seed ends alike."""
    groups = groups_of(case.settings)
    pay = np.tile(np.array(pay_by_group)[groups], (seeds, 1))
    curve = np.tile(np.linspace(0.1 if final < 1 else 40.0, final, 3), (seeds, 1))
    measurement = Measurement(list(range(seeds)), pay, np.array([1, 250, 500]), curve, seconds=seconds)
    save(folder, case, measurement, machine, jobs)


def pretended(folder: Path, made: dict[tuple[str, str], tuple[list[float], float]], plan: ReproductionPlan) -> Results:
    """Results of the plan in which only the given (dataset, method) are there."""
    for case, wanted in plan.cases():
        if case.experiment != "runtime" and (case.dataset, case.method) in made:
            pay, final = made[case.dataset, case.method]
            pretend(folder, case, pay, final, wanted)
    return gather(plan, folder)
