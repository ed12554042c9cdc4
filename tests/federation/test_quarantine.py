"""Who is set aside follows from the ledger alone: a resumed run asks exactly whom an unbroken one would have asked."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from databazaar import Arbiter, Report, Uniform
from databazaar.codes import QUARANTINED, Code
from databazaar.engines import Ask, Beginning, Ended
from databazaar.engines.protocol import BEYOND_LIMIT
from databazaar.engines.quarantine import FailureCount, Quarantine
from databazaar.federation.engine import FederatedEngine
from databazaar.federation.messages import Reply, decode_request, encode_reply
from databazaar.federation.transport import Failures, Fault, LocalTransport, Lost, Replies, is_honest
from databazaar.federation.worker import ProviderWorker
from markets import a_consumer, afar, examples, federated

NAMES = ["bank1", "bank2"]
RUN = "a" * 32
BY_THE_MARKET = Code("no-utility")
WAYS = ["update", "refused", "error", "absent", "raise", "garbage", "huge", "nan", "stale", "voided"]
Script = Sequence[Sequence[str | None]]
"""Round by round, what each bank does when it is asked; None where it is not asked."""


class Banks:
    """Banks that act by a script, an engine that asks them, and what came to them and how it ended."""

    def __init__(self, script: Script, tolerated: int) -> None:
        self.script = script
        self.round = -1
        self.asked: list[tuple[int, str, str]] = []
        self.ended: list[Ended] = []
        self.quarantine = Quarantine(tolerated)
        self._handlers = {name: self._handler(name) for name in NAMES}
        self._here = dict(self._handlers)
        self.engine: FederatedEngine = federated(NAMES, LocalTransport(self._here), quarantine=self.quarantine)

    def play(self, rounds: range) -> None:
        for self.round in rounds:
            acts = self.script[self.round]
            providers = [index for index, act in enumerate(acts) if act is not None]
            self._here.clear()
            self._here.update({NAMES[i]: self._handlers[NAMES[i]] for i in providers if acts[i] != "absent"})
            replies = self.engine.query(Ask(torch.zeros(10), providers, self.round, 5)) if providers else None
            for index in providers:
                reason = replies.failures.get(index) if replies is not None else None
                if reason is None and acts[index] == "voided":
                    reason = BY_THE_MARKET
                self.ended.append((self.round, index, reason))

    def _handler(self, name: str) -> Callable[[bytes], bytes]:
        def answer(payload: bytes) -> bytes:
            request, params = decode_request(payload)
            act = "update" if self.round < 0 else self.script[self.round][NAMES.index(name)]
            self.asked.append((self.round, name, request.kind))
            if act == "raise":
                raise RuntimeError
            if act == "garbage":
                return b"garbage"
            status = act if act in ("refused", "error") else "ok"
            code = {"refused": "task-not-allowed", "error": "computation-failed"}.get(status, "")
            header = {"protocol": 2, "run": request.run, "provider": name, "status": status, "code": code}
            header |= {"round": request.round + (act == "stale"), "epsilon": None, "delta": None}
            if params is None or status != "ok":
                return encode_reply(Reply.model_validate(header))
            number = {"huge": 1e38, "nan": float("nan")}.get(str(act), 1.0)
            return encode_reply(Reply.model_validate(header), torch.full_like(params, number))

        return answer


def resumed(script: Script, tolerated: int, ended: Sequence[Ended]) -> Banks:
    """Banks whose engine has just begun again with what the ledger holds."""
    banks = Banks(script, tolerated)
    banks.quarantine.standings["bank1"] = FailureCount(9, 99)  # what a run before left is not this run's
    banks.engine.begin(Beginning(RUN, ended))
    banks.asked.clear()
    return banks


acts = st.one_of(st.none(), st.sampled_from(WAYS), st.sampled_from(["raise", "absent"]))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(acts, acts), min_size=1, max_size=40), st.integers(1, 3), st.data())
def test_a_resume_after_any_round_goes_on_as_if_there_had_been_none(
    script: Script, tolerated: int, data: st.DataObject
) -> None:
    done = data.draw(st.integers(0, len(script)), label="rounds before the resume")
    draws = data.draw(st.integers(1, 2), label="draws of each provider asked")
    unbroken = resumed(script, tolerated, [])
    unbroken.play(range(done))
    again = resumed(script, tolerated, [end for end in unbroken.ended for _ in range(draws)])
    assert again.quarantine == unbroken.quarantine
    unbroken.asked.clear()
    unbroken.ended.clear()
    for banks in (unbroken, again):
        banks.play(range(done, len(script)))
    assert again.asked == unbroken.asked
    assert again.ended == unbroken.ended
    assert again.quarantine == unbroken.quarantine


def test_pauses_double_and_an_answer_clears_the_slate() -> None:
    banks = resumed([("raise", None)] * 40, 3, [])
    banks.play(range(40))
    assert [round for round, _, kind in banks.asked if kind == "update"] == [0, 1, 2]
    assert [round for round, _, kind in banks.asked if kind == "describe"] == [3, 5, 9, 17, 33]
    assert {reason for _, _, reason in banks.ended[3:]} == {QUARANTINED}
    banks.quarantine.note("bank1", 65, None)
    assert banks.quarantine.standings == {}


EVERY = [
    *(Code(why) for why in Lost),
    *(Code(fault) for fault in Fault),
    BEYOND_LIMIT,
    Code.of("provider-failed", why="computation-failed"),
    QUARANTINED,
]


@pytest.mark.parametrize("failure", EVERY, ids=str)
def test_the_ledger_s_codes_are_read_back_and_count_against_the_provider(failure: Code) -> None:
    assert Code.read(failure.body()) == failure and not is_honest(failure)


@pytest.mark.parametrize("why", ["task-not-allowed", "task-does-not-fit", "privacy-spent", "out-of-spite"])
def test_codes_of_the_market_and_refusals_are_no_failure_of_the_provider(why: str) -> None:
    assert is_honest(BY_THE_MARKET) and is_honest(Code.of("refused", why=why))


def test_begin_names_those_that_are_not_there_or_would_refuse() -> None:
    banks = Banks([("refused", "update")], 3)
    banks.round = 0
    with pytest.warns(UserWarning) as said:
        federated([*NAMES, "bank3"], banks.engine._transport).begin(Beginning(RUN))
    assert [str(warning.message).split(";")[0] for warning in said] == [
        "bank3: not connected",
        "bank1: refused: task not allowed",
    ]


class Stopping(LocalTransport):
    """Notes whom it asks for an update, and dies in some round as a process does."""

    def __init__(self, handlers: Mapping[str, Callable[[bytes], bytes]], dies_in: int | None = None) -> None:
        super().__init__(handlers)
        self.asked: list[tuple[int, str]] = []
        self._dies_in = dies_in

    def request(self, names: Sequence[str], payload: bytes, timeout: float) -> tuple[Replies, Failures]:
        request, _ = decode_request(payload)
        if request.kind == "update" and request.round == self._dies_in:
            raise KeyboardInterrupt
        if request.kind == "update":
            self.asked += [(request.round, name) for name in names]
        return super().request(names, payload, timeout)


def broken(payload: bytes) -> bytes:
    raise RuntimeError


@pytest.mark.parametrize("dies_in", [2, 5, 9])
def test_a_kept_run_that_is_resumed_while_a_bank_is_set_aside_asks_whom_an_unbroken_one_asks(
    tmp_path: Path, dies_in: int
) -> None:
    handlers = {name: ProviderWorker(name, examples(name)) for name in NAMES} | {"bank2": broken}

    def play(transport: Stopping) -> Report:
        engine = federated(NAMES, transport, quarantine=Quarantine(2))
        consumer = a_consumer(36)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `begin` warns of the bank that would not answer
            return Arbiter(consumer, afar(NAMES), Uniform(), engine=engine, seed=3).run(tmp_path / folder)

    folder = "unbroken"
    whole = Stopping(handlers)
    unbroken = play(whole)
    assert any(access.failure == QUARANTINED for played in unbroken.rounds for access in played.accesses)
    folder = "resumed"
    first, second = Stopping(handlers, dies_in), Stopping(handlers)
    with pytest.raises(KeyboardInterrupt):
        play(first)
    again = play(second)
    assert (again.ledger_head, again.model_hash) == (unbroken.ledger_head, unbroken.model_hash)
    assert first.asked + second.asked == whole.asked
