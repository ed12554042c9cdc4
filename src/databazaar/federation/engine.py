"""The federated engine: providers answer from their own machines, through a transport of opaque bytes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from databazaar.codes import QUARANTINED, Code
from databazaar.data.schema import Schema
from databazaar.data.schema_message import SchemaMessage
from databazaar.engines.protocol import Ask, Beginning, Engine, Evidence, NotePrivacy, Replies
from databazaar.engines.quarantine import Quarantine
from databazaar.errors import BazaarError
from databazaar.federation.fair_queue import LONGEST_NAME
from databazaar.federation.frames import Body
from databazaar.federation.messages import (
    ModelMessage,
    OracleMessage,
    Request,
    TaskMessage,
    decode_reply,
    encode_request,
    question_hash,
)
from databazaar.federation.receipt_sender import ReceiptSender
from databazaar.federation.transport import REFUSED, Lost, MessageError, Transport, declined, is_honest
from databazaar.learning.task import Schedule, step_at
from databazaar.ledger.chain import Entry
from databazaar.ledger.replies import SignedReply

if TYPE_CHECKING:
    from databazaar.federation.signatures import MarketKeys
    from databazaar.parties import Provider

IN_MEMORY = "0" * 32
"""The id under which providers record the asks of a run that is kept nowhere."""


class JudgedReply(NamedTuple):
    """An update, a failure, or None for a yes to a description; and what was signed, by which certificate."""

    answer: Tensor | Code | None
    signed: SignedReply | None = None
    certificate: str = ""


class FederatedEngine(Engine):
    """Asks providers by name for the work that `task` describes, and waits no longer than `deadline` seconds. `step`
    is the oracle's learning rate, a number or a schedule of the round. A provider in quarantine is first asked for a
    sign of life, with a shorter deadline. A run that is kept waits `wait` seconds for its providers before it begins
    or goes on. With `keys` a reply counts only if the provider has signed it: the reply is kept, the ledger names it,
    and the provider gets receipts. Providers are told the `consumer` and the `contract`. `privacy` has (ε, δ) as
    providers say that they have spent it."""

    kind = "federated"

    @classmethod
    def make(
        cls, task: object, providers: Sequence[Provider], device: str, *, federation: FederatedJob
    ) -> FederatedEngine:
        return federation.engine([provider.id for provider in providers])

    def __init__(
        self,
        task: TaskMessage,
        providers: Sequence[str],
        transport: Transport,
        *,
        step: float | Schedule | None = None,
        deadline: float = 30.0,
        wait: float = 0.0,
        quarantine: Quarantine | None = None,
        keys: MarketKeys | None = None,
        consumer: str = "",
        contract: str = "",
    ) -> None:
        if max(len(consumer), len(contract)) > LONGEST_NAME:
            raise BazaarError(
                f"providers are told names of up to {LONGEST_NAME} signs: give a shorter consumer or contract"
            )
        self.device = torch.device("cpu")
        self.privacy: dict[str, tuple[float, float]] = {}
        self._note_privacy: NotePrivacy | None = None
        self._task = task
        self._names = list(providers)
        self._transport = transport
        self._run = IN_MEMORY
        self._step = task.oracle.step if step is None else step
        self._deadline = deadline
        self._wait = wait
        self._quarantine = quarantine or Quarantine()
        self._keys = keys
        self._parties = {"consumer": consumer, "contract": contract}
        self._evidence: Evidence | None = None
        self._sender: ReceiptSender | None = None

    def begin(self, beginning: Beginning) -> None:
        """Takes the run's id and standings, waits for the providers, and warns of who is away or would refuse."""
        self._run, self._note_privacy = beginning.run, beginning.note_privacy
        if self._keys is not None and beginning.evidence is not None:
            self._evidence = beginning.evidence
            self._sender = ReceiptSender(self._run, self._keys, self._transport, beginning.evidence)
        if beginning.over:
            return
        self._quarantine.standings.clear()
        for round, provider, reason in dict.fromkeys(beginning.ended):  # one drawn twice was asked once
            self._quarantine.note(self._names[provider], round, reason, honest=is_honest(reason))
        absent = self._transport.wait_for(self._names, self._wait)
        here = [name for name in self._names if name not in absent]
        unwilling = dict.fromkeys(absent, Code(Lost.NOT_CONNECTED))
        unwilling |= self.would_take(here, self._deadline)
        for name, why in unwilling.items():
            warnings.warn(f"{name}: {why}; the run goes on and asks it when it is drawn", stacklevel=2)

    def query(self, ask: Ask) -> Replies:
        names = [self._names[i] for i in ask.providers]
        set_aside = self._set_aside(names, ask.round)
        request = self._request(ask.round, ask.seed, "update")
        judged = self._ask([name for name in names if name not in set_aside], request, ask.params, self._deadline)
        signed = self._keep(ask, judged)

        def taken(name: str) -> Tensor | Code:
            answer = judged.pop(name).answer if name in judged else QUARANTINED
            assert answer is not None  # an update was asked for
            return answer

        checked = Replies.of(ask, map(taken, names))  # each answer is freed once its row is written
        for index, name in zip(ask.providers, names, strict=True):
            reason = checked.failures.get(index)
            self._quarantine.note(name, ask.round, reason, honest=is_honest(reason))
        return replace(checked, signed=signed)

    def _keep(self, ask: Ask, judged: dict[str, JudgedReply]) -> dict[int, str]:
        """Keeps what was signed, with the certificates to check it by; and says by which hash it is found."""
        if self._evidence is None or self._keys is None:
            return {}
        signed = {name: reply.signed for name, reply in judged.items() if reply.signed is not None}
        if signed:
            certificates = {name: judged[name].certificate for name in signed}
            self._evidence.note_certificates(self._keys.authority, certificates)
            self._evidence.keep_replies(list(signed.values()))
        places = {i: self._names[i] for i in ask.providers}
        return {i: signed[name].statement.digest for i, name in places.items() if name in signed}

    def would_take(self, names: Sequence[str], timeout: float) -> dict[str, Code]:
        """Who would not take the task now, and why: a question that costs nobody anything."""
        judged = self._ask(names, self._request(0, 0, "describe"), None, timeout)
        return {name: one.answer for name, one in judged.items() if isinstance(one.answer, Code)}

    def witness(self, entries: Sequence[Entry]) -> None:
        if self._sender is not None:
            self._sender.witness(entries)

    def close(self) -> None:
        self._transport.close()

    def _set_aside(self, names: Sequence[str], round: int) -> set[str]:
        """Those in quarantine, but for the ones that are probed in this round and give a sign of life."""
        held = {name for name in names if self._quarantine.holds(name)}
        probed = [name for name in names if self._quarantine.probes(name, round)]
        if not probed:
            return held
        failures = self.would_take(probed, min(self._deadline, max(0.5, self._deadline / 10)))
        silent = {name for name, failure in failures.items() if failure.name != REFUSED}
        return held - (set(probed) - silent)

    def _request(self, round: int, seed: int, kind: Literal["update", "describe"]) -> Request:
        oracle = self._task.oracle.model_copy(update={"step": step_at(self._step, round)})
        task = self._task.model_copy(update={"oracle": oracle})
        return Request(protocol=3, kind=kind, run=self._run, round=round, seed=seed, task=task, **self._parties)

    def _ask(
        self, names: Sequence[str], request: Request, params: Tensor | None, timeout: float
    ) -> dict[str, JudgedReply]:
        payload = encode_request(request, params)
        question = question_hash(payload)
        replies, lost = self._transport.request(names, payload, timeout)
        del payload  # which may be large, as are the replies
        return {
            name: self._judge(name, replies.pop(name), request, params, question)
            if name in replies
            else JudgedReply(Code(lost.get(name, Lost.NO_ANSWER)))
            for name in names
        }

    def _judge(self, name: str, data: Body, request: Request, params: Tensor | None, question: str) -> JudgedReply:
        signed_with = None if self._keys is None else self._keys.signed_with
        try:
            reply, update, fault, signed, certificate = decode_reply(data, request, name, params, question, signed_with)
        except MessageError as wrong:
            return JudgedReply(Code(str(wrong)))
        if fault:
            return JudgedReply(Code(fault), signed, certificate)
        if reply.epsilon is not None and reply.delta is not None:
            self.privacy[name] = reply.epsilon, reply.delta
            if self._note_privacy is not None:
                self._note_privacy(name, reply.epsilon, reply.delta)
        if reply.status != "ok":
            return JudgedReply(declined(reply.status, reply.code), signed, certificate)
        return JudgedReply(update, signed, certificate)


