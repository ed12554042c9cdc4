"""The hub's side of a run that a consumer plays itself: what follows is kept, and no cheat is."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from databazaar import OSMD, Arbiter, BazaarError
from databazaar.codes import QUARANTINED, Code
from databazaar.ledger import Entry, Ledger, MemoryStore, RuleBook, Terms
from databazaar.market.loop import play
from databazaar.service.errors import ConflictError, InvalidError, ServiceError
from databazaar.service.hub import progress
from databazaar.service.notary.answerers import Pool
from databazaar.service.notary.run import MOST_ENTRIES, REPLIES, NotarisedRun, close_notarised, is_notarised
from databazaar.service.settings import Settings
from small_markets import torch_market

ID, QUESTION = "ab" * 16, "cd" * 32
Steps = list[list[Entry]]


def failing(params: np.ndarray) -> np.ndarray:
    return params * np.nan


@pytest.fixture(scope="module")
def steps() -> Steps:
    """What the consumer's ledger writes, step by step. One provider never answers, and is set aside at last."""
    consumer, providers = torch_market(budget=60, per_round=3)
    providers = [replace(one, price=1 + place) for place, one in enumerate(providers)]
    providers[3] = replace(providers[3], data=None, oracle=failing)
    arbiter = Arbiter(consumer, providers, OSMD(0.3, 0.3), engine="loop", seed=5, market="Own")
    ledger, written = Ledger(arbiter.rules), list[list[Entry]]()
    written.append(list(ledger.store.entries()))
    ledger.on_written = lambda entries: written.append(list(entries))
    play(arbiter.begin(ledger), arbiter.engine)
    reasons = {entry.reason for step in written for entry in step if entry.kind == "void"}
    assert Code("quarantined") in reasons and len(reasons) == 2 and len(written) > 6
    return written


def pass_on(run: NotarisedRun, step: Sequence[Entry]) -> None:
    """The questions and answers that come before this step."""
    settled = [entry for entry in step if entry.kind in ("post", "void") and entry.round == run.due.round]
    answers = {entry.provider or "": b"an update" for entry in settled if entry.kind == "post"}
    failures = {entry.provider or "": why for entry in settled if (why := entry.reason) not in (None, QUARANTINED)}
    if settled:
        run.refuse_ask([*answers, *failures], QUESTION)
        run.pass_on(QUESTION, answers, failures)


@pytest.fixture
def new_run(tmp_path: Path) -> Iterator[NotarisedRun]:
    run = NotarisedRun.begin(tmp_path / "jobs" / ID / "run", ID, "Own")
    yield run
    run.dispose()


def played(run: NotarisedRun, steps: Steps) -> NotarisedRun:
    for step in steps:
        if run.audit.entries:
            pass_on(run, step)
        assert run.take(step) == len(step)
    return run


def test_an_honest_run_is_kept_as_any_other_and_repeats_do_no_harm(
    new_run: NotarisedRun, steps: Steps, tmp_path: Path
) -> None:
    entries = [entry for step in steps for entry in step]
    for step in steps:
        if new_run.audit.entries:
            pass_on(new_run, step)
        new_run.take(step)
        assert new_run.take(step) == 0 and new_run.take(entries[: new_run.audit.entries]) == 0
    assert new_run.audit.closed and new_run.audit.head == entries[-1].hash
    new_run.dispose()
    folder = new_run.folder
    audit = folder.audit(entries[-1].hash)
    assert audit.ok and audit.closed and list(folder.entries()) == entries
    assert folder.report().spent == sum(entry.amount or 0 for entry in entries if entry.kind == "post")
    told = progress.rounds(Settings(home=tmp_path), ID)
    assert [line["round"] for line in told] == list(range(1, audit.rounds + 1))
    assert told[-1]["spent"] == folder.report().spent and told[-1]["utility"] == audit.scores.ended[0]  # type: ignore[union-attr]


def test_a_hub_that_is_started_again_goes_on_where_it_was(new_run: NotarisedRun, steps: Steps, tmp_path: Path) -> None:
    run, known = new_run, list[tuple[Any, ...]]()
    for step in steps:
        if run.audit.entries:
            pass_on(run, step)
            known.append((run.replies, run.due, run.audit.head))
            run.dispose()
            run = NotarisedRun(new_run.folder.path)
            assert (run.replies, run.due, run.audit.head) == known[-1]
        run.take(step)
    assert progress.rounds(Settings(home=tmp_path), ID)[-1]["round"] == run.notary.audit.rounds
    run.dispose()


def resealed(run: NotarisedRun, entries: Sequence[Entry]) -> list[Entry]:
    head, sealed = run.audit.head, list[Entry]()
    for seq, entry in enumerate(entries, run.audit.entries):
        sealed.append(entry._replace(seq=seq).sealed(head))
        head = sealed[-1].hash
    return sealed


Forge = Callable[[list[Entry]], list[Entry]]


