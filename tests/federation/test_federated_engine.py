"""The federated engine and the provider's worker, in one process: the same results, and every kind of no."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from databazaar import Arbiter, BazaarError, Consumer, Provider, judge_purchase
from databazaar.codes import QUARANTINED, Code
from databazaar.data.schema_message import SchemaMessage
from databazaar.data.tables import Schema
from databazaar.engines import Ask, Beginning, LoopEngine
from databazaar.engines.quarantine import Quarantine
from databazaar.federation import messages
from databazaar.federation.engine import FederatedEngine
from databazaar.federation.messages import (
    Reply,
    TaskMessage,
    decode_request,
    encode_reply,
    encode_request,
)
from databazaar.federation.policy import Policy, width
from databazaar.federation.records import AccessRecord, earnings
from databazaar.federation.table import Table
from databazaar.federation.transport import Fault, LocalTransport, MessageError
from databazaar.federation.worker import ProviderWorker
from databazaar.learning.losses import cross_entropy
from databazaar.learning.models import build_model
from databazaar.learning.oracles import build_oracle
from databazaar.learning.task import Task
from databazaar.models import MODEL_KINDS
from databazaar.runs.folder import RunFolder
from databazaar.testing import check_engine
from markets import ROWS, STEP, TASK, a_consumer, afar, at_home, examples, federated

NAMES = ["bank1", "bank2", "bank3"]


def workers(names: Sequence[str] = NAMES) -> dict[str, Callable[[bytes], bytes]]:
    return {name: ProviderWorker(name, examples(name)) for name in names}


def ask(round: int = 0, providers: Sequence[int] = (0, 1, 2)) -> Ask:
    return Ask(a_consumer().initial_parameters(), providers, round, 5)


def test_federated_and_loop_end_in_the_same_model_and_the_same_ledger() -> None:
    home = Arbiter(a_consumer(), at_home(NAMES), engine="loop", device="cpu", seed=3).run()
    away = Arbiter(a_consumer(), afar(NAMES), engine=federated(NAMES, LocalTransport(workers())), seed=3).run()
    assert (away.model_hash, away.ledger_head) == (home.model_hash, home.ledger_head)
    assert home.spent == 36


def test_caps_announced_prices_and_limits_hold_for_providers_elsewhere_too() -> None:
    def priced(providers: Sequence[Provider]) -> list[Provider]:
        first, second, third = providers
        return [replace(first, most_accesses=4), replace(second, price_changes=[(2, 5)]), third]

    consumer = replace(a_consumer(), most_per_access=4, most_per_round=2)
    home = Arbiter(consumer, priced(at_home(NAMES)), engine="loop", device="cpu", seed=3).run()
    engine = federated(NAMES, LocalTransport(workers()))
    away = Arbiter(consumer, priced(afar(NAMES)), engine=engine, seed=3).run()
    assert (away.model_hash, away.ledger_head) == (home.model_hash, home.ledger_head)
    assert away.payouts[0].accesses == 4 and {len(one.accesses) for one in away.rounds} <= {1, 2}
    assert all(access.provider != 1 for one in away.rounds[2:] for access in one.accesses)


def test_providers_are_neither_asked_nor_paid_for_comparisons(tmp_path: Path) -> None:
    """What the purchase was worth is judged by what is at hand: real providers would work for nothing."""
    records = {name: AccessRecord(tmp_path / f"{name}.jsonl") for name in NAMES}
    handlers = {name: ProviderWorker(name, examples(name), record=records[name]) for name in NAMES}
    consumer = a_consumer(train=examples("train1"), audit=examples("audit1"))
    arbiter = Arbiter(consumer, afar(NAMES), engine=federated(NAMES, LocalTransport(handlers)))
    report = arbiter.run(tmp_path / "run")
    answered = {name: len(list(record)) for name, record in records.items()}
    rounds = {
        name: sum(any(access.provider == place for access in played.accesses) for played in report.rounds)
        for place, name in enumerate(NAMES)
    }
    assert answered == rounds
    worth = judge_purchase(arbiter, report)
    assert {name: len(list(record)) for name, record in records.items()} == answered
    assert [other.kind for other in worth.others] == ["own-rows"]
    assert worth.notes[-1].startswith("Uniform buying and single providers were not tried")
    kept = RunFolder(tmp_path / "run").report()
    assert kept.spent == report.spent == 36 and kept.ledger_head == report.ledger_head


def test_the_engine_passes_the_conformance_check() -> None:
    consumer = a_consumer()
    engine = federated(NAMES, LocalTransport(workers()))
    check_engine(engine, consumer.task, at_home(NAMES), consumer.initial_parameters(), tolerance=0)


def test_a_callable_oracle_on_a_plain_vector() -> None:
    target = np.array([1.0, -1.0, 0.5])

    def utility(w: np.ndarray) -> float:
        return float(np.exp(-np.sum((w - target) ** 2)))

    consumer = Consumer(np.zeros(3), budget=12, per_round=3, utility=utility, step=0.3)
    home = [Provider(name, oracle=lambda w: target - w) for name in NAMES]
    handlers = {name: ProviderWorker(name, lambda w: target - w) for name in NAMES}
    task = TASK.model_copy(update={"model": None})
    engine = FederatedEngine(task, NAMES, LocalTransport(handlers))
    away = Arbiter(consumer, afar(NAMES), engine=engine).run()
    assert away.ledger_head == Arbiter(consumer, home, engine="loop", device="cpu").run().ledger_head


def lies(**changes: object) -> Callable[[bytes], bytes]:
    """A reply that is right but for these changes; `update` replaces the update."""

    def handler(payload: bytes) -> bytes:
        request, params = decode_request(payload)
        assert params is not None
        update = changes.get("update", lambda w: w)(params)  # type: ignore[operator]
        header = {"protocol": 2, "run": request.run, "round": request.round, "provider": "bank1"}
        header |= {"status": "ok", "code": "", "epsilon": None, "delta": None}
        header |= {name: value for name, value in changes.items() if name != "update"}
        return encode_reply(Reply.model_validate(header), update)

    return handler


def broken(payload: bytes) -> bytes:
    raise RuntimeError("a secret of the provider")


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        (lies(update=lambda w: w * torch.nan), Fault.NOT_FINITE),
        (lies(update=lambda w: w + torch.inf), Fault.NOT_FINITE),
        (lies(update=lambda w: w + 1e38), "beyond-limit"),
        (lies(update=lambda w: w[1:]), Fault.OTHER_SHAPE),
        (lies(update=lambda w: w.double()), Fault.OTHER_SHAPE),
        (lies(round=7), Fault.OTHER_ROUND),
        (lies(run="f" * 32), Fault.OTHER_ROUND),
        (lies(provider="bank2"), Fault.OTHER_PROVIDER),
        (lambda payload: b"garbage", Fault.NOT_A_MESSAGE),
        (lambda payload: payload, Fault.BAD_HEADER),
        (broken, "provider-error"),
    ],
)
def test_a_bad_reply_is_voided_and_the_others_count(handler: Callable[[bytes], bytes], why: str) -> None:
    engine = federated(NAMES, LocalTransport({**workers(), "bank1": handler}))
    replies = engine.query(ask())
    assert [code.name for code in replies.failures.values()] == [why]
    assert not replies.updates[0].any()
    assert replies.updates[1].any() and replies.updates[2].any()
    report = Arbiter(a_consumer(), afar(NAMES), engine=engine, seed=3).run()
    paid = {payout.provider: payout for payout in report.payouts}
    assert paid["bank1"].pay == 0 and paid["bank1"].failures > 0
    assert paid["bank2"].pay > 0 and paid["bank3"].pay > 0
    assert report.status == "settled"


def test_the_text_of_an_exception_stays_with_the_provider(caplog: pytest.LogCaptureFixture) -> None:
    def oracle(w: np.ndarray) -> np.ndarray:
        raise ValueError("a secret of the provider")

    worker = ProviderWorker("bank1", oracle)
    replies = federated(NAMES, LocalTransport({**workers(), "bank1": worker})).query(ask())
    assert replies.failures == {0: Code.of("provider-failed", why="computation-failed")}
    assert "a secret" in caplog.text


def test_after_repeated_failures_a_provider_is_set_aside_and_let_back_in() -> None:
    mood = {"fails": True}
    asked: list[tuple[int, str]] = []
    good = ProviderWorker("bank1", examples("bank1"))

    def moody(payload: bytes) -> bytes:
        request, _ = decode_request(payload)
        asked.append((request.round, request.kind))
        if mood["fails"]:
            raise RuntimeError
        return good(payload)

    engine = federated(NAMES, LocalTransport({**workers(), "bank1": moody}), quarantine=Quarantine(3))
    reasons = [engine.query(ask(round)).failures.get(0) for round in range(8)]
    assert reasons == [Code("provider-error")] * 3 + [QUARANTINED] * 5
    assert asked == [(0, "update"), (1, "update"), (2, "update"), (0, "describe"), (0, "describe")]
    mood["fails"] = False
    reasons = [engine.query(ask(round)).failures.get(0) for round in range(8, 14)]
    assert reasons[0] == QUARANTINED and reasons[-1] is None
    assert reasons == sorted(reasons, key=lambda reason: reason is None)
    mood["fails"] = True
    assert engine.query(ask(14)).failures == {0: Code("provider-error")}, "it starts with a clean slate"


def test_a_refusal_is_unpaid_and_not_held_against_the_provider() -> None:
    strict = ProviderWorker("bank1", examples("bank1"), Policy(models=("mlp",)))
    engine = federated(NAMES, LocalTransport({**workers(), "bank1": strict}), quarantine=Quarantine(2))
    for round in range(6):
        assert engine.query(ask(round)).failures == {0: Code.of("refused", why="task-not-allowed")}
    assert engine.would_take(NAMES, 1.0) == {"bank1": Code.of("refused", why="task-not-allowed")}


def test_a_provider_that_is_not_there() -> None:
    engine = federated(NAMES, LocalTransport(workers(["bank1", "bank2"])))
    assert engine.query(ask()).failures == {2: Code("not-connected")}
    assert engine.would_take(NAMES, 1.0) == {"bank3": Code("not-connected")}


def changed(**changes: object) -> TaskMessage:
    model = TASK.model.model_copy(update=changes.pop("model", {})) if TASK.model else None  # type: ignore[arg-type]
    oracle = TASK.oracle.model_copy(update=changes.pop("oracle", {}))  # type: ignore[arg-type]
    return TASK.model_copy(update={"model": model, "oracle": oracle, **changes})


@pytest.mark.parametrize(
    ("task", "code"),
    [
        (changed(model={"kind": "mlp", "hidden": (10**7, 10**7)}), "task-not-allowed"),
        (changed(oracle={"epochs": 10**6}), "task-not-allowed"),
        (changed(oracle={"epochs": 10**6, "steps": 10**6}), "task-not-allowed"),
        (changed(oracle={"optimizer": "adam"}), "task-does-not-fit"),  # ORACLE has momentum, and adam its own
        (changed(model={"inputs": (5,)}), "task-does-not-fit"),
        (changed(model={"outputs": 1}), "task-does-not-fit"),
        (changed(model={"kind": "cnn", "inputs": (1, 2, 2)}), "task-does-not-fit"),
        (changed(loss="squared-error"), "task-does-not-fit"),
        (TASK.model_copy(update={"model": None}), "task-does-not-fit"),
        (changed(model={"outputs": 3}), "task-does-not-fit"),
    ],
)
def test_a_provider_refuses_what_it_does_not_allow_or_cannot_do(task: TaskMessage, code: str) -> None:
    policy = Policy(max_parameters=100_000, max_samples=10_000)
    transport = LocalTransport({"bank1": ProviderWorker("bank1", examples("bank1"), policy)})
    engine = FederatedEngine(task, ["bank1"], transport)
    assert engine.query(ask(0, [0])).failures == {0: Code.of("refused", why=code)}


BOUNDED = {"epochs": 10**6, "steps": 5}


@pytest.mark.parametrize(
    "settings",
    [BOUNDED, {"momentum": 0.0, "optimizer": "adam", "weight_decay": 0.1}, {"weight_decay": 0.2, "steps": 4}],
)
def test_a_provider_does_afar_what_it_does_at_home(settings: dict[str, object]) -> None:
    """Also where only the bound on its steps makes the work one that its policy allows."""
    policy = Policy(max_samples=100)
    handlers = {name: ProviderWorker(name, examples(name), policy) for name in NAMES}
    task = changed(oracle=settings)
    far = FederatedEngine(task, NAMES, LocalTransport(handlers)).query(ask())
    assert not far.failures
    oracle = build_oracle(**task.oracle.model_dump())
    providers = [Provider(name, examples(name), oracle) for name in NAMES]
    model = build_model("logistic", [4], 2)
    home = LoopEngine(Task(model, cross_entropy), providers, torch.device("cpu")).query(ask())
    assert torch.equal(far.updates, home.updates)


def test_a_batch_of_a_thousand_million_rows_is_one_of_all_rows() -> None:
    handlers = workers()
    whole = FederatedEngine(changed(oracle={"batch_size": ROWS}), NAMES, LocalTransport(handlers)).query(ask())
    huge = FederatedEngine(changed(oracle={"batch_size": 10**9}), NAMES, LocalTransport(handlers)).query(ask())
    assert torch.equal(whole.updates, huge.updates)


def test_parameters_are_counted_without_making_the_model() -> None:
    for kind in MODEL_KINDS:
        model = messages.ModelMessage(kind=kind, inputs=(3, 11, 8), outputs=4, hidden=(7, 5) if kind == "mlp" else ())
        built = build_model(kind, model.inputs, 4, hidden=model.hidden)
        assert width(model) == sum(p.numel() for p in built.parameters())


def test_a_table_is_encoded_as_the_market_s_schema_says(tmp_path: Path) -> None:
    import pandas as pd

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=40), "c": ["x", "y"] * 20, "t": [0, 1] * 20})
    frame.to_csv(tmp_path / "bank1.csv", index=False)
    schema = Schema.fit(frame, target="t", task="classification")
    table = SchemaMessage.model_validate(schema.to_dict())
    task = changed(model={"inputs": (3,)}, table=table)
    consumer = Consumer("logistic", holdout=schema.encode(frame, "holdout"), budget=6, per_round=2)
    transport = LocalTransport({"bank1": ProviderWorker("bank1", Table(tmp_path / "bank1.csv"))})
    engine = FederatedEngine(task, ["bank1"], transport, step=STEP)
    away = Arbiter(consumer, [Provider("bank1")], engine=engine).run()
    assert away.spent == 6
    other = table.model_copy(update={"target": "nothing"})
    lost = FederatedEngine(changed(table=other), ["bank1"], transport).query(ask(0, [0]))
    assert lost.failures == {0: Code.of("refused", why="task-not-allowed")}


def test_a_provider_keeps_a_record_and_compares_it_with_its_statement(tmp_path: Path) -> None:
    record = AccessRecord(tmp_path / "answers.jsonl")
    worker = ProviderWorker("bank1", examples("bank1"), record=record)
    engine = federated(["bank1"], LocalTransport({"bank1": worker}))
    engine.begin(Beginning("a" * 32))
    for round in range(3):
        engine.query(ask(round, [0]))
    with (tmp_path / "answers.jsonl").open("ab") as file:
        file.write(b'{"half a li')
    engine.query(ask(3, [0]))
    assert [(a.run, a.round, a.status) for a in record] == [("a" * 32, round, "ok") for round in range(4)]
    assert [a.kind for a in record.questions()] == ["describe"] + ["update"] * 4
    items = [{"round": r, "draw": 0, "paid": 1 if r != 2 else 0, "failure": ""} for r in (0, 1, 2, 9)]
    (earned,) = earnings(record, {"items": items, "pay_text": "3 credits", "why": "It was the only provider."})
    assert earned.why == "It was the only provider."
    assert (earned.answered, earned.paid, earned.unpaid_rounds, earned.unknown_rounds) == (4, 3, (2, 3), (9,))
    assert json.dumps(earned.run)
    with pytest.raises(BazaarError, match="cannot be read"):
        earnings(record, {"items": "none"})


def test_a_worker_raises_on_bytes_that_are_no_request() -> None:
    worker = ProviderWorker("bank1", examples("bank1"))
    with pytest.raises(MessageError):
        worker(b"garbage")
    assert encode_request(decode_request(encode_request(_describe()))[0]) == encode_request(_describe())


def _describe() -> messages.Request:
    return messages.Request(
        protocol=3, kind="describe", run="0" * 32, round=0, seed=0, consumer="", contract="", task=TASK
    )
