"""Whether a purchase was worth it, as plain data that a run's folder keeps: the model beside the alternatives."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationInfo
from pydantic.dataclasses import dataclass

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
_Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]
"""null is what is undefined on these rows."""


def _defined_with_ahead(error: Any, known: ValidationInfo) -> Any:
    return math.nan if error is None and known.data.get("ahead") is not None else error


@dataclass(frozen=True)
class EvaluatedModel:
    """One model on the audit rows. `ahead` is how much lower the bought model's loss is, on average over these rows,
    and `error` the standard error of that; both None for the bought model itself. `detail` says more about it."""

    kind: Annotated[str, Field(pattern=f"^({'|'.join(TITLES)})$")]
    metrics: dict[str, _Number]
    ahead: float | None = None
    error: Annotated[float | None, BeforeValidator(_defined_with_ahead)] = None
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
    intervals: dict[str, tuple[_Number, _Number]] = field(default_factory=dict)
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
        found: dict[str, Any] = json.loads(_WORTH.dump_json(self))
        return found

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> PurchaseEvaluation:
        """What `to_dict` wrote; a ValueError where it is something else."""
        return _WORTH.validate_python(kept)

    def __post_init__(self) -> None:
        if any(other.metrics.keys() != self.bought.metrics.keys() for other in self.others):
            raise ValueError("models are set beside each other that were not measured alike")


_WORTH = TypeAdapter(PurchaseEvaluation)