def first(kind: str, change: Callable[[Entry], Entry]) -> Forge:
    """Changes the first entry of this kind."""

    def forge(step: list[Entry]) -> list[Entry]:
        at = next(place for place, entry in enumerate(step) if entry.kind == kind)
        return [*step[:at], change(step[at]), *step[at + 1 :]]

    return forge


def body(**changes: Any) -> Callable[[Entry], Entry]:
    return lambda entry: entry._replace(body={**entry.body, **changes})


def scaled(name: str, by: float) -> Callable[[Entry], Entry]:
    return lambda entry: entry._replace(
        body={**entry.body, name: [None if one is None else one * by for one in entry.body[name]]}
    )


def as_void(entry: Entry) -> Entry:
    price = {"p0": 1, "p1": 2, "p2": 3, "p3": 4}[entry.provider or ""]
    return entry._replace(kind="void", amount=price, body={"reason": {"code": "no-answer"}})


def voided(step: list[Entry]) -> list[Entry]:
    """All that was answered is said not to have been; the round is otherwise as it should be."""
    entries = [as_void(entry) if entry.kind == "post" else entry for entry in step]
    return first("round", body(gains=[None] * 3))(entries)


CHEATS: dict[str, tuple[Forge, str]] = {
    "chosen draws": (first("reserve", lambda e: e._replace(provider="p0" if e.provider != "p0" else "p1")), "p"),
    "other probabilities": (first("round", scaled("probabilities", 0.9)), "probabilities do not follow"),
    "a gain that no utility allows": (first("round", scaled("gains", 1e6)), "larger than a utility"),
    "a utility that is none": (first("round", body(reached=1.5)), "outside of 0 to 1"),
    "another model than before": (first("round", body(utility=0.123)), "begins with another utility"),
    "less pay": (first("post", lambda e: e._replace(amount=(e.amount or 0) - 1)), "payments do not follow"),
    "cheaper reserves": (first("reserve", lambda e: e._replace(amount=(e.amount or 0) - 1)), "costs"),
    "a skipped round": (lambda step: [e._replace(round=(e.round or 0) + 1) for e in step], "was not asked through"),
    "a valid answer voided": (voided, "gave valid updates in this round, which are paid"),
    "half a round": (lambda step: step[:2], "end in the middle of a round"),
    "a round without the next": (lambda step: [e for e in step if e.kind != "reserve"], "middle of a round"),
    "no settlement at all": (lambda step: [e for e in step if e.kind == "reserve"], "this access is|stands in"),
    "another opening": (lambda step: [step[0]._replace(kind="open")], "lacks|opened once|round"),
    "what no ledger says": (first("round", body(gains="none")), "cannot be read|does not settle"),
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_refused_and_has_not_happened(new_run: NotarisedRun, steps: Steps, name: str) -> None:
    forge, why = CHEATS[name]
    run = played(new_run, steps[:3])
    pass_on(run, steps[3])
    before = run.audit.head, run.audit.entries, run.due, run.replies
    with pytest.raises(ServiceError, match=why):
        run.take(resealed(run, forge(steps[3])))
    assert (run.audit.head, run.audit.entries, run.due, run.replies) == before
    assert run.take(steps[3]) == len(steps[3])


def test_history_is_not_rewritten_and_has_no_gaps(new_run: NotarisedRun, steps: Steps) -> None:
    run = played(new_run, steps[:3])
    entries = [entry for step in steps for entry in step]
    other = entries[0]._replace(body={**entries[0].body, "seed": 6}).sealed("0" * 64)
    for wrong in ([other], [other, *entries[1:]], [*entries[1:3], entries[3]._replace(amount=9).sealed("0" * 64)]):
        with pytest.raises(ConflictError, match="not the one that the hub has had"):
            run.take(wrong)
    with pytest.raises(ConflictError, match=f"send those from entry {run.audit.entries} on"):
        run.take(entries[run.audit.entries + 1 :])
    for many in ([], [entries[0]] * (MOST_ENTRIES + 1)):
        with pytest.raises(InvalidError, match="between 1 and"):
            run.take(many)


def test_only_those_who_answered_here_are_paid_and_failures_are_told_as_they_were(
    new_run: NotarisedRun, steps: Steps
) -> None:
    run = played(new_run, steps[:2])
    with pytest.raises(InvalidError, match="was not asked through this hub"):
        run.take(steps[2])
    at = next(k for k, step in enumerate(steps) if any(e.kind == "void" for e in step))
    played(run, steps[2:at])
    pass_on(run, steps[at])
    for reason in (Code.of("refused", why="task-not-allowed"), Code("quarantined")):
        with pytest.raises(InvalidError, match="say so"):
            run.take(resealed(run, first("void", body(reason=reason.body()))(steps[at])))
    run.replies = replace(run.replies, failures={})
    with pytest.raises(InvalidError, match="ask it, then say"):
        run.take(resealed(run, first("void", body(reason={"code": "quarantined"}))(steps[at])))


def test_a_round_asks_one_question_of_those_whom_it_has_drawn(new_run: NotarisedRun, steps: Steps) -> None:
    run = played(new_run, steps[:1])
    with pytest.raises(ConflictError, match="no round is reserved"):
        run.refuse_ask(["p0"], QUESTION)
    run = played(run, steps[1:3])
    drawn = run.due.asked
    other = next(name for name in ("p0", "p1", "p2", "p3") if name not in drawn)
    with pytest.raises(InvalidError, match=f"{other} is not drawn in round 1"):
        run.refuse_ask([*drawn, other], QUESTION)
    run.refuse_ask(drawn, QUESTION)
    run.pass_on(QUESTION, {drawn[0]: b"an update"}, {})
    run.refuse_ask(drawn, QUESTION)
    with pytest.raises(ConflictError, match="one question is all that a round buys"):
        run.refuse_ask(drawn, "ef" * 32)
    run.pass_on(QUESTION, {}, {drawn[0]: Code("no-answer")})
    assert run.replies.answers == {drawn[0]: b"an update"} and not run.replies.failures


@pytest.mark.parametrize("asked", [True, False])
def test_whoever_goes_away_pays_for_what_was_passed_on(steps: Steps, tmp_path: Path, asked: bool) -> None:
    """After every step, or after all answers that came after it: the hub's close pays exactly the valid answers."""
    run = NotarisedRun.begin(tmp_path / "job" / "run", ID, "Own")
    assert not run.close()
    seen = set()
    for number, step in enumerate(steps):
        if run.audit.entries and asked:
            pass_on(run, step)
        place = shutil.copytree(tmp_path / "job", tmp_path / f"left {number}")
        replies, rounds = dict(run.replies.answers), run.notary.audit.rounds
        prices = {"p0": 1, "p1": 2, "p2": 3, "p3": 4}
        drawn = [e.provider or "" for e in run.store.entries() if e.kind == "reserve" and e.round == rounds]
        due = sum(prices[who] for who in drawn if who in replies)
        spent = 0 if run.notary.audit.book is None else run.notary.audit.book.spent
        left = NotarisedRun(place / "run")
        assert left.close() == bool(rounds or replies) and left.close() == left.audit.closed
        left.dispose()
        close_notarised(place / "run")
        if left.audit.closed:
            audit = left.folder.audit()
            assert audit.ok and audit.closed and audit.book is not None, audit.message
            assert audit.book.spent == spent + due and is_notarised(left.folder)
            assert audit.closing is not None
            seen.add(audit.closing["stop"]["kind"])
        if run.audit.entries and not asked:
            pass_on(run, step)
        run.take(step)
    run.dispose()
    assert seen == ({"consumer", "budget"} if asked else {"consumer"})


def test_a_consumers_own_close_is_taken_while_nothing_was_passed_on(new_run: NotarisedRun, steps: Steps) -> None:
    run = played(new_run, steps[:3])
    store = MemoryStore()
    store.append([entry for step in steps[:3] for entry in step], None)
    ledger = Ledger(RuleBook.of(Terms.from_body(steps[0][0].body)), store)
    scores = run.notary.audit.scores
    assert scores is not None
    written = list[Entry]()
    ledger.on_written = written.extend
    ledger.close_for_consumer(run.notary.audit.model or "", *scores.ended)
    pass_on(run, steps[3])
    with pytest.raises(InvalidError, match="stop the job, and the hub settles it"):
        run.take(written)
    run.replies = run.replies.of_round(-1).of_round(run.due.round)
    run.take(written)
    assert run.audit.closed
    with pytest.raises(ConflictError, match="closed at the hub"):
        run.take([*written, written[-1]._replace(seq=run.audit.entries)])


def test_a_note_that_cannot_be_read_is_said(new_run: NotarisedRun, steps: Steps) -> None:
    run = played(new_run, steps[:2])
    (run.folder.path.parent / REPLIES).write_bytes(b"torn")
    run.dispose()
    with pytest.raises(BazaarError, match="cannot be read: put the old file back"):
        NotarisedRun(run.folder.path)


def test_only_so_many_runs_are_at_hand_and_one_that_was_closed_is_not(steps: Steps, tmp_path: Path) -> None:
    held, opened = Pool[NotarisedRun](1), list[NotarisedRun]()

    def open_run(name: str) -> NotarisedRun:
        opened.append(NotarisedRun.begin(tmp_path / name / "run", ID, "Own"))
        return opened[-1]

    for name in ("a", "a", "b"):
        with held.of(name, partial(open_run, name)) as run:
            run.take(steps[0])
    assert list(held) == ["b"] and len(opened) == 2
    refused, ready = list[Exception](), threading.Event()

    def waits() -> None:
        ready.set()
        try:
            with held.of("b", lambda: open_run("b")):
                pass
        except ConflictError as reason:
            refused.append(reason)

    threads = [threading.Thread(target=waits), threading.Thread(target=held.drop, args=("b",))]
    with held.of("b", lambda: open_run("b")):
        threads[0].start()
        ready.wait()
        while held._held["b"].users < 2:
            time.sleep(0.001)
        threads[1].start()
        while "b" in list(held):
            time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert "has just been closed" in str(refused[0]) and list(held) == []
    NotarisedRun(tmp_path / "b" / "run").dispose()
