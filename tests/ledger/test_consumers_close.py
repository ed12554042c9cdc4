"""The consumer closes an interrupted run: what was settled is paid, nothing else, and no audit can be talked round."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from databazaar import OSMD, Arbiter, BazaarError, Consumer, LedgerError, LocalSGD, Provider, Report, TargetUtility
from databazaar.engines import Ask, Engine, Replies
from databazaar.files import write_whole
from databazaar.learning.models import Layout
from databazaar.ledger import Entry, Snapshot, audit_entries
from databazaar.ledger.book import NOT_SETTLED
from databazaar.ledger.sql import SqlStore
from databazaar.runs.close import close_run
from databazaar.runs.folder import LAYOUT, LEDGER, MODEL, SUMMARY, RunFolder
from databazaar.runs.model_folder import CARD, WEIGHTS
from databazaar.vectors import unpack
from forging import reseal
from small_markets import MakeMarket

ROUNDS = 4


class LightsOutError(Exception):
    """Stands in for a kill in the middle of a round."""


class Mortal(Engine):
    """Answers like the engine inside, until some round."""

    name, device = "loop", torch.device("cpu")

    def __init__(self, inner: Engine, dies_in: int) -> None:
        self._inner, self._dies_in = inner, dies_in

    def query(self, ask: Ask) -> Replies:
        if ask.round == self._dies_in:
            raise LightsOutError
        return self._inner.query(ask)


def arbiter(make_market: MakeMarket, **more: Any) -> Arbiter:
    consumer, providers = make_market(
        budget=40, prices=[1, 2, 3, 1], owners=["ann", "ann", "bob", "eve"], oracles={3: lambda w: w * np.nan}
    )
    return Arbiter(consumer, providers, OSMD(0.6, 0.2), seed=8, **{"engine": "loop", **more})


def interrupted(make_market: MakeMarket, path: Path, rounds: int = ROUNDS) -> Path:
    engine = Mortal(arbiter(make_market).engine, rounds)
    with pytest.raises(LightsOutError):
        arbiter(make_market, engine=engine).run(path)
    return path


@pytest.fixture(scope="module")
def closed(make_vector_market: MakeMarket, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = interrupted(make_vector_market, tmp_path_factory.mktemp("closed") / "run")
    close_run(path)
    return path


def ledger_of(path: Path) -> tuple[list[Entry], Snapshot | None]:
    store = SqlStore.file(path / LEDGER, RunFolder(path).id)
    found = list(store.entries()), store.snapshot()
    store.dispose()
    return found


@pytest.mark.parametrize("rounds", [1, 2, ROUNDS])
def test_it_pays_what_was_settled_and_returns_the_rest(
    make_vector_market: MakeMarket, tmp_path: Path, rounds: int
) -> None:
    told: list[Any] = []
    arbiter(make_vector_market).run(tell=told.append)
    path = interrupted(make_vector_market, tmp_path / "run", rounds)
    before = RunFolder(path).report()
    assert before.held > 0
    report = close_run(path)
    assert report.status == "settled" and report.closed and len(report.rounds) == rounds
    assert report.spent == before.spent == told[rounds - 1].spent
    assert report.refunded == report.budget - report.spent and report.held == 0
    assert report.payouts == before.payouts  # a voided round is nobody's failure
    assert report.final_utility == told[rounds - 1].utility
    np.testing.assert_array_equal(unpack((path / MODEL).read_bytes())["w"], told[rounds - 1].params.numpy())
    audit = RunFolder(path).audit()
    assert audit.ok and audit.closed, audit.message
    assert audit.closing is not None and audit.closing["stop"]["kind"] == "consumer"
    assert "nobody is paid for the round that was under way" in report.message
    assert RunFolder(path).summary()["stop"] == {"kind": "consumer", "reason": {"code": "closed-by-consumer"}}
    assert not list(path.glob("*-wal")) and not (path / LAYOUT).exists()


def test_two_closes_of_one_run_come_to_the_same_head(
    make_vector_market: MakeMarket, tmp_path: Path, closed: Path
) -> None:
    again = interrupted(make_vector_market, tmp_path / "again")
    assert close_run(again).ledger_head == RunFolder(closed).audit().head


@pytest.mark.process
def test_tensors_keep_their_names_without_the_model_and_no_torch_is_imported(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20, 3)), rng.integers(0, 2, 20)
    consumer = Consumer("mlp", holdout=rows, budget=40, per_round=2)
    providers = [Provider(name, rows, LocalSGD(0.1, 5)) for name in "abc"]
    with pytest.raises(LightsOutError):
        inner = Arbiter(consumer, providers, engine="loop", device="cpu").engine
        Arbiter(consumer, providers, engine=Mortal(inner, 3)).run(tmp_path / "run")
    program = (
        "import sys; from pathlib import Path; from databazaar.runs.close import close_run; "
        "close_run(Path(sys.argv[1])); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "run")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    named = unpack((tmp_path / "run" / MODEL).read_bytes())
    assert isinstance(consumer.model, torch.nn.Module)
    layout = Layout.of(consumer.model)
    assert [(name, value.shape) for name, value in named.items()] == list(zip(layout.names, layout.shapes, strict=True))
    assert RunFolder(tmp_path / "run").audit().ok


def test_a_run_without_a_round_and_a_finished_one_are_refused(
    make_vector_market: MakeMarket, tmp_path: Path, closed: Path
) -> None:
    with pytest.raises(BazaarError, match="there is nothing to close"):
        close_run(closed)
    RunFolder.create(tmp_path / "empty")
    interrupted(make_vector_market, tmp_path / "early", 0)
    for name in ("empty", "early"):
        with pytest.raises(BazaarError, match=r"no settled round yet.*`bazaar run .*` goes on with it"):
            close_run(tmp_path / name)
    assert arbiter(make_vector_market).run(tmp_path / "early").closed


def test_a_run_that_is_being_played_is_neither_closed_nor_played_twice(
    make_vector_market: MakeMarket, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    refused: list[Callable[[], Report]] = []
    attempts: list[Callable[[], Report]] = [
        lambda: close_run(path),
        lambda: arbiter(make_vector_market).run(path),
    ]

    def intrude(progress: object) -> None:
        for attempt in attempts:
            with pytest.raises(BazaarError, match="another process is playing this run"):
                attempt()
            refused.append(attempt)

    report = arbiter(make_vector_market).run(path, tell=intrude)
    assert len(refused) == 2 * len(report.rounds) and RunFolder(path).audit().ok


def test_a_ledger_that_does_not_hold_is_not_closed(make_vector_market: MakeMarket, tmp_path: Path) -> None:
    path = interrupted(make_vector_market, tmp_path / "run")
    data = (path / LEDGER).read_bytes()
    assert data
    store = SqlStore.file(path / LEDGER, RunFolder(path).id)
    head = list(store.entries())[-1]
    store.append([head._replace(seq=head.seq + 1, kind="round", round=9, body={"gains": []})], None)
    store.dispose()
    with pytest.raises(LedgerError, match="its ledger does not hold"):
        close_run(path)
    assert not (path / SUMMARY).exists()


@pytest.mark.parametrize("stage", ["model", "card", "store", "summary"])
def test_killed_while_it_closes_it_is_closed_again(
    make_vector_market: MakeMarket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: Path, stage: str
) -> None:
    path = interrupted(make_vector_market, tmp_path / "run")

    def cut(target: Path, content: bytes, **more: Any) -> None:
        if target.name == {"model": WEIGHTS, "card": CARD, "summary": SUMMARY}.get(stage):
            raise LightsOutError
        write_whole(target, content, **more)

    def no_finish(store: SqlStore) -> None:
        raise LightsOutError

    with monkeypatch.context() as patch:
        patch.setattr("databazaar.runs.folder.write_whole", cut)
        patch.setattr("databazaar.runs.model_folder.write_whole", cut)
        if stage == "store":
            patch.setattr(SqlStore, "finish", no_finish)
        with pytest.raises(LightsOutError):
            close_run(path)
    assert close_run(path).ledger_head == RunFolder(closed).audit().head
    assert RunFolder(path).audit().ok


def test_a_close_that_a_resume_finds_is_finished_as_it_is(
    make_vector_market: MakeMarket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: Path
) -> None:
    path = interrupted(make_vector_market, tmp_path / "run")
    with monkeypatch.context() as patch, pytest.raises(LightsOutError):
        patch.setattr(RunFolder, "finish", lambda *_: (_ for _ in ()).throw(LightsOutError()))
        close_run(path)
    assert arbiter(make_vector_market).run(path).ledger_head == RunFolder(closed).audit().head


def at(entries: Sequence[Entry], kind: str, count: int = -1) -> int:
    return [place for place, entry in enumerate(entries) if entry.kind == kind][count]


def voids(entries: Sequence[Entry]) -> int:
    """Where the voids of the round under way begin."""
    return next(place for place, entry in enumerate(entries) if entry.body == NOT_SETTLED)


def with_close(entries: list[Entry], **body: Any) -> list[Entry]:
    return [*entries[:-1], entries[-1]._replace(body={**entries[-1].body, **body})]


def pays_one(entries: list[Entry]) -> list[Entry]:
    """A close after a partial payment, with sums that fit."""
    first = voids(entries)
    posted = entries[first]._replace(kind="post", body={})
    spent = entries[-1].body["spent"] + (posted.amount or 0)
    changed = [*entries[:first], posted, *entries[first + 1 :]]
    return with_close(changed, spent=spent, refunded=entries[0].body["budget"] - spent)


def pays_all(entries: list[Entry]) -> list[Entry]:
    first = voids(entries)
    posted = [entry._replace(kind="post", body={}) for entry in entries[first:-1]]
    spent = entries[-1].body["spent"] + sum(entry.amount or 0 for entry in posted)
    return with_close([*entries[:first], *posted, entries[-1]], spent=spent, refunded=entries[0].body["budget"] - spent)


def without_last_round(entries: list[Entry]) -> list[Entry]:
    """The last "round" is missing: what it paid is kept, and the next round's reservations follow."""
    place = at(entries, "round")
    return [*entries[:place], *entries[place + 1 :]]


