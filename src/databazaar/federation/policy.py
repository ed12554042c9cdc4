"""What a provider lets others ask of it. It is the provider's own, and is checked before any work is done."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from databazaar.federation.messages import ModelMessage, OracleMessage, ReplyCode
from databazaar.federation.records import AccessRecord
from databazaar.federation.work import Work, work_of
from databazaar.learning.asked_rows import LEAST_ROWS, distinct_rows
from databazaar.learning.kinds import MODEL_KINDS

_HOUR = 3600.0
_FASTEST, _SLOWEST = 5e10, 4e9
"""Products that a machine makes in a second, at the most; and at the least, while it cannot be interrupted."""
_QUICKEST_STEP = 2e-5
"""Seconds that one step takes at the least, however small."""


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
        within = within and work.samples <= self.max_samples
        return within and self._in_memory(work, private) and self._in_time(work)

    def rows_at_once(self, model: ModelMessage, oracle: OracleMessage, rows: int) -> int:
        """Of how many rows the gradients may stand in memory, one by one."""
        work = work_of(model, oracle, rows, private=True)
        return max(1, min(work.at_once, (self.max_memory - work.memory) // work.row_memory))

    def _in_memory(self, work: Work, private: bool) -> bool:
        return (work.memory + work.row_memory if private else work.peak) <= self.max_memory

    def _in_time(self, work: Work) -> bool:
        quickest = max(work.products / _FASTEST, work.steps * _QUICKEST_STEP)
        return max(quickest, work.largest_piece / _SLOWEST) <= self.max_seconds


@dataclass
class RateLimiter:
    """Lets so many questions through in an hour; what was not used is kept, up to one hour's number."""

    most: int
    clock: Callable[[], float] = time.monotonic
    _left: float = field(init=False)
    _seen: float = field(init=False)

    def __post_init__(self) -> None:
        self._left, self._seen = float(self.most), self.clock()

    def let_through(self) -> None:
        """Raises RefusedError where there were too many."""
        now = self.clock()
        self._left = min(float(self.most), self._left + (now - self._seen) * self.most / _HOUR)
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
