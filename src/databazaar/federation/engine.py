"""The federated engine: providers answer from their own machines, through a transport of opaque bytes.

Why a reply failed is told in fixed words without times or measurements, so that the ledger of a run is the same
wherever it is played again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from databazaar.engines.protocol import Ask, Engine, Replies
from databazaar.federation.messages import (
    MessageError,
    Request,
    TaskMessage,
    decode_reply,
    encode_request,
)
from databazaar.federation.transport import Transport
from databazaar.learning.task import Schedule, step_at

SET_ASIDE = "set aside after repeated failures"
_REFUSED = "refused: "
_LONGEST_PAUSE = 64


@dataclass(frozen=True)
class Standing:
    """How a provider has done lately: failures on end, and the round from which it is tried again."""

    failures: int = 0
    try_again: int = 0


@dataclass
class Quarantine:
    """Providers that failed `tolerated` times on end are only probed, and ever more seldom until they answer."""

    tolerated: int = 3
    standings: dict[str, Standing] = field(default_factory=dict)

    def holds(self, name: str) -> bool:
        return self.standings.get(name, Standing()).failures >= self.tolerated

    def probes(self, name: str, round: int) -> bool:
        return round >= self.standings[name].try_again

    def failed(self, name: str, round: int) -> None:
        failures = self.standings.get(name, Standing()).failures + 1
        pause = min(2 ** max(0, failures - self.tolerated), _LONGEST_PAUSE)
        self.standings[name] = Standing(failures, round + pause)

    def answered(self, name: str) -> None:
        self.standings.pop(name, None)


Spent = Callable[[str, float, float], None]
"""Told a provider's name, its ε and its δ whenever a reply carries them."""


class FederatedEngine(Engine):
    """Asks providers by name for the work that `task` describes, and waits no longer than `deadline` seconds.

    `step` is the oracle's learning rate, a number or a schedule of the round. A provider in quarantine is first
    asked for a sign of life, with a short deadline of its own; one that gives it is asked like the others.
    """

    name = "federated"

    def __init__(
        self,
        task: TaskMessage,
        providers: Sequence[str],
        transport: Transport,
        *,
        run: str = "0" * 32,
        step: float | Schedule | None = None,
        deadline: float = 30.0,
        quarantine: Quarantine | None = None,
        spent: Spent | None = None,
    ) -> None:
        self.device = torch.device("cpu")
        self._task = task
        self._names = list(providers)
        self._transport = transport
        self._run = run
        self._step = task.oracle.step if step is None else step
        self._deadline = deadline
        self._quarantine = quarantine or Quarantine()
        self._spent = spent

    def query(self, ask: Ask) -> Replies:
        names = [self._names[i] for i in ask.providers]
        failures = self._set_aside(ask, names)
        request = self._request(ask.round, ask.seed, "update")
        told = [name for name in names if name not in failures]
        replies, lost = self._transport.request(told, encode_request(request, ask.params), self._deadline)
        answers: list[Tensor | str] = []
        for name in names:
            if name in failures:
                answers.append(failures[name])
                continue
            answers.append(self._judge(name, replies.get(name), lost.get(name, "no answer"), request, ask.params))
        checked = Replies.of(ask, answers)
        for index, name in zip(ask.providers, names, strict=True):
            reason = checked.failures.get(index)
            if reason is None or reason.startswith(_REFUSED):
                self._quarantine.answered(name)
            elif reason != SET_ASIDE:
                self._quarantine.failed(name, ask.round)
        return checked

    def would_take(self, names: Sequence[str], timeout: float) -> dict[str, str]:
        """Who would not take the task now, and why: a question that costs nobody anything."""
        request = self._request(0, 0, "describe")
        replies, lost = self._transport.request(names, encode_request(request), timeout)
        judged = {n: self._judge(n, replies.get(n), lost.get(n, "no answer"), request, None) for n in names}
        return {name: reason for name, reason in judged.items() if isinstance(reason, str) and reason}

    def close(self) -> None:
        self._transport.close()

    def _set_aside(self, ask: Ask, names: Sequence[str]) -> dict[str, str]:
        held = [name for name in names if self._quarantine.holds(name)]
        probed = [name for name in held if self._quarantine.probes(name, ask.round)]
        silent = dict.fromkeys(held, SET_ASIDE)
        if probed:
            gone = self.would_take(probed, min(self._deadline, max(0.5, self._deadline / 10)))
            for name in probed:
                if name in gone and not gone[name].startswith(_REFUSED):
                    self._quarantine.failed(name, ask.round)
                else:
                    del silent[name]
        return silent

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

    def _judge(self, name: str, data: bytes | None, lost: str, request: Request, params: Tensor | None) -> Tensor | str:
        """The update, or the reason why there is none; an empty reason is a good answer without an update."""
        if data is None:
            return lost
        try:
            reply, update = decode_reply(data, request, name, params)
        except MessageError as fault:
            return str(fault)
        if reply.epsilon is not None and reply.delta is not None and self._spent is not None:
            self._spent(name, reply.epsilon, reply.delta)
        if reply.status != "ok":
            return f"{_REFUSED if reply.status == 'refused' else 'failed at the provider: '}{reply.code}"
        return "" if update is None else update
