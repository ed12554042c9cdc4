"""What an experiment can be told. The two protocols fill these in; `--set name=value` changes one setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeVar

from databazaar.errors import BazaarError

Sampling = Literal["with replacement", "without replacement"]
PayMode = Literal["shifted", "positive"]


@dataclass(frozen=True)
class ImageSettings:
    """Revenue and accuracy on images: 100 providers whose labels are wrong to different degrees."""

    rounds: int
    network: Literal["mlp", "cnn"]
    g_back_check: int
    g_max_permutations: int
    providers: int
    samples: int
    holdout: int
    per_round: int
    wrong_labels: tuple[float, ...]
    group_sizes: tuple[int, ...]
    corrupt: Literal["first", "random"]
    normalise: bool
    global_step: float
    local_step: float
    batch_size: int
    momentum: float
    halve_every: int
    eta: float
    alpha: float
    multiplicity: bool
    uniform: Sampling
    pay: PayMode
    g_criterion: Literal["back-check", "ghorbani-zou"]
    g_tolerance: float
    g_credits_first: bool
    fed_back_check: int
    fed_tolerance: float
    fed_max_permutations: int


@dataclass(frozen=True)
class RuntimeSettings:
    """Wall time against the number of providers, each with few samples."""

    providers: tuple[int, ...]
    samples: int
    share_per_round: float
    rounds: int


@dataclass(frozen=True)
class MixtureSettings:
    """Mixture linear regression: providers of four groups, of which one is the consumer's."""

    providers: int
    samples: int
    holdout: int
    dimensions: int
    noise: float
    data_seed: int
    per_round: int
    rounds: int
    step: float
    eta: float
    alpha: float
    multiplicity: bool
    uniform: Sampling
    pay: PayMode
    g_criterion: Literal["back-check", "ghorbani-zou"]
    g_back_check: int
    g_tolerance: float
    g_max_permutations: int
    g_credits_first: bool
    fed_back_check: int
    fed_tolerance: float
    fed_max_permutations: int


@dataclass(frozen=True)
class Protocol:
    """All settings of the evaluation, by experiment and dataset."""

    name: str
    images: dict[str, ImageSettings]
    runtime: RuntimeSettings
    mixture: MixtureSettings


S = TypeVar("S", ImageSettings, RuntimeSettings, MixtureSettings)


def changed(settings: S, changes: Mapping[str, str]) -> S:
    """The settings with some replaced, each read as the type it has now. Names it does not have are ignored."""
    known = {field.name: getattr(settings, field.name) for field in fields(settings)}
    return replace(settings, **{n: _read(n, text, known[n]) for n, text in changes.items() if n in known})


def _read(name: str, text: str, now: Any) -> Any:
    try:
        if isinstance(now, bool):
            return {"true": True, "false": False}[text.lower()]
        if isinstance(now, tuple):
            return tuple(type(now[0])(part) for part in text.split(","))
        return type(now)(text)
    except (ValueError, KeyError):
        raise BazaarError(f"--set {name}={text}: write it like {now!r}") from None
