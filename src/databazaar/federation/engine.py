"""The federated engine: providers answer from their own machines, through a transport of opaque bytes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from databazaar.engines.protocol import Ask, Beginning, Engine, NotePrivacy, Replies
from databazaar.engines.quarantine import Quarantine
from databazaar.federation.exchange import Lost
from databazaar.federation.failures import SET_ASIDE, Failure, Kind, is_honest
from databazaar.federation.messages import (
    MessageError,
    Request,
    TaskMessage,
    decode_reply,
    encode_request,
)
from databazaar.federation.transport import Transport
from databazaar.learning.task import Schedule, step_at

IN_MEMORY = "0" * 32
"""The id under which providers record the asks of a run that is kept nowhere."""


class FederatedEngine(Engine):
    """Asks providers by name for the work that `task` describes, and waits no longer than `deadline` seconds.

    `step` is the oracle's learning rate, a number or a schedule of the round. A provider in quarantine is first
    asked for a sign of life, with a short deadline of its own; one that gives it is asked like the others. A run that
    is kept waits `wait` seconds for its providers to connect before it begins or goes on.

    `privacy` has what providers with differential privacy say that they have spent, as (ε, δ).
    """

    name = "federated"
    quarantines = True
    remote = True

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
    ) -> None:
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

    def begin(self, beginning: Beginning) -> None:
        """Takes the run's id and the standings that its ledger gives, waits for the providers, and warns of those
        that do not come or would refuse."""
        self._run, self._note_privacy = beginning.run, beginning.note_privacy
        self._quarantine.standings.clear()
        for round, provider, reason in dict.fromkeys(beginning.ended):  # whoever was drawn twice was asked once
            self._quarantine.note(self._names[provider], round, reason, honest=is_honest(reason))
        absent = self._transport.wait_for(self._names, self._wait)
        here = [name for name in self._names if name not in absent]
        unwilling = dict.fromkeys(absent, Failure(Kind.LOST, Lost.NOT_CONNECTED))
        unwilling |= self.would_take(here, self._deadline)
        for name, why in unwilling.items():
            warnings.warn(f"{name}: {why}; the run goes on and asks it when it is drawn", stacklevel=2)

    def query(self, ask: Ask) -> Replies:
        names = [self._names[i] for i in ask.providers]
        set_aside = self._set_aside(names, ask.round)
        request = self._request(ask.round, ask.seed, "update")
        asked = [name for name in names if name not in set_aside]
        replies, lost = self._transport.request(asked, encode_request(request, ask.params), self._deadline)
        answers: list[Tensor | str] = []
        for name in names:
            answer = SET_ASIDE if name in set_aside else self._judge(name, replies, lost, request, ask.params)
            answers.append(answer if isinstance(answer, Tensor) else str(answer))
        checked = Replies.of(ask, answers)
        for index, name in zip(ask.providers, names, strict=True):
            reason = checked.failures.get(index)
            self._quarantine.note(name, ask.round, reason, honest=is_honest(reason))
        return checked

    def would_take(self, names: Sequence[str], timeout: float) -> dict[str, Failure]:
        """Who would not take the task now, and why: a question that costs nobody anything."""
        request = self._request(0, 0, "describe")
        replies, lost = self._transport.request(names, encode_request(request), timeout)
        judged = {name: self._judge(name, replies, lost, request, None) for name in names}
        return {name: failure for name, failure in judged.items() if isinstance(failure, Failure)}

    def close(self) -> None:
        self._transport.close()

    def _set_aside(self, names: Sequence[str], round: int) -> set[str]:
        """Those in quarantine, but for the ones that are probed in this round and give a sign of life."""
        held = {name for name in names if self._quarantine.holds(name)}
        probed = [name for name in names if self._quarantine.probes(name, round)]
        if not probed:
            return held
        failures = self.would_take(probed, min(self._deadline, max(0.5, self._deadline / 10)))
        silent = {name for name, failure in failures.items() if failure.kind is not Kind.REFUSED}
        return held - (set(probed) - silent)

    def _request(self, round: int, seed: int, kind: str) -> Request:
        oracle = self._task.oracle.model_copy(update={"step": step_at(self._step, round)})
        return Request.model_validate(
            {
                "protocol": 1,
                "kind": kind,
                "run": self._run,
                "round": round,
                "seed": seed,
                "task": self._task.model_copy(update={"oracle": oracle}),
            }
        )

    def _judge(
        self,
        name: str,
        replies: dict[str, bytes],
        lost: dict[str, Lost],
        request: Request,
        params: Tensor | None,
    ) -> Tensor | Failure | None:
        """The provider's update, the failure that stands in its place, or None for a yes to a description."""
        if name not in replies:
            return Failure(Kind.LOST, lost.get(name, Lost.NO_ANSWER))
        try:
            reply, update = decode_reply(replies[name], request, name, params)
        except MessageError as fault:
            return Failure(Kind.INVALID, str(fault))
        if reply.epsilon is not None and reply.delta is not None:
            self.privacy[name] = reply.epsilon, reply.delta
            if self._note_privacy is not None:
                self._note_privacy(name, reply.epsilon, reply.delta)
        if reply.status != "ok":
            return Failure(Kind.REFUSED if reply.status == "refused" else Kind.FAILED, reply.code)
        return update
