"""Several consumers over the same providers: who waits, whose turn it is, and that waiting changes nothing but time."""

from __future__ import annotations

import threading
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from databazaar import Arbiter, BazaarError
from databazaar.engines import Beginning
from databazaar.federation import exchange
from databazaar.federation.enrolment_files import keep_capacity, read_capacities
from databazaar.federation.exchange import Exchange
from databazaar.federation.fair_queue import FairQueue, Queue, State, Ticket
from databazaar.federation.messages import decode_request
from databazaar.federation.transport import Failures, Replies
from databazaar.federation.worker import ProviderWorker
from loopback import eventually
from markets import a_consumer, afar, at_home, examples, federated
from own_samplers import Valued
from queue_network import QueueNetwork
from whole_answers import hand_in

BANKS = ["bank1", "bank2", "bank3"]


class WatchedQueue:
    """The queues, and what must hold of them after every step, counted the obvious way."""

    def __init__(self, capacities: dict[str, int]) -> None:
        self.capacities = capacities
        self.fair = FairQueue(capacities.__getitem__)
        self.tickets: list[Ticket] = []
        self.known: dict[Ticket, State] = {}
        self.passed_by: dict[Ticket, Counter[str]] = {}

    def step(self, what: str, provider: str, consumer: str, which: int) -> None:
        mine = [ticket for ticket in self.tickets if ticket.provider == provider]
        under_way = [ticket for ticket in mine if ticket.state in ("asked", "late")]
        if what == "join":
            ticket = self.fair.join(provider, consumer)
            self.tickets.append(ticket)
            self.known[ticket] = "waiting"
        elif what == "answer":
            for ticket in under_way[:1]:
                self.fair.leave(ticket)
        elif what == "grow":
            self.capacities[provider] = 3
            self.fair.take_turns(provider)
        elif mine:  # one that has ended before, too: that changes nothing
            (self.fair.leave if what == "leave" else self.fair.give_up)(mine[which % len(mine)])
        self.look()
        self.check_capacity()
        self.check_queues()

    def look(self) -> None:
        """Every ask goes on and ends once; and whoever is first of its consumer sees nobody pass by twice."""
        asked = [ticket for ticket in self.tickets if self.known[ticket] == "waiting" and ticket.state == "asked"]
        first: dict[tuple[str, str], Ticket] = {}
        for ticket in self.tickets:
            if ticket.state == "waiting":
                first.setdefault((ticket.provider, ticket.consumer), ticket)
        for ticket in first.values():
            passed = self.passed_by.setdefault(ticket, Counter())
            passed.update(one.consumer for one in asked if one.provider == ticket.provider)
            assert max(passed.values(), default=0) <= 1, "consumers take turns"
        for ticket in self.tickets:
            came = self.known[ticket], ticket.state
            assert came[0] == came[1] or came in STEPS, came
            self.known[ticket] = ticket.state

    def check_capacity(self) -> None:
        for name, capacity in self.capacities.items():
            mine = Counter(ticket.state for ticket in self.tickets if ticket.provider == name)
            assert mine["asked"] + mine["late"] <= capacity
            assert not mine["waiting"] or mine["asked"] + mine["late"] == capacity, "nobody waits without need"

    def check_queues(self) -> None:
        found: dict[str, dict[str, Counter[str]]] = {}
        for ticket in self.tickets:
            if ticket.state != "over":
                found.setdefault(ticket.provider, {}).setdefault(ticket.state, Counter())[ticket.consumer] += 1
        states = ("waiting", "asked", "late")
        told = {
            name: {state: getattr(queue, state) for state in states if getattr(queue, state)}
            for name, queue in self.fair.queues().items()
        }
        assert told == found


STEPS = {("waiting", "asked"), ("waiting", "over"), ("asked", "late"), ("asked", "over"), ("late", "over")}
steps = st.tuples(
    st.sampled_from(["join", "join", "join", "answer", "answer", "answer", "leave", "give up", "grow"]),
    st.sampled_from("aaab"),
    st.sampled_from("xxyz"),
    st.integers(0, 50),
)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 2), st.lists(steps, min_size=20, max_size=40))
def test_consumers_take_turns_capacity_is_kept_and_every_ask_ends_once(
    capacity: int, steps: list[tuple[str, str, str, int]]
) -> None:
    watched = WatchedQueue({"a": capacity, "b": 1})
    for what, provider, consumer, which in steps:
        watched.step(what, provider, consumer, which)
    for provider in "ab":
        while any(ticket.provider == provider and ticket.state != "over" for ticket in watched.tickets):
            watched.step("answer", provider, "", 0)


