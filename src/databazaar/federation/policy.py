"""What a provider lets others ask of it. It is the provider's own, and is checked before any work is done."""

from __future__ import annotations

from dataclasses import dataclass

from databazaar.errors import BazaarError
from databazaar.federation.messages import Code, ModelMessage, OracleMessage
from databazaar.learning.kinds import MODEL_KINDS, parameter_count


class RefusedError(Exception):
    """An honest no, with one of the fixed codes."""

    def __init__(self, code: Code) -> None:
        super().__init__(code)
        self.code: Code = code


@dataclass(frozen=True)
class Policy:
    """Bounds on a task. `max_samples` bounds the work: the rows that pass through the model, once for every epoch."""

    models: tuple[str, ...] = MODEL_KINDS
    max_parameters: int = 50_000_000
    max_samples: int = 50_000_000

    def allows(self, model: ModelMessage, oracle: OracleMessage, rows: int) -> bool:
        """Whether a provider of this many rows takes the task; nothing is allocated to find out."""
        samples = rows * (oracle.epochs if oracle.kind == "local-sgd" else 1)
        if oracle.kind == "local-sgd" and oracle.steps is not None:
            samples = min(samples, oracle.steps * oracle.batch_size)
        within = model.kind in self.models and width(model) <= self.max_parameters
        return within and samples <= self.max_samples


def width(model: ModelMessage) -> int:
    """How many parameters the model has, counted without making it; none where it is no model that can be made.

    >>> width(ModelMessage(kind="mlp", inputs=(784,), outputs=10, hidden=(300,)))
    238510
    """
    try:
        return parameter_count(model.kind, model.inputs, model.outputs, model.hidden)
    except BazaarError:
        return 0
