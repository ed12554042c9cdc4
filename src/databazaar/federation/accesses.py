"""How often a provider has answered each job: a contract where the market names one, else a run."""

from __future__ import annotations

from databazaar.federation.policy import RefusedError
from databazaar.federation.records import Record


class Accesses:
    """Counts the questions that were answered with an update, up to `most` for a job. A question that is asked again,
    as after a restart, counts once. The count goes on from the record."""

    def __init__(self, most: int | None, record: Record | None) -> None:
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