@dataclass(frozen=True)
class FederatedJob:
    """What a job over a federation has beside the others: the work for its providers, and the way to them."""

    folder: Path
    task: TaskMessage
    step: float | Schedule
    deadline: float
    wait: float
    consumer: str = ""
    contract: str = ""

    @staticmethod
    def describe(
        kind: str, inputs: Sequence[int], hidden: Sequence[int], schema: Schema, oracle: dict[str, Any]
    ) -> TaskMessage:
        """The task as providers get it: all that they need, and nothing of the hold-out but the schema."""
        sizes = {"inputs": tuple(int(size) for size in inputs), "outputs": schema.outputs, "hidden": tuple(hidden)}
        return TaskMessage(
            model=ModelMessage.model_validate({"kind": kind, **sizes}),
            loss="cross-entropy" if schema.task == "classification" else "squared-error",
            oracle=OracleMessage.model_validate(oracle),
            table=SchemaMessage.model_validate(schema.to_dict()),
        )

    def engine(self, names: Sequence[str]) -> FederatedEngine:
        """An engine on the market's server, which must be up and know these providers. `begin` waits for them."""
        try:
            from databazaar.federation import enrolment
            from databazaar.federation.grpc_transport import GrpcTransport
            from databazaar.federation.signatures import MarketKeys
        except ImportError:
            raise BazaarError("federation needs more packages: pip install 'databazaar[federated]'") from None
        members, shut = enrolment.members(self.folder), enrolment.revoked(self.folder)
        for name in names:
            if name in shut:
                raise BazaarError(
                    f"{name} was revoked, and its name stays shut out of the federation in {self.folder}: take it out "
                    "of market.toml, or invite it under a new name"
                )
            if name not in members:
                raise BazaarError(
                    f"{name} is no member of the federation in {self.folder}: invite it with "
                    f"`bazaar federation invite {name}`, or take it out of market.toml"
                )
        with GrpcTransport(self.folder, self.consumer) as transport:
            transport.connected()
        return FederatedEngine(
            self.task,
            names,
            transport,
            step=self.step,
            deadline=self.deadline,
            wait=self.wait,
            keys=MarketKeys.of(self.folder),
            consumer=self.consumer,
            contract=self.contract,
        )
