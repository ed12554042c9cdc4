"""The published numbers, read from the authors' vector figures: MNIST, Fashion-MNIST, the mixture, all runtimes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

METHOD_NAMES = {"osmd": "OSMD", "uniform": "uniform", "g-shapley": "G-Shapley", "fedsv": "FedSV-PS"}
DATASET_NAMES = {
    "mnist": "MNIST",
    "fmnist": "FMNIST",
    "kmnist": "KMNIST",
    "cifar10": "CIFAR-10",
    "mixture": "Mixture regression",
    "synthetic": "Synthetic",
}


@dataclass(frozen=True)
class Revenue:
    """Mean pay of every provider over the seeds, its standard deviation where given, and the mean of each group."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...] | None
    groups: tuple[float, ...]


@dataclass(frozen=True)
class Line:
    """Points of a published curve: rounds or numbers of providers against accuracy, error or seconds."""

    at: tuple[int, ...]
    values: tuple[float, ...]

    @property
    def final(self) -> float:
        return self.values[-1]


def revenue(dataset: str, method: str) -> Revenue | None:
    """By provider; the mixture's providers are sorted by group. None where nothing is published here."""
    name = METHOD_NAMES[method]
    if dataset == "mixture":
        mixture = _numbers()["mixture"]
        mean = mixture["revenue_by_group_sorted_providers"][name]
        return Revenue(tuple(mean), None, tuple(mixture["group_mean"][name]))
    found = _numbers()["revenue"].get(_dataset(dataset), {}).get(name)
    return found and Revenue(tuple(found["mean"]), tuple(found["std"]), tuple(found["group_mean"]))


def accuracy(dataset: str, method: str) -> Line | None:
    """Test accuracy along training."""
    return _line(_numbers()["test_accuracy"].get(_dataset(dataset), {}), "rounds", method)


def runtime(dataset: str, method: str) -> Line | None:
    """Seconds against the number of providers."""
    return _line(_numbers()["runtime_s"].get(_dataset(dataset), {}), "providers", method)


def mixture_error(method: str) -> Line | None:
    """‖w − w_1‖ along training."""
    return _line(_numbers()["mixture"]["estimation_error"], "rounds", method)


def mixture_groups() -> tuple[int, ...]:
    """The group of each of the mixture's sorted providers, counted from 0."""
    return tuple(group - 1 for group in _numbers()["mixture"]["group_of_sorted_provider"])


def _line(table: dict[str, Sequence[float]], at: str, method: str) -> Line | None:
    values = table.get(METHOD_NAMES[method])
    return None if values is None else Line(tuple(int(point) for point in table[at]), tuple(values))


def _dataset(name: str) -> str:
    return name.upper()


@cache
def _numbers() -> dict[str, Any]:
    text = resources.files("databazaar_experiments").joinpath("published.json").read_text(encoding="utf-8")
    numbers: dict[str, Any] = json.loads(text)
    return numbers
