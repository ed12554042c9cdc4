"""A provider's own record of what it answered: one JSON line a request, appended and never changed."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from databazaar.errors import BazaarError

ANSWERS = "answers.jsonl"
SCHEMA = "schema.json"


@dataclass(frozen=True)
class Answer:
    """One request and how it was answered."""

    time: str
    run: str
    round: int
    status: str
    code: str
    epsilon: float | None = None
    kind: str = "update"


class Record:
    """The file of answers. A line that a crash left half-written is skipped when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, run: str, round: int, status: str, code: str, epsilon: float | None, kind: str = "update") -> None:
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        line = json.dumps(asdict(Answer(now, run, round, status, code, epsilon, kind)))
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "r+b") as file:
            end = file.seek(0, os.SEEK_END)
            whole = end == 0 or os.pread(file.fileno(), 1, end - 1) == b"\n"
            file.write(b"" if whole else b"\n")
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def __iter__(self) -> Iterator[Answer]:
        """What was asked for an update; `questions` has everything."""
        return (answer for answer in self.questions() if answer.kind == "update")

    def questions(self) -> Iterator[Answer]:
        """Every question in the order they came, those that only asked for a description too."""
        if not self.path.exists():
            return
        with self.path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                try:
                    yield Answer(**json.loads(line))
                except (ValueError, TypeError):
                    continue


@dataclass(frozen=True)
class Earnings:
    """What a provider answered in one run, beside what a statement says was paid for it, and why it was asked."""

    run: str
    answered: int
    refused: int
    failed: int
    epsilon: float | None
    paid: int | None = None
    pay_text: str | None = None
    unpaid_rounds: tuple[int, ...] = ()
    unknown_rounds: tuple[int, ...] = ()
    why: str = ""


def earnings(record: Record, statement: dict[str, object] | None = None, run: str | None = None) -> list[Earnings]:
    """One line a run, in the order they began; a statement is compared with `run`, else with the run that it is for,
    or with the last one where it does not say.

    `unpaid_rounds` were answered and not paid, `unknown_rounds` are in the statement and not in the record.
    """
    runs: dict[str, list[Answer]] = {}
    for answer in record:
        runs.setdefault(answer.run, []).append(answer)
    if statement is not None and not runs:
        raise BazaarError("this provider has answered nothing yet: there is nothing to compare the statement with")
    if run is not None and run not in runs:
        raise BazaarError(f"--run {run} is not in this provider's record: it has {', '.join(runs) or 'none'}")
    stated = str((statement or {}).get("run") or "")
    if run is None and stated and stated not in runs:
        raise BazaarError(
            f"the statement is for the run {stated}, in which this provider answered nothing: its record has "
            f"{', '.join(runs)}"
        )
    compared = run or stated or (list(runs)[-1] if runs else "")
    return [_line(name, answers, statement if name == compared else None) for name, answers in runs.items()]


def _line(run: str, answers: list[Answer], statement: dict[str, object] | None) -> Earnings:
    ok = {a.round for a in answers if a.status == "ok"}
    counted = Earnings(
        run=run,
        answered=len(ok),
        refused=len({a.round for a in answers if a.status == "refused"} - ok),
        failed=len({a.round for a in answers if a.status == "error"} - ok),
        epsilon=next((a.epsilon for a in reversed(answers) if a.epsilon is not None), None),
    )
    if statement is None:
        return counted
    try:
        items = [(int(i["round"]), int(i["paid"])) for i in statement["items"]]  # type: ignore[attr-defined]
        pay_text = str(statement["pay_text"])
    except (KeyError, TypeError, ValueError):
        raise BazaarError(
            "the statement cannot be read: ask the operator for `bazaar statement RUN --provider NAME --json`"
        ) from None
    paid = {round for round, amount in items if amount}
    return Earnings(
        **{
            **asdict(counted),
            "paid": sum(amount for _, amount in items),
            "pay_text": pay_text,
            "why": str(statement.get("why") or ""),
            "unpaid_rounds": tuple(sorted(ok - paid)),
            "unknown_rounds": tuple(sorted({round for round, _ in items if round in paid} - ok)),
        }
    )
