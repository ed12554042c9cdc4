"""One provider and several consumers: what it remembers of each, what it allows each, and what it is paid by each."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_federated_market import command
from torch import Tensor

from databazaar import BazaarError
from databazaar.cli import enrolment as joining
from databazaar.codes import Code
from databazaar.data.schema_message import SchemaMessage
from databazaar.engines import Ask, Beginning
from databazaar.federation import accountant, server
from databazaar.federation.accountant import Account, Accountant, epsilon_of
from databazaar.federation.enrolment_files import read_capacities
from databazaar.federation.policy import Policy, RefusedError
from databazaar.federation.privacy import PrivateUpdates
from databazaar.federation.records import AccessRecord, by_consumer, earnings
from databazaar.federation.table import Data, Recent, Table
from databazaar.federation.transport import LocalTransport, Lost, declined, is_honest
from databazaar.federation.worker import ProviderWorker
from markets import ROWS, examples, federated
from questions import HONEST, asked
from two_banks import two_banks

WORK = (1.0, 0.25, 4)


def ask(worker: ProviderWorker, consumer: str, round: int = 0, run: str = "a", contract: str = "") -> Code | None:
    """What the consumer hears: nothing where it got an update."""
    engine = federated([worker.id], LocalTransport({worker.id: worker}), consumer=consumer, contract=contract)
    engine._run = run * 32
    return engine.query(Ask(torch.zeros(10), [0], round, 5)).failures.get(0)


# What is remembered


def test_what_is_asked_again_after_another_consumer_costs_nothing_twice(tmp_path: Path) -> None:
    mechanism = PrivateUpdates(1.0, 1.0, Accountant(tmp_path / "privacy.json", 1e-5, 1e6))
    worker = ProviderWorker("bank1", examples("bank1"), privacy=mechanism)

    def update(run: str, round: int) -> Tensor:
        engine = federated(["bank1"], LocalTransport({"bank1": worker}), consumer=run)
        engine._run = run * 32
        return engine.query(Ask(torch.zeros(10), [0], round, 5)).updates

    first, spent = update("a", 0), mechanism.accountant.spent
    others = update("b", 0)
    both = mechanism.accountant.spent
    assert both > spent
    assert torch.equal(update("a", 0), first) and torch.equal(update("b", 0), others)
    assert mechanism.accountant.spent == both
    update("a", 1)
    update("a", 0)
    assert mechanism.accountant.spent > both, "only the last answer of a run is remembered"


@dataclass
class CountingTable(Table):
    """Counts how often the file is encoded, which is what takes the time."""

    encodings: list[str] = field(default_factory=list)

    def encoded(self, schema: SchemaMessage) -> Data:
        self.encodings.append(schema.target)
        return super().encoded(schema)


def test_a_file_is_encoded_once_for_a_schema_whoever_asks_in_between(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    columns = {"amount": rng.normal(size=ROWS), "income": rng.integers(1, 9, ROWS), "fraud": ["no", "yes"] * 16}
    pd.DataFrame(columns).to_csv(tmp_path / "bank.csv", index=False)
    table = CountingTable(tmp_path / "bank.csv")
    worker = ProviderWorker("bank", table)
    other = HONEST.model_copy(update={"target_mean": 1.0})
    assert asked(worker, HONEST)[0] == "ok"
    table.schemas.accept(other, "accepted")
    for _ in range(3):
        for run, schema in (("a", HONEST), ("b", other), ("c", HONEST)):
            assert asked(worker, schema, torch.zeros(6), run=run * 32)[:2] == ("ok", "")
    assert table.encodings == ["fraud", "fraud"]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40), st.booleans()), max_size=40),
    st.integers(1, 4),
    st.integers(10, 100),
)
def test_what_is_kept_is_what_was_used_last_and_fits(
    steps: list[tuple[int, int, bool]], most: int, most_bytes: int
) -> None:
    recent, used = Recent[int, int](most, most_bytes), list[tuple[int, int]]()
    for key, size, puts in steps:
        known = dict(used)
        if puts:
            recent.put(key, size, size)
        else:
            assert recent.get(key) == known.get(key)
        if puts or key in known:
            used = [*(one for one in used if one[0] != key), (key, size if puts else known[key])]
        while len(used) > most or (len(used) > 1 and sum(size for _, size in used) > most_bytes):
            used.pop(0)
    assert {key: recent.get(key) for key in range(6)} == {key: dict(used).get(key) for key in range(6)}


def test_a_new_run_or_consumer_may_not_try_another_number_of_outputs() -> None:
    worker = ProviderWorker("bank", (np.zeros((ROWS, 4), np.float32), np.arange(ROWS) % 3))
    said = [
        asked(worker, None, model={"outputs": outputs}, run=run * 32, consumer=run)[1]
        for outputs, run in ((2, "a"), (3, "b"), (4, "c"))
    ]
    assert said == ["task-does-not-fit", "task-not-allowed", "task-not-allowed"]


def test_a_callable_is_called_by_several_at_once_and_data_by_one() -> None:
    together = threading.Barrier(2, timeout=90.0)

    def oracle(w: np.ndarray) -> np.ndarray:
        together.wait()
        return -w

    worker, said = ProviderWorker("bank1", oracle), list[Code | None]()
    threads = [threading.Thread(target=lambda run=run: said.append(ask(worker, run, run=run))) for run in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == [None, None]


# What is allowed


def test_only_consumers_that_are_allowed_are_answered() -> None:
    policy = Policy(consumers=("north", "south"))
    for source in (examples("bank1"), lambda w: -w):
        worker = ProviderWorker("bank1", source, policy)
        said = [ask(worker, consumer) for consumer in ("north", "east", "", "south")]
        no = Code.of("refused", why="consumer-not-allowed")
        assert said == [None, no, no, None]
        engine = federated(["bank1"], LocalTransport({"bank1": worker}), consumer="east")
        assert engine.would_take(["bank1"], 1.0) == {"bank1": Code.of("refused", why="consumer-not-allowed")}


def test_a_job_gets_so_many_answers_also_after_a_restart(tmp_path: Path) -> None:
    record = AccessRecord(tmp_path / "answers.jsonl")

    def started() -> ProviderWorker:
        return ProviderWorker("bank1", lambda w: -w, Policy(max_accesses=2), record=record)

    no_more, worker = Code.of("refused", why="no-accesses-left"), started()
    assert [ask(worker, "north", round) for round in (0, 0, 1, 2)] == [None, None, None, no_more], (
        "asked again counts once"
    )
    assert ask(worker, "north", 3, run="b") is None, "another run is another job"
    worker = started()
    assert [ask(worker, "north", round) for round in (0, 1, 2)] == [None, None, no_more]
    assert [ask(worker, "north", 0, run=run, contract="c1") for run in "cde"] == [None, None, no_more], "one contract"
    assert ask(started(), "north", 9, run="f", contract="c1") == no_more


def test_each_consumer_has_a_cap_and_all_have_one_together(tmp_path: Path) -> None:
    path = tmp_path / "privacy.json"
    once, thrice = (epsilon_of([(1.0, 0.25, 4 * times)], 1e-5) for times in (1, 3))

    def opened() -> Accountant:
        return Accountant(path, 1e-5, cap=thrice * 1.001, cap_per_consumer=once * 1.001)

    opened().charge(*WORK, "north")
    for account in (opened(), opened()):
        for take in (account.check, account.charge):
            with pytest.raises(RefusedError, match="consumer-privacy-spent"):
                take(*WORK, "north")
    account = opened()
    account.charge(*WORK, "south")
    account.charge(*WORK)
    assert account.spent == pytest.approx(thrice) and account.spent < 3 * once, "it composes over all of them"
    assert [epsilon_of(told, 1e-5) for told in Account.read(path).consumers.values()] == [once] * 3
    with pytest.raises(RefusedError, match="privacy-spent"):
        opened().charge(*WORK, "east")
    assert set(json.loads(path.read_text())["consumers"]) == {"north", "south", ""}
    path.write_text('{"history": [], "consumers": {"north": 5}}')
    with pytest.raises(BazaarError, match="what was spent is not known"):
        opened()


def test_a_cap_of_one_consumer_binds_what_it_hears(tmp_path: Path) -> None:
    cap = epsilon_of([(1.0, 8 / ROWS, 8)], 1e-5) * 1.01
    mechanism = PrivateUpdates(1.0, 1.0, Accountant(tmp_path / "privacy.json", 1e-5, 1e6, cap))
    worker = ProviderWorker("bank1", examples("bank1"), privacy=mechanism)
    spent = Code.of("refused", why="consumer-privacy-spent")
    assert [ask(worker, "north", round) for round in range(3)] == [None, None, spent]
    assert [ask(worker, "south", round, run="b") for round in range(3)] == [None, None, spent]


def test_made_up_consumers_share_one_budget_once_there_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accountant, "MOST_CONSUMERS", 2)
    account = Accountant(tmp_path / "privacy.json", 1e-5, 1e6)
    for name in ("a", "b", "c", "d", "a"):
        account.charge(*WORK, name)
    told = Account.read(tmp_path / "privacy.json").consumers
    assert set(told) == {"a", "b", accountant.OTHERS}
    assert epsilon_of(told[accountant.OTHERS], 1e-5) == epsilon_of(told["a"], 1e-5) > epsilon_of(told["b"], 1e-5)


# What is said and kept


def test_a_request_names_consumer_and_contract_and_the_record_keeps_them(tmp_path: Path) -> None:
    record = AccessRecord(tmp_path / "answers.jsonl")
    worker = ProviderWorker("bank1", examples("bank1"), record=record)
    for run, consumer, contract in (("a", "north", "c1"), ("b", "", ""), ("c", "north", "c2")):
        engine = federated(["bank1"], LocalTransport({"bank1": worker}), consumer=consumer, contract=contract)
        engine.begin(Beginning(run * 32))
        engine.query(Ask(torch.zeros(10), [0], 0, 5))
    kept = [(answer.run[0], answer.kind, answer.consumer, answer.contract) for answer in record.questions()]
    assert kept == [
        (run, kind, *names)
        for run, names in (("a", ("north", "c1")), ("b", ("", "")), ("c", ("north", "c2")))
        for kind in ("describe", "update")
    ]
    assert len({answer.question for answer in record.questions()}) == 6
    lines = earnings(record)
    assert [(line.consumer, line.contract) for line in lines] == [("north", "c1"), ("", ""), ("north", "c2")]
    assert [(name, own["runs"], own["answered"]) for name, own in by_consumer(lines).items()] == [
        ("north", 2, 2),
        ("", 1, 1),
    ]
    with pytest.raises(BazaarError, match="names of up to 200 signs"):
        federated(["bank1"], LocalTransport({}), consumer="x" * 201)


def test_what_a_provider_says_no_to_is_no_fault_of_its_own() -> None:
    codes = ("consumer-not-allowed", "no-accesses-left", "consumer-privacy-spent")
    for code in codes:
        assert is_honest(declined("refused", code)) and not is_honest(declined("error", code))
    assert is_honest(None) and not is_honest(Code(Lost.NO_ANSWER))


# Commands


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_banks(tmp_path_factory.mktemp("market")) / "bank1"


def test_earnings_by_consumer(kit: Path) -> None:
    record = AccessRecord(kit / "answers.jsonl")
    assert command("provider", "earnings", kit, "--by-consumer") == "nothing answered yet\n"
    for round in range(3):
        record.add("a" * 32, round, "ok", "", None, consumer="north\x1b[1m", contract="c1")
    record.add("b" * 32, 0, "ok", "", None)
    printed = command("provider", "earnings", kit, "--by-consumer").splitlines()
    assert [line.split(" rounds")[0] for line in printed] == ["north�[1m: 3", "no consumer named: 1"]
    assert f"run {'a' * 32} for north�[1m by contract c1: 3 rounds answered" in command("provider", "earnings", kit)
    assert json.loads(command("provider", "earnings", kit, "--by-consumer", "--json"))[0]["answered"] == 3


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--oracle", "math:sqrt", "--consumers", " , "], "--consumers names nobody"),
        (["--oracle", "math:sqrt", "--max-epsilon-per-consumer", "1"], "give --epsilon-cap too"),
        (["--data", "d.csv", "--epsilon-cap", "1", "--max-epsilon-per-consumer", "2"], "between 0 and that of all"),
        (["--data", "d.csv", "--at-once", "2"], "--at-once 2 is for an --oracle of your own"),
    ],
)
def test_join_says_what_is_wrong_with_its_limits(
    kit: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], says: str
) -> None:
    monkeypatch.chdir(kit)
    (kit / "d.csv").write_text("a,fraud\n" + "1,0\n" * ROWS)
    with pytest.raises(BazaarError, match=says):
        command("provider", "join", kit, *options)


def test_the_options_make_the_policy() -> None:
    made = joining.policy("mlp", "north, south", max_parameters=10, max_memory=10**9, max_accesses=50)
    wanted = Policy(("mlp",), max_parameters=10, max_memory=10**9, consumers=("north", "south"), max_accesses=50)
    assert made == wanted
    assert joining.policy("mlp").consumers is None


def test_the_operator_sets_a_capacity(kit: Path) -> None:
    market = kit.parent / "market"
    server.set_capacity(market, "bank1", 4)
    assert read_capacities(market / "server") == {"bank1": 4}
    with pytest.raises(BazaarError, match="has no provider stranger: its providers are bank1, bank2"):
        command("federation", "up", "--capacity", "stranger=4", "--folder", market)
    for word in ("bank1", "bank1=", "=4", "bank1=many"):
        with pytest.raises(BazaarError, match=f"--capacity {word} must be such as harbour-bank=4"):
            command("federation", "up", "--capacity", word, "--folder", market)
