"""A provider's own record of what it answered: one JSON line a request, appended and never changed; and what came of
it, by the market's receipts and by its statement."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from databazaar.errors import BazaarError
from databazaar.federation.receipts import Notice, Receipt, contradictions
from databazaar.files import append_lines, lines_of

ANSWERS = "answers.jsonl"
SCHEMA = "schema.json"
_LONGEST_LINE = 8192


@dataclass(frozen=True)
class Answer:
    """One request and how it was answered."""

    time: str
    run: str
    round: int
    status: str
    code: str
    epsilon: float | None = None
    reply: str = ""
    """The hash of what was signed, empty where nothing was."""
    kind: str = "update"
    consumer: str = ""
    contract: str = ""
    """For whom, and by which agreement, as the market says; empty where it does not."""
    question: str = ""
    """The hash of what was asked."""


_ANSWER = TypeAdapter(Answer)


class AccessRecord:
    """The file of answers. A line that is no answer is skipped: a crash may have left it half-written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, run: str, round: int, status: str, code: str, epsilon: float | None, **more: str) -> None:
        """Appends an answer; `more` are its other fields."""
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        answer = Answer(now, run, round, status, code, epsilon, **more)
        append_lines(self.path, [json.dumps(asdict(answer)).encode()], 0o600)

    def __iter__(self) -> Iterator[Answer]:
        """What was asked for an update; `questions` has everything."""
        return (answer for answer in self.questions() if answer.kind == "update")

    def questions(self) -> Iterator[Answer]:
        """Every question in the order they came, those that only asked for a description too."""
        if not self.path.exists():
            return
        for line in lines_of(self.path, _LONGEST_LINE):
            with suppress(ValueError):
                yield _ANSWER.validate_json(line, strict=True)


class _StatedAccess(BaseModel):
    round: int
    draw: int = -1
    paid: int
    held: int = 0


class _Statement(BaseModel):
    """What is read of a statement that the operator gave."""

    items: list[_StatedAccess]
    pay: int | None = None
    pay_text: str
    why: str | None = None


@dataclass(frozen=True)
class Earnings:
    """What a provider answered in one run, beside what a statement says was paid for it, and why it was asked.
    `held`, `released` and `returned` are held-back pay by the market's receipts, in the smallest unit of its
    currency."""

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
    receipts: int = 0
    acknowledged: int = 0
    denied_rounds: tuple[int, ...] = ()
    disputed_rounds: tuple[int, ...] = ()
    contradictions: tuple[str, ...] = ()
    held: int = 0
    released: int = 0
    returned: int = 0
    verdicts: tuple[Notice, ...] = ()
    consumer: str = ""
    contract: str = ""
    earned: int = 0
    """Paid and released, by the market's receipts."""


def by_consumer(lines: Sequence[Earnings]) -> dict[str, Counter[str]]:
    """What was answered to each consumer in all its `runs`, in the order of their first, and earned by receipts."""
    found: dict[str, Counter[str]] = {}
    for line in lines:
        own = {
            name: getattr(line, name) for name in ("answered", "refused", "failed", "acknowledged", "earned", "held")
        }
        found.setdefault(line.consumer, Counter()).update({"runs": 1, **own})
    return found


def earnings(
    record: AccessRecord, statement: dict[str, object] | None = None, receipts: Sequence[Receipt] = ()
) -> list[Earnings]:
    """One line a run, in the order they began; a statement is compared with the run that it is for, or else with the
    last one. `unpaid_rounds` were answered, and neither paid nor held back; `unknown_rounds` are in the
    statement and not in the record; `denied_rounds` are covered by receipts that do not name the answer; in
    `disputed_rounds` the statement pays otherwise than the receipts say."""
    runs: dict[str, list[Answer]] = {}
    for answer in record:
        runs.setdefault(answer.run, []).append(answer)
    if statement is not None and not runs:
        raise BazaarError("this provider has answered nothing yet: there is nothing to compare the statement with")
    stated = str((statement or {}).get("run") or "")
    if stated and stated not in runs:
        raise BazaarError(
            f"the statement is for the run {stated}, in which this provider answered nothing: its record has "
            f"{', '.join(runs)}"
        )
    compared = stated or (list(runs)[-1] if runs else "")
    return [_line(run, answers, statement if run == compared else None, receipts) for run, answers in runs.items()]


def _line(
    run: str, answers: list[Answer], statement: dict[str, object] | None, receipts: Sequence[Receipt]
) -> Earnings:
    receipts = [receipt for receipt in receipts if receipt.run == run]
    ok = {a.round for a in answers if a.status == "ok"}
    counted = Earnings(
        run=run,
        answered=len(ok),
        refused=len({a.round for a in answers if a.status == "refused"} - ok),
        failed=len({a.round for a in answers if a.status == "error"} - ok),
        epsilon=next((a.epsilon for a in reversed(answers) if a.epsilon is not None), None),
        consumer=answers[-1].consumer,
        contract=answers[-1].contract,
        **_acknowledged(ok, receipts),
        **_held_back(receipts),
    )
    if statement is None:
        return counted
    try:
        stated = _Statement.model_validate(statement)
    except ValueError:
        raise BazaarError(
            "the statement cannot be read: ask the operator for `bazaar show RUN statement --provider NAME --json`"
        ) from None
    paid = {item.round for item in stated.items if item.paid}
    held = {item.round for item in stated.items if item.held}
    by_draw = {(item.round, item.draw): item.paid for item in stated.items}
    by_receipts = [(one.round, one.draw, one.paid or 0) for receipt in receipts for one in receipt.accesses]
    return replace(
        counted,
        paid=sum(item.paid for item in stated.items) if stated.pay is None else stated.pay,
        pay_text=stated.pay_text,
        why=stated.why or "",
        unpaid_rounds=tuple(sorted(ok - paid - held)),
        unknown_rounds=tuple(sorted(paid - ok)),
        disputed_rounds=tuple(sorted({at for at, draw, amount in by_receipts if by_draw.get((at, draw)) != amount})),
    )


def _held_back(receipts: Sequence[Receipt]) -> dict[str, Any]:
    """What became of held-back pay; what was told twice counts once."""
    accesses = {(one.round, one.draw): one for receipt in receipts for one in receipt.accesses}.values()
    freed = {one.round: one for receipt in receipts for one in receipt.freed}.values()
    released, returned = (sum(one.amount for one in freed if one.released == to_it) for to_it in (True, False))
    return {
        "held": sum(one.held for one in accesses) - released - returned,
        "earned": sum(one.paid or 0 for one in accesses) + released,
        "released": released,
        "returned": returned,
        "verdicts": tuple(dict.fromkeys(told for receipt in receipts for told in receipt.verdicts)),
    }


def _acknowledged(ok: set[int], receipts: Sequence[Receipt]) -> dict[str, Any]:
    """What the market's receipts say of the rounds that were answered."""
    named = {access.round for receipt in receipts for access in receipt.accesses if access.reply}
    covered = max((receipt.rounds for receipt in receipts), default=0)
    return {
        "receipts": len(receipts),
        "acknowledged": len(ok & named),
        "denied_rounds": tuple(sorted(round for round in ok - named if round < covered)),
        "contradictions": tuple(contradictions(receipts)),
    }
