"""The settings of an experiment. The two protocols fill these in; `--set name=value` changes one setting."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, TypeVar, get_args

from databazaar.errors import BazaarError

Sampling = Literal["with replacement", "without replacement"]
PayMode = Literal["shifted", "positive"]
Repeats = Literal["count", "once", "never"]
"""OSMD's draws with replacement may name a provider twice in a round. In the estimate that counts twice, as Algorithm 1
has it, or once; or it never happens, because the draws are without replacement, as most likely in the paper's images.
"""


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
    data_seed: int
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
    repeats: Repeats
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
    repeats: Repeats
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


G_SHAPLEY = ("g_criterion", "g_back_check", "g_tolerance", "g_max_permutations", "g_credits_first")
FEDSV = ("fed_back_check", "fed_tolerance", "fed_max_permutations")
READ_BY: dict[str, frozenset[str]] = {
    "osmd": frozenset({"eta", "alpha", "repeats"}),
    "uniform": frozenset({"uniform"}),
    "g-shapley": frozenset({"pay", *G_SHAPLEY}),
    "fedsv": frozenset({"pay", *FEDSV}),
}
"""The settings that only some methods read, by method. All others are the market's, and every method reads those."""


def read_by(method: str, settings: ImageSettings | MixtureSettings) -> dict[str, Any]:
    """The settings that the method's result depends on: the market's, and its own."""
    of_others = frozenset().union(*READ_BY.values()) - READ_BY[method]
    return {name: value for name, value in asdict(settings).items() if name not in of_others}


@dataclass(frozen=True)
class Protocol:
    """All settings of the evaluation, by experiment and dataset."""

    name: str
    images: dict[str, ImageSettings]
    runtime: RuntimeSettings
    mixture: MixtureSettings


S = TypeVar("S", ImageSettings, RuntimeSettings, MixtureSettings)


SECTIONS: dict[str, type] = {"images": ImageSettings, "runtime": RuntimeSettings, "mixture": MixtureSettings}


def changed(settings: S, changes: Mapping[str, str]) -> S:
    """The settings with some replaced, each read as the type it has now.

    A change is for every section that has its name, or for one: `rounds`, `mixture.rounds`. Others are ignored.
    """
    section = next(name for name, kind in SECTIONS.items() if isinstance(settings, kind))
    known = {field.name: getattr(settings, field.name) for field in fields(settings)}
    read = {}
    for name, text in sorted(changes.items(), key=lambda change: "." in change[0]):  # the more particular wins
        own = name.removeprefix(f"{section}.")
        if own in known:
            read[own] = _read(name, text, known[own])
    return replace(settings, **read)


def checked(changes: Mapping[str, str]) -> Mapping[str, str]:
    """The changes, once every name in them is known to belong to some section."""
    known = {kind: [field.name for field in fields(kind)] for kind in SECTIONS.values()}
    allowed = {name for names in known.values() for name in names}
    allowed |= {f"{section}.{name}" for section, kind in SECTIONS.items() for name in known[kind]}
    for name in changes:
        if name not in allowed:
            shared = dict.fromkeys(name for names in known.values() for name in names)
            raise BazaarError(
                f"--set {name}: there is no such setting: use one of {', '.join(shared)}, "
                f"or for one experiment alone {', '.join(f'{section}.NAME' for section in SECTIONS)}"
            )
    return changes


def _read(name: str, text: str, now: Any) -> Any:
    """The value that a text stands for. Seeds and shares may be zero; whatever is counted is one or more."""
    value = _parsed(name, text, now)
    for number in value if isinstance(value, tuple) else (value,):
        least = 1 if type(number) is int and not name.endswith("data_seed") else 0
        if type(number) in (int, float) and not least <= number < math.inf:
            raise BazaarError(f"--set {name}={text}: take a number of at least {least}")
    return value


def _parsed(name: str, text: str, now: Any) -> Any:
    try:
        if isinstance(now, bool):
            return {"true": True, "false": False}[text.lower()]
        if isinstance(now, tuple):
            return tuple(type(now[0])(part) for part in text.split(","))
        if isinstance(now, str) and text not in WORDS[name.rpartition(".")[2]]:
            raise BazaarError(f"--set {name}={text}: use {' or '.join(WORDS[name.rpartition('.')[2]])}")
        return type(now)(text)
    except (ValueError, KeyError):
        raise BazaarError(f"--set {name}={text}: write it like {_written(now)}") from None


def _written(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


WORDS: dict[str, tuple[str, ...]] = {
    "network": ("mlp", "cnn"),
    "corrupt": ("first", "random"),
    "repeats": get_args(Repeats),
    "uniform": get_args(Sampling),
    "pay": get_args(PayMode),
    "g_criterion": ("back-check", "ghorbani-zou"),
}