def test_one_with_many_asks_delays_another_by_one_of_them() -> None:
    fair, order = FairQueue(), list[str]()
    tickets = [fair.join("bank", consumer) for consumer in "aaaabbc"]
    while tickets:
        asked = next(ticket for ticket in tickets if ticket.state == "asked")
        order.append(asked.consumer)
        fair.leave(asked)
        tickets.remove(asked)
    assert "".join(order) == "aabcaba"
    assert fair.queues() == {}


class Held:
    """An exchange whose provider keeps questions to `hold` until a test lets them go, and answers the others at once.
    Its clock stands still until a test moves it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(exchange, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.here = {"bank"}
        self.sent: list[tuple[str, bytes]] = []
        self.exchange = Exchange(self.send, self.here.__contains__, max_bytes=100, poll=0.01)
        self.threads: list[threading.Thread] = []
        self.results: dict[str, tuple[Replies, Failures]] = {}

    def send(self, name: str, number: str, payload: bytes, seconds: float) -> None:
        self.sent.append((number, payload))
        if payload != b"hold":
            hand_in(self.exchange, name, number, "", payload)

    def ask(self, consumer: str, payload: bytes, timeout: float) -> None:
        def run() -> None:
            self.results[consumer] = self.exchange.ask(["bank"], payload, timeout, consumer)

        sent = len(self.sent)
        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()
        assert eventually(lambda: self.state_of(consumer) == "waiting" or len(self.sent) > sent)

    def state_of(self, consumer: str) -> str:
        queue = self.exchange.queues().get("bank", Queue(1, {}, {}, {}))
        return next((state for state in ("waiting", "asked", "late") if consumer in getattr(queue, state)), "")

    def join(self) -> None:
        for thread in self.threads:
            thread.join(90.0)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(monkeypatch)


def test_who_waits_longer_than_its_deadline_is_asked_all_the_same(held: Held) -> None:
    held.ask("first", b"hold", 60.0)
    for consumer in "abcde":
        held.ask(consumer, consumer.encode(), 2.0)
    held.now = 30.0
    assert held.exchange.queues() == {"bank": Queue(1, dict.fromkeys("abcde", 1), {"first": 1}, {})}
    assert [payload for _, payload in held.sent] == [b"hold"]
    hand_in(held.exchange, "bank", held.sent[0][0], "", b"done")
    held.join()
    assert held.results == {
        "first": ({"bank": b"done"}, {}),
        **{consumer: ({"bank": consumer.encode()}, {}) for consumer in "abcde"},
    }
    assert [payload for _, payload in held.sent] == [b"hold", b"a", b"b", b"c", b"d", b"e"]
    assert held.exchange.queues() == {}


def test_a_late_answer_frees_the_lane_and_counts_for_nothing(held: Held) -> None:
    held.ask("first", b"hold", 2.0)
    held.now = 2.0
    assert eventually(lambda: "first" in held.results)
    assert held.results["first"] == ({}, {"bank": "no-answer"})
    held.ask("second", b"hold", 2.0)
    held.now = 3.9
    assert (held.state_of("first"), held.state_of("second")) == ("late", "waiting")
    number = held.sent[0][0]
    assert not hand_in(held.exchange, "bank", number, "", b"too late")
    assert eventually(lambda: len(held.sent) == 2)
    assert not held.exchange.take("bank", number, 1, "", b"x")
    held.now = 5.8
    hand_in(held.exchange, "bank", held.sent[1][0], "", b"in time")
    held.join()
    assert held.results["second"] == ({"bank": b"in time"}, {})


def test_a_provider_that_never_answers_keeps_the_next_one_for_one_more_deadline(held: Held) -> None:
    held.ask("first", b"hold", 2.0)
    held.ask("second", b"next", 2.0)
    held.now = 2.0
    assert eventually(lambda: "first" in held.results)
    held.now = 3.9
    assert held.state_of("second") == "waiting"
    held.now = 4.0
    held.join()
    assert held.results["first"] == ({}, {"bank": "no-answer"})
    assert held.results["second"] == ({"bank": b"next"}, {})


def test_a_provider_that_is_gone_fails_all_who_wait_for_it_at_once(held: Held) -> None:
    held.ask("first", b"hold", 60.0)
    for consumer in "ab":
        held.ask(consumer, b"x", 60.0)
    held.here.clear()
    held.join()
    assert held.results["first"] == ({}, {"bank": "connection-lost"})
    assert held.results["a"] == held.results["b"] == ({}, {"bank": "not-connected"})
    assert held.exchange.queues() == {}
    held.here.add("bank")
    held.ask("again", b"x", 60.0)
    held.join()
    assert held.results["again"] == ({"bank": b"x"}, {})


@pytest.mark.parametrize("where", ["waiting", "asked"])
def test_who_is_gone_leaves_its_place(held: Held, where: State) -> None:
    """What is under way by then keeps its queue busy."""
    if where == "waiting":
        held.ask("first", b"hold", 60.0)
    states: list[str] = []

    def wanted() -> bool:
        states.append(held.state_of("killed"))
        return len(states) < 2

    with pytest.raises(ConnectionError):
        held.exchange.ask(["bank"], b"hold", 30.0, "killed", wanted=wanted)
    assert states == [where] * 2
    assert held.state_of("killed") == ("" if where == "waiting" else "late")
    for number, _ in held.sent:
        hand_in(held.exchange, "bank", number, "", b"")
    held.join()
    assert held.exchange.queues() == {}


def test_a_higher_capacity_lets_those_go_who_wait(held: Held) -> None:
    most = {"bank": 1}
    held.exchange = Exchange(held.send, held.here.__contains__, 100, poll=0.01, capacity=most.__getitem__)
    for consumer in "abc":
        held.ask(consumer, b"hold", 60.0)
    assert [held.state_of(consumer) for consumer in "abc"] == ["asked", "waiting", "waiting"]
    most["bank"] = 2
    held.exchange.capacities_changed()
    assert eventually(lambda: len(held.sent) == 2)
    assert [held.state_of(consumer) for consumer in "abc"] == ["asked", "asked", "waiting"]
    while held.exchange.queues():
        for number, _ in list(held.sent):
            hand_in(held.exchange, "bank", number, "", b"")
    held.join()
    assert set(map(str, held.results.values())) == {str(({"bank": b""}, {}))}


def test_capacities_are_kept_and_a_file_of_others_is_not_believed(tmp_path: Path) -> None:
    assert read_capacities(tmp_path) == {}
    keep_capacity(tmp_path, "bank1", 4)
    keep_capacity(tmp_path, "bank2", 2)
    assert read_capacities(tmp_path) == {"bank1": 4, "bank2": 2}
    with pytest.raises(BazaarError, match="a capacity of 0 is none: give a number from 1 to 1000"):
        keep_capacity(tmp_path, "bank1", 0)
    for text in ("[]", '{"bank1": 0}', '{"bank1": "many"}', "{"):
        (tmp_path / "capacity.json").write_text(text)
        with pytest.raises(BazaarError, match="cannot be read: remove it"):
            read_capacities(tmp_path)


def test_jobs_that_share_providers_end_as_they_would_alone() -> None:
    """Four arbiters at a time over three providers that take their time: no access is void, and every model, draw,
    probability, gain and payment is what it is without the others."""
    seeds = range(4)
    alone = {
        seed: Arbiter(a_consumer(), at_home(BANKS), Valued(), engine="loop", device="cpu", seed=seed).run()
        for seed in seeds
    }
    consumers = {seed: a_consumer() for seed in seeds}  # here, because threads share torch's random state
    together = {}
    with QueueNetwork({name: ProviderWorker(name, examples(name)) for name in BANKS}, pause=0.002) as network:

        def play(seed: int) -> None:
            engine = federated(BANKS, network.consumer(f"consumer {seed}"), consumer=f"consumer {seed}", deadline=60.0)
            engine.begin(Beginning(str(seed) * 32))
            together[seed] = Arbiter(consumers[seed], afar(BANKS), Valued(), engine=engine, seed=seed).run()

        threads = [threading.Thread(target=play, args=(seed,)) for seed in seeds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for seed in seeds:
        assert together[seed].model_hash == alone[seed].model_hash
        assert together[seed].ledger_head == alone[seed].ledger_head
        assert not any(access.failure for round in together[seed].rounds for access in round.accesses)
    asked = [decode_request(payload)[0].consumer for name, payload in network.answered if name == "bank1"]
    switches = sum(one != other for one, other in pairwise(asked))
    assert set(asked) == {f"consumer {seed}" for seed in seeds} and switches > len(asked) / 2, "they took turns"
