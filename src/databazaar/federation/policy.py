"""What a provider lets others ask of it. It is the provider's own, and is checked before any work is done.

What an answer takes, in memory and in work, is counted from the sizes of task and data, before anything is built.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt, prod

from databazaar.errors import BazaarError
from databazaar.federation.messages import ModelMessage, OracleMessage, ReplyCode
from databazaar.federation.records import AccessRecord
from databazaar.learning.asked_rows import LEAST_ROWS, distinct_rows
from databazaar.learning.oracles import LocalSGD, Oracle, build_oracle
from databazaar.models import MODEL_KINDS, layer_sizes, parameter_count, pooled_side

_HOUR = 3600.0
_FASTEST, _SLOWEST = 5e10, 4e9
"""Products that a machine makes in a second, at the most; and at the least, while it cannot be interrupted."""
_QUICKEST_STEP = 2e-5
"""Seconds that one step takes at the least, however small."""
ROWS_AT_ONCE = 256
"""The most rows of which the gradients stand in memory, one by one, for differential privacy."""
_FLOAT, _WHOLE = 4, 8
_COPIES_OF_PARAMETERS = 12
"""The request, the model, the moving parameters, gradients, an optimizer's memory, the update, the reply."""
_COPIES_OF_GRADIENTS = 6
"""Of one row, for differential privacy: raw, checked, absolute, scaled, and what autograd holds meanwhile."""
_COPIES_OF_ACTIVATIONS = 6


class RefusedError(Exception):
    """An honest no, with one of the fixed codes."""

    def __init__(self, code: ReplyCode) -> None:
        super().__init__(code)
        self.code: ReplyCode = code


@dataclass(frozen=True)
class Policy:
    """Bounds on a task and on questions; no honest market meets the defaults. `max_samples` bounds the rows that pass
    through the model, once for every epoch; `max_memory`, in bytes, what an answer takes beside the provider's own
    table; `max_seconds` its time. A task that cannot keep to them is refused before anything is built; a slower one
    is stopped between two steps. `max_questions` are those of one hour. `consumers` are those who may ask, None for
    all, and `max_accesses` how many answers one job gets: a contract, or a run where the market names none.
    `least_rows` is how many different rows an answer depends on at the least (learning/asked_rows.py counts them)."""

    models: tuple[str, ...] = MODEL_KINDS
    max_parameters: int = 50_000_000
    max_samples: int = 50_000_000
    max_memory: int = 4 * 10**9
    max_seconds: float = 300.0
    max_questions: int = 100_000
    consumers: tuple[str, ...] | None = None
    max_accesses: int | None = None
    least_rows: int = LEAST_ROWS

    def refuse_others(self, consumer: str) -> None:
        """Raises RefusedError for a consumer that may not ask."""
        if self.consumers is not None and consumer not in self.consumers:
            raise RefusedError("consumer-not-allowed")

    def refuse_few_rows(self, oracle: OracleMessage, rows: int) -> None:
        """Raises RefusedError where fewer than `least_rows` of these rows would have a part in the answer."""
        if distinct_rows(oracle.model_dump(), rows) < self.least_rows:
            raise RefusedError("too-few-rows")

    def allows(self, model: ModelMessage, oracle: OracleMessage, rows: int, private: bool = False) -> bool:
        """Whether a provider of this many rows takes the task; nothing is allocated to find out."""
        work = work_of(model, oracle, rows, private)
        within = model.kind in self.models and work.parameters <= self.max_parameters
        memory = work.memory + work.row_memory * (1 if private else work.at_once)
        quickest = max(work.products / _FASTEST, work.steps * _QUICKEST_STEP)
        within = within and work.samples <= self.max_samples and memory <= self.max_memory
        return within and max(quickest, work.largest_piece / _SLOWEST) <= self.max_seconds

    def rows_at_once(self, model: ModelMessage, oracle: OracleMessage, rows: int) -> int:
        """Of how many rows the gradients may stand in memory, one by one."""
        work = work_of(model, oracle, rows, private=True)
        return max(1, min(work.at_once, (self.max_memory - work.memory) // work.row_memory))


class RateLimiter:
    """Lets so many questions through in an hour; what was not used is kept, up to one hour's number."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = float(most), clock
        self._left, self._seen = self._most, clock()

    def let_through(self) -> None:
        """Raises RefusedError where there were too many."""
        now = self._clock()
        self._left = min(self._most, self._left + (now - self._seen) * self._most / _HOUR)
        self._seen = now
        if self._left < 1:
            raise RefusedError("too-many-questions")
        self._left -= 1


class AccessLimit:
    """Counts the questions that were answered with an update, up to `most` for a job. A question that is asked again,
    as after a restart, counts once. The count goes on from the record."""

    def __init__(self, most: int | None, record: AccessRecord | None) -> None:
        self._most = most
        self._answered: dict[str, set[str]] = {}
        if most is not None and record is not None:
            for answer in record:
                if answer.status == "ok":
                    question = answer.question or f"{answer.run} {answer.round}"
                    self.note(answer.contract or answer.run, question)

    def check(self, job: str, question: str = "") -> None:
        """Raises RefusedError where this would be one answer too many."""
        answered = self._answered.get(job, set())
        if self._most is not None and question not in answered and len(answered) >= self._most:
            raise RefusedError("no-accesses-left")

    def note(self, job: str, question: str) -> None:
        if self._most is not None:
            self._answered.setdefault(job, set()).add(question)


@dataclass(frozen=True)
class Work:
    """One answer's work. `products` are multiplications; those of the largest piece that is not interrupted apart.
    `row_memory` is what each row adds to `memory` that stands in memory at once; `at_once` are those rows."""

    parameters: int
    samples: int
    steps: int
    products: int
    largest_piece: int
    memory: int
    row_memory: int
    at_once: int


def work_of(model: ModelMessage, oracle: OracleMessage, rows: int, private: bool) -> Work:
    """The work of one answer over so many rows; `private` with differential privacy."""
    batch, steps = batch_and_steps(oracle, rows)
    samples = rows * oracle.epochs if oracle.kind == "local-sgd" else rows
    if oracle.kind == "local-sgd" and oracle.steps is not None:
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


def batch_and_steps(oracle: OracleMessage, rows: int) -> tuple[int, int]:
    """The rows of one step, and how many steps there are."""
    made = built_in(oracle, rows)
    batch = rows if oracle.kind == "full-gradient" else min(oracle.batch_size, rows)
    return batch, made.step_count(rows) if isinstance(made, LocalSGD) else 1


def built_in(oracle: OracleMessage, rows: int) -> Oracle:
    """The oracle that a message describes. Its batch is at most all rows, so that it cannot fill memory."""
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
