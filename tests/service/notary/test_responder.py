"""The process that answers for an own arbiter, run here in a thread: files by their contracts, sites by their word."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from databazaar.codes import Code
from databazaar.config.jobs import Job, job_of
from databazaar.config.market_file import parse_market
from databazaar.engines import LoopEngine
from databazaar.errors import BazaarError
from databazaar.federation.frames import decode_bundle, encode_bundle
from databazaar.federation.messages import Reply, Request, TaskMessage, encode_reply, encode_request
from databazaar.federation.policy import width
from databazaar.federation.transport import LocalTransport
from databazaar.federation.worker import ProviderWorker
from databazaar.learning.task import step_at
from databazaar.service.notary.responder import Responder, serve
from databazaar.service.submission import expected_terms
from databazaar.vectors import hash_array
from desk_market import SPEC, table
from signed_parties import SignedParties

RUN = "ab" * 16
Told = tuple[dict[str, Any], dict[str, bytes]]
FREE = {"models": None, "most_rows": None}
WIDTH = 12
NOW: dict[str, Any] = {"no_update": "", "round": 0, "model": hash_array(np.zeros(WIDTH, np.float32))}


def settings_of(names: list[str], **more: Any) -> dict[str, Any]:
    providers = [{"id": name, "owner": name, "price": "0.05"} for name in names]
    money = {"currency": "EUR", "decimals": 2, "name": "Own"}
    spec = {**SPEC, "market": {**SPEC["market"], **money}, "data": {**SPEC["data"], "holdout": "holdout.csv"}}
    engine = {"engine": {"kind": "federated"}, "federation": {"folder": "."}}
    return {**spec, "consumer": {"name": "Buyer"}, **engine, **more, "providers": providers}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("answering")
    (folder / "holdout.csv").write_bytes(table(9))
    for seed, name in enumerate(("north", "south", "east"), 1):
        (folder / f"{name}.csv").write_bytes(table(seed))
    (folder / "far.csv").write_bytes(b"something,else\n" + b"1,2\n3,4\n" * 16)
    return folder


NAMES = ["north", "south", "east", "far"]


@pytest.fixture(scope="module")
def job(place: Path) -> Job:
    return job_of(parse_market(settings_of(NAMES)), place)


def question(job: Job, kind: str = "update", fill: float = 0.0, **other: Any) -> bytes:
    assert job.federation is not None and job.federation.task.model is not None
    task = job.federation.task
    oracle = task.oracle.model_copy(update={"step": step_at(job.federation.step, 0)})
    task = TaskMessage.model_validate(task.model_copy(update={"oracle": oracle}))
    fields = {"protocol": 3, "kind": kind, "run": RUN, "round": 0, "seed": 3, "consumer": "Buyer", "contract": RUN}
    assert width(job.federation.task.model) == WIDTH
    params = torch.full((WIDTH,), fill) if kind == "update" else None
    return encode_request(Request.model_validate({**fields, "task": task, **other}), params)


def about(place: Path, names: list[str], **files: Any) -> dict[str, Any]:
    kept = {name: {**FREE, "path": str(place / f"{name}.csv"), **files.get(name, {})} for name in names}
    told = {"run": RUN, "consumer": "Buyer", "market": settings_of(names), "federation": ""}
    return {**told, "files": kept, "folder": str(place)}


@contextmanager
def served(begin: dict[str, Any]) -> Iterator[Connection]:
    here, there = Pipe()
    thread = threading.Thread(target=serve, args=(there,), daemon=True)
    thread.start()
    assert called(here, begin)[0] == {"ready": True}
    yield here
    here.close()
    thread.join(10)
    there.close()
    assert not thread.is_alive()


def called(connection: Connection, header: dict[str, Any], body: bytes = b"") -> Told:
    connection.send_bytes(encode_bundle(header, {"body": body}))
    assert connection.poll(60)
    return decode_bundle(connection.recv_bytes())


def asked(
    connection: Connection, names: list[str], payload: bytes, **more: Any
) -> tuple[dict[str, Any], dict[str, bytes]]:
    return called(connection, {"op": "ask", "names": names, "timeout": 30.0, **NOW, **more}, payload)


def test_files_answer_within_their_contracts_and_in_the_ledgers_words(place: Path, job: Job) -> None:
    bounds = {"south": {"most_rows": 8}, "east": {"models": ["mlp"]}}
    with served(about(place, NAMES, **bounds)) as channel:
        told, replies = asked(channel, NAMES, question(job))
        assert told["kind"] == "update" and told["lost"] == {} and set(replies) == set(NAMES)
        refused = Code.of("refused", why="task-not-allowed").body()
        assert told["codes"] == {
            "north": None,
            "south": refused,
            "east": refused,
            "far": Code.of("refused", why="task-does-not-fit").body(),
        }
        assert asked(channel, NAMES[:1], question(job))[1] == {"north": replies["north"]}
        told, _ = asked(channel, NAMES[:1], question(job, "describe"), no_update="not now")
        assert told["kind"] == "describe" and told["codes"] == {"north": None}
        assert asked(channel, NAMES[:1], question(job), no_update="not now")[0] == {"refused": "not now"}
        assert called(channel, {"op": "connected"})[0] == {"connected": sorted(NAMES)}


def test_questions_that_were_not_agreed_are_not_passed_on(place: Path, job: Job) -> None:
    assert job.federation is not None and job.federation.task.table is not None
    answering, task = Responder(about(place, ["north"])), job.federation.task
    others: dict[str, bytes] = {
        "cannot be read": b"DBZ1",
        "names another run": question(job, contract="0" * 32),
        "round 0 is under way": question(job, seed=4),
        "other work": question(job, round=0, task=_with_oracle(task, epochs=50)),
        "other parameters than those that the ledger names for round 0": question(job, fill=0.5),
        "another model": question(job, task=task.model_copy(update={"model": None})),
        "another target": question(
            job, task=task.model_copy(update={"table": job.federation.task.table.model_copy(update={"target": "x"})})
        ),
    }
    for why, payload in others.items():
        with pytest.raises(BazaarError, match=why):
            answering.check(payload, ["north"], NOW)
    with pytest.raises(BazaarError, match="is no provider of this job"):
        answering.check(question(job), ["west"], NOW)
    with pytest.raises(BazaarError, match="not now"):
        answering.check(question(job), ["north"], {**NOW, "no_update": "not now"})


def _with_oracle(task: TaskMessage, **other: Any) -> TaskMessage:
    return task.model_copy(update={"oracle": task.oracle.model_copy(update=other)})


def test_one_schema_is_answered_even_by_a_process_that_is_started_anew(place: Path, job: Job) -> None:
    assert job.federation is not None and job.federation.task.table is not None
    schema = job.federation.task.table
    other = job.federation.task.model_copy(
        update={"table": schema.model_copy(update={"numeric": tuple(reversed(schema.numeric))})}
    )
    for _ in range(2):
        answering = Responder({**about(place, ["north"]), "folder": str(place / "pinned")})
        words = []
        for payload in (question(job), question(job, task=other)):
            checked = answering.check(payload, ["north"], NOW)
            words.append(answering.ask(payload, ["north"], 30.0, *checked)[2])
        assert words == [{"north": None}, {"north": {"code": "refused", "why": "task-not-allowed"}}]


def test_a_site_answers_by_its_signature_or_not_at_all(place: Path, job: Job, tmp_path: Path) -> None:
    parties = SignedParties(tmp_path, ["bank1", "bank2"])
    begin = {**about(place, ["bank1", "bank2"]), "files": {}, "federation": str(parties.market)}
    answering = Responder(begin)
    assert not isinstance(answering._transport, LocalTransport)
    signed = ProviderWorker("bank1", lambda w: w + 1, signer=parties.signers["bank1"])
    unsigned = ProviderWorker("bank2", lambda w: w + 1)
    answering._transport = LocalTransport({"bank1": signed, "bank2": unsigned})
    payload = question(job)
    request, params = answering.check(payload, ["bank1", "bank2"], NOW)
    replies, lost, words, _ = answering.ask(payload, ["bank1", "bank2"], 30.0, request, params)
    assert set(replies) == {"bank1"} and lost == {"bank2": "provider-error"}
    assert words == {"bank1": None, "bank2": {"code": "provider-error"}}


def test_what_comes_back_is_judged_as_the_arbiter_will_judge_it(place: Path, job: Job) -> None:
    answering = Responder(about(place, ["north", "south", "east"]))
    honest = ProviderWorker("north", lambda w: w + 1)
    answering._transport = LocalTransport(
        {
            "north": lambda payload: honest(payload) + b"\0",
            "south": ProviderWorker("south", lambda w: w[:-1]),
            "east": ProviderWorker("elsewhere", lambda w: w),
        }
    )
    payload = question(job)
    names = ["north", "south", "east"]
    told = Reply(
        protocol=2, run=RUN, round=0, provider="north", status="ok", code="", epsilon=0.5, delta=1e-5, question=""
    )
    checked = answering.check(payload, names, NOW)
    private = Responder(about(place, ["north", "south", "east"]))
    private._transport = LocalTransport({"north": lambda payload: encode_reply(told, checked[1])})
    assert private.ask(payload, ["north"], 30.0, *checked)[2:] == ({"north": None}, {"north": (0.5, 1e-5)})
    request, params = answering.check(payload, names, NOW)
    words = answering.ask(payload, names, 30.0, request, params)[2]
    assert words["south"] == Code.of("provider-failed", why="computation-failed").body()
    assert words["east"] == {"code": "other-provider"}
    assert words["north"] == {"code": "bad-vector"}


def test_the_terms_are_those_that_the_arbiter_writes(place: Path, job: Job) -> None:
    opening = job.arbiter(engine=_NoEngine()).terms().body()
    expected = expected_terms(parse_market(settings_of(NAMES)))
    own = {"initial_model", "data", "layout"}
    assert {**expected, **{name: opening[name] for name in own}} == opening
    with pytest.raises(BazaarError, match="cannot be checked without its hold-out"):
        expected_terms(parse_market(settings_of(NAMES, defence={"kind": "standard"})))


class _NoEngine(LoopEngine):
    """For an arbiter that is asked for its terms alone."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")