def voids_a_paid_round(entries: list[Entry]) -> list[Entry]:
    """Takes the last settled round back: the posts are followed by voids of the same accesses."""
    place = at(entries, "round")
    posts = [entry for entry in entries[:place] if entry.kind == "post" and entry.round == entries[place].round]
    taken = [post._replace(kind="void", body=dict(NOT_SETTLED)) for post in posts]
    return [*entries[:place], *taken, entries[-1]]


def settled_as_left(entries: list[Entry]) -> list[Entry]:
    """A reply that failed in a round that was settled is said to be the consumer's doing."""
    place = next(i for i, entry in enumerate(entries) if entry.kind == "void")
    return [*entries[:place], entries[place]._replace(body=dict(NOT_SETTLED)), *entries[place + 1 :]]


def other_reason(entries: list[Entry]) -> list[Entry]:
    first = voids(entries)
    body = {"reason": {"code": "no-answer"}}
    return [*entries[:first], entries[first]._replace(body=body), *entries[first + 1 :]]


def in_no_round(entries: list[Entry]) -> list[Entry]:
    return with_close([entries[0], entries[-1]], spent=0, refunded=entries[0].body["budget"])


def goes_on(entries: list[Entry]) -> list[Entry]:
    return [*entries, entries[1]._replace()]


