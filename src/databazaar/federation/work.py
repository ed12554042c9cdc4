"""What an answer takes, in memory and in work: counted from the sizes of task and data, before anything is built."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt, prod

from databazaar.errors import BazaarError
from databazaar.federation.messages import ModelMessage, OracleMessage
from databazaar.learning.kinds import layer_sizes, parameter_count, pooled_side
from databazaar.learning.oracles import LocalSGD, Oracle, build_oracle

ROWS_AT_ONCE = 256
"""The most rows of which the gradients stand in memory, one by one, for differential privacy."""
_FLOAT, _WHOLE = 4, 8
_COPIES_OF_PARAMETERS = 12
"""The request, the model, the moving parameters, gradients, an optimizer's memory, the update, the reply."""
_COPIES_OF_GRADIENTS = 6
"""Of one row, for differential privacy: raw, checked, absolute, scaled, and what autograd holds meanwhile."""
_COPIES_OF_ACTIVATIONS = 6


@dataclass(frozen=True)
class Work:
    """One answer's work. `products` are multiplications; those of the largest piece that is not interrupted apart.

    `row_memory` is what each row adds to `memory` that stands in memory at once; `at_once` are those rows.
    """

    parameters: int
    samples: int
    steps: int
    products: int
    largest_piece: int
    memory: int
    row_memory: int
    at_once: int

    @property
    def peak(self) -> int:
        """Bytes."""
        return self.memory + self.row_memory * self.at_once


def work_of(model: ModelMessage, oracle: OracleMessage, rows: int, private: bool) -> Work:
    """The work of one answer over so many rows; `private` with differential privacy."""
    made = built_in(oracle, rows)
    batch = rows if oracle.kind == "full-gradient" else min(oracle.batch_size, rows)
    steps = made.step_count(rows) if isinstance(made, LocalSGD) else 1
    samples = rows * oracle.epochs if isinstance(made, LocalSGD) else rows
    if isinstance(made, LocalSGD) and oracle.steps is not None:
        samples = min(samples, oracle.steps * oracle.batch_size)
    parameters, inputs = width(model), prod(model.inputs)
    copied, activations, products = _per_row(model)
    at_once = min(rows, ROWS_AT_ONCE, batch + 3 * isqrt(batch)) if private else batch  # by chance some more are drawn
    one_by_one = _COPIES_OF_GRADIENTS * parameters * _FLOAT if private else 0
    memory = rows * (inputs * (_FLOAT + 1) + 3 * _WHOLE) + _COPIES_OF_PARAMETERS * parameters * _FLOAT
    memory += 2 * batch * inputs * _FLOAT if private else steps * batch * _WHOLE
    return Work(
        parameters=parameters,
        samples=samples,
        steps=steps,
        products=3 * products * batch * steps + parameters * steps,
        largest_piece=3 * products * at_once + parameters,
        memory=memory,
        row_memory=(copied + _COPIES_OF_ACTIVATIONS * activations) * _FLOAT + one_by_one,
        at_once=at_once,
    )


def built_in(oracle: OracleMessage, rows: int) -> Oracle:
    """The oracle that a message describes, with this round's step. A batch of more than all rows is one of all rows,
    so that it cannot be used to fill memory."""
    batch = min(oracle.batch_size, rows)
    return build_oracle(**oracle.model_copy(update={"batch_size": batch}).model_dump())


def width(model: ModelMessage) -> int:
    """How many parameters the model has, counted without making it; none where it is no model that can be made.

    >>> width(ModelMessage(kind="mlp", inputs=(784,), outputs=10, hidden=(300,)))
    238510
    """
    try:
        return parameter_count(model.kind, model.inputs, model.outputs, model.hidden)
    except BazaarError:
        return 0


def _per_row(model: ModelMessage) -> tuple[int, int, int]:
    """What one row is copied to before the first layer, the numbers that the layers make of it, and their products."""
    try:
        sizes = layer_sizes(model.kind, model.inputs, model.outputs, model.hidden)
    except BazaarError:
        return 0, 0, 0
    copied = prod(model.inputs)
    activations, products = sum(out for _, out in sizes), sum(into * out for into, out in sizes)
    if model.kind == "cnn":  # its first layer sees a patch at every place of the image
        _, height, wide = model.inputs
        patches = 4 * pooled_side(height) * pooled_side(wide)
        into, out = sizes[0]
        copied += 2 * patches * into
        activations += patches * out
        products += (patches - 1) * into * out
    return copied, activations, products
