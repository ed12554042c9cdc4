"""Whether a purchase was worth it, as plain data that a run's folder keeps: the model beside the alternatives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

MARKET, OWN, UNIFORM, SINGLE = "bought", "own-rows", "uniform", "single-provider"
TITLES = {
    MARKET: "the bought model",
    OWN: "your own rows alone",
    UNIFORM: "everybody asked alike",
    SINGLE: "the best single provider",
}
"""What each model is called in sentences."""
SURE = 2.0
"""Standard errors beyond which a difference counts as one."""


@dataclass(frozen=True)
class EvaluatedModel:
    """One model on the audit rows. `ahead` is how much lower the bought model's loss is, on average over these rows,
    and `error` the standard error of that; both None for the bought model itself. `detail` says more about it."""

    kind: str
    metrics: dict[str, float]
    ahead: float | None = None
    error: float | None = None
    detail: str = ""

    @property
    def title(self) -> str:
        return TITLES[self.kind]


@dataclass(frozen=True)
class PurchaseEvaluation:
    """The bought model and its alternatives on the same `rows`, which no part of the market has looked at."""

    task: str
    rows: int
    bought: EvaluatedModel
    others: tuple[EvaluatedModel, ...]
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def loss_name(self) -> str:
        """What differences are measured in."""
        return "log loss" if self.task == "classification" else "squared error"

    def against(self, kind: str) -> EvaluatedModel | None:
        return next((other for other in self.others if other.kind == kind), None)

    @property
    def verdict(self) -> str:
        """Whether the market beat the consumer's own rows, in one sentence that is honest about chance."""
        own = self.against(OWN)
        if own is None or own.ahead is None or not math.isfinite(own.ahead):
            return f"On {self.rows:,} audit rows there is nothing to compare the bought model with."
        if own.error is None or not math.isfinite(own.error):  # None once it was kept as JSON
            return "One audit row is too few to tell whether it was worth it."
        size = f"{abs(own.ahead):.3g} ± {own.error:.2g} in {self.loss_name} on {self.rows:,} audit rows"
        if own.ahead > SURE * own.error:
            return f"It was worth it: the bought model beats your own rows alone by {size}."
        if own.ahead < -SURE * own.error:
            return f"It was not worth it: your own rows alone beat the bought model by {size}."
        leads = "the bought model" if own.ahead > 0 else "your own rows alone"
        return f"It cannot be told whether it was worth it: {leads} may be ahead, by {size}, which may be chance."

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON; what is undefined on these rows is null."""
        return dict(without_nan(asdict(self)))

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> PurchaseEvaluation:
        """What `to_dict` wrote; a ValueError where it is something else."""
        try:
            return cls(
                task=str(kept["task"]),
                rows=int(kept["rows"]),
                bought=_evaluated(kept["bought"]),
                others=tuple(_evaluated(other) for other in kept["others"]),
                intervals={str(name): (_number(low), _number(high)) for name, (low, high) in kept["intervals"].items()},
                notes=tuple(str(note) for note in kept["notes"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this is no evaluation of a purchase: {error!r}") from None

    def __post_init__(self) -> None:
        if any(other.metrics.keys() != self.bought.metrics.keys() for other in self.others):
            raise ValueError("models are set beside each other that were not measured alike")


def _evaluated(kept: Mapping[str, Any]) -> EvaluatedModel:
    kind = str(kept["kind"])
    if kind not in TITLES:
        raise ValueError(kind)
    ahead = None if kept["ahead"] is None else float(kept["ahead"])
    error = None if ahead is None else _number(kept["error"])
    metrics = {str(name): _number(value) for name, value in kept["metrics"].items()}
    return EvaluatedModel(kind, metrics, ahead, error, str(kept["detail"]))


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def without_nan(value: Any) -> Any:
    """The value as JSON has it: null where a number is not finite."""
    if isinstance(value, dict):
        return {name: without_nan(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