ATTACKS: dict[str, tuple[Callable[[list[Entry]], list[Entry]], str]] = {
    "one is paid": (pays_one, "in a round that is settled in part"),
    "all are paid": (pays_all, "in a round that is settled in part"),
    "a round is missing": (without_last_round, "stands in round 3"),
    "a paid round is taken back": (voids_a_paid_round, "nothing like it is reserved"),
    "a failure is the consumer's": (settled_as_left, "said to have left unsettled"),
    "voided for another reason": (other_reason, "in a round that is settled in part"),
    "the reservation is left open": (
        lambda entries: [*entries[: voids(entries)], entries[-1]],
        "reservations are still open",
    ),
    "the round under way is hidden": (
        lambda entries: [e for e in entries[:-1] if e.round != ROUNDS] + [entries[-1]],
        "without voiding the round that was under way",
    ),
    "a part of it is hidden": (
        lambda entries: [e for e in entries if (e.round, e.draw) != (ROUNDS, 2)],
        "settled before the whole round was reserved",
    ),
    "no round at all": (in_no_round, "a run that has no round"),
    "it goes on": (goes_on, "the ledger is closed"),
    "another reason": (
        lambda entries: with_close(entries, stop={"kind": "consumer", "reason": {"code": "because"}}),
        "the run stopped although the budget covers another round",
    ),
    "another stop": (
        lambda entries: with_close(entries, stop={"kind": "budget", "reason": {"code": "budget-spent"}}),
        "the run stopped although the budget covers another round",
    ),
    "another status": (lambda entries: with_close(entries, status="nobody-answered"), "does not follow"),
    "another message": (lambda entries: with_close(entries, message="all is well"), "has other fields than a close"),
    "another utility": (lambda entries: with_close(entries, utility=0.99), "another utility or loss"),
    "another model": (lambda entries: with_close(entries, model="0" * 64), "names another model"),
    "more refunded": (lambda entries: with_close(entries, refunded=40), "but the posts sum to"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_no_other_close_is_accepted_although_sealed_anew(closed: Path, name: str) -> None:
    entries, snapshot = ledger_of(closed)
    assert reseal(entries) == entries and audit_entries(entries, snapshot).ok
    forge, says = ATTACKS[name]
    audit = audit_entries(reseal(forge(entries)))
    assert not audit.ok
    assert says in audit.message


def test_a_run_that_had_a_reason_to_end_is_not_the_consumers_to_close(make_vector_market: MakeMarket) -> None:
    from databazaar.ledger import Ledger
    from databazaar.market.loop import play

    market = arbiter(make_vector_market, stops=[TargetUtility(0.4)])
    ledger = Ledger(market.rules)
    play(market.begin(ledger), market.engine)
    entries = list(ledger.store.entries())
    assert entries[-1].body["stop"]["kind"] == "target-utility"
    body = {**entries[-1].body, "stop": {"kind": "consumer", "reason": {"code": "enough"}}}
    forged = audit_entries(reseal([*entries[:-1], entries[-1]._replace(body=body)]))
    assert "but it was" in forged.message


def test_digests_and_names_of_run_json_are_those_of_the_chain(make_vector_market: MakeMarket, tmp_path: Path) -> None:
    digests = {"holdout.csv": "a" * 64, "north.csv": "b" * 64}
    recipe = {
        "title": "Fraud",
        "digests": digests,
        "market": {"market": {"name": "Fraud"}, "consumer": {"name": "Bank"}},
    }
    named = {"market": "Fraud", "buyer": "Bank", "data": digests}
    report = arbiter(make_vector_market, **named).run(RunFolder.create(tmp_path / "run", recipe))
    assert (report.market, report.consumer, report.run) == ("Fraud", "Bank", RunFolder(tmp_path / "run").id)
    assert RunFolder(tmp_path / "run").audit().ok
    kept = json.loads((tmp_path / "run" / "run.json").read_text())
    for change in (
        {"digests": {**digests, "north.csv": "c" * 64}},
        {"digests": {"holdout.csv": "a" * 64}},
        {"digests": None},
        {"title": "Theft"},
        {"market": {**recipe["market"], "market": {"name": "Theft"}}},  # type: ignore[dict-item]
        {"market": {**recipe["market"], "consumer": {"name": "Thief"}}},  # type: ignore[dict-item]
    ):
        (tmp_path / "run" / "run.json").write_text(json.dumps({**kept, **change}))
        assert "than the ledger's first entry" in RunFolder(tmp_path / "run").audit().message, change


def test_what_is_not_given_leaves_no_trace_in_the_chain_and_what_is_given_is_agreed(
    make_vector_market: MakeMarket, tmp_path: Path
) -> None:
    plain = interrupted(make_vector_market, tmp_path / "run")
    assert not {"market", "consumer", "data"} & ledger_of(plain)[0][0].body.keys()
    named = {"market": "Fraud", "data": {"a.csv": "a" * 64}}
    with pytest.raises(BazaarError, match="begun with other terms"):
        arbiter(make_vector_market, **named).run(plain)
    other = tmp_path / "other"
    with pytest.raises(LightsOutError):
        arbiter(make_vector_market, **named, engine=Mortal(arbiter(make_vector_market).engine, 2)).run(other)
    for changed in ({"market": "Theft"}, {"data": {"a.csv": "b" * 64}}, {"data": None}):
        with pytest.raises(BazaarError, match="begun with other terms"):
            arbiter(make_vector_market, **{**named, **changed}).run(other)


def test_progress_is_told_once_the_ledger_holds_the_round(make_vector_market: MakeMarket, tmp_path: Path) -> None:
    found: list[tuple[int, int, int, int]] = []

    def look(progress: Any) -> None:
        report = RunFolder(tmp_path / "run").report()
        found.append((progress.round, len(report.rounds), progress.spent, report.spent))

    report = arbiter(make_vector_market).run(tmp_path / "run", tell=look)
    assert [told for told, _, _, _ in found] == list(range(1, len(report.rounds) + 1))
    assert all(told == held and spent == paid for told, held, spent, paid in found)
