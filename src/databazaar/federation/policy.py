"""What a provider lets others ask of it. It is the provider's own, and is checked before any work is done."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import prod

from databazaar.federation.messages import ModelMessage, OracleMessage
from databazaar.learning.kinds import MODEL_KINDS


@dataclass(frozen=True)
class Policy:
    """Bounds on a task. `max_samples` bounds the work: epochs × rows that pass through the model."""

    models: tuple[str, ...] = MODEL_KINDS
    max_parameters: int = 50_000_000
    max_samples: int = 50_000_000

    def allows(self, model: ModelMessage, oracle: OracleMessage, rows: int) -> bool:
        """Whether a provider of this many rows takes the task; nothing is allocated to find out."""
        samples = rows * (oracle.epochs if oracle.kind == "local-sgd" else 1)
        within = model.kind in self.models and width(model) <= self.max_parameters
        return within and samples <= self.max_samples


def width(model: ModelMessage) -> int:
    """How many parameters the model has: what `build_model` would make, counted without making it.

    >>> width(ModelMessage(kind="mlp", inputs=(784,), outputs=10, hidden=(300,)))
    238510
    """
    sizes = [prod(model.inputs), *(model.hidden if model.kind == "mlp" else ()), model.outputs]
    first = 0
    if model.kind == "cnn":
        channels, height, across = model.inputs if len(model.inputs) == 3 else (1, 4, 4)
        first = 6 * (25 * channels + 1)
        sizes = [6 * ((height - 4) // 2) * ((across - 4) // 2), 120, model.outputs]
    return first + sum((a + 1) * b for a, b in pairwise(sizes))
