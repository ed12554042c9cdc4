"""The process that answers the questions of one consumer's arbiter: from files at the hub, or by asking sites.

The hub's own process holds no data in memory and loads no model; this one does, for one job, and ends with the hub.
Questions and answers are bundles (federation/frames.py), and nothing is unpickled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from databazaar.codes import Code
from databazaar.config.jobs import asked_work
from databazaar.config.market_file import parse_market
from databazaar.engines.protocol import why_invalid
from databazaar.errors import BazaarError
from databazaar.federation.accepted_schemas import AcceptedSchemas
from databazaar.federation.frames import Header, decode_bundle, encode_bundle
from databazaar.federation.messages import Request, decode_reply, decode_request, question_hash
from databazaar.federation.policy import Policy
from databazaar.federation.table import Table
from databazaar.federation.transport import LocalTransport, Lost, MessageError, Transport, declined
from databazaar.federation.worker import ProviderWorker
from databazaar.learning.task import step_at
from databazaar.service.hub.runner import become_a_child
from databazaar.vectors import hash_array

if TYPE_CHECKING:
    from databazaar.federation.signatures import MarketKeys

MOST_SECONDS = 300.0
"""How long one answer may take."""


class Responder:
    """Knows one job: its market, and how its providers are reached."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        self._run, self._consumer = str(about["run"]), str(about["consumer"])
        self._market = parse_market(about["market"], "the job's market")
        self._names = [provider.id for provider in self._market.providers]
        self._keys: MarketKeys | None = None
        self._transport: Transport = self._files(about) if about["files"] else self._sites(about)

    @staticmethod
    def _files(about: Mapping[str, Any]) -> Transport:
        workers = {}
        for name, given in about["files"].items():
            bounds = {"models": given["models"] and tuple(given["models"]), "max_samples": given["most_rows"]}
            pins = Path(about["folder"]) / "answering" / name
            pins.mkdir(parents=True, exist_ok=True)
            policy = replace(Policy(max_seconds=MOST_SECONDS), **{k: v for k, v in bounds.items() if v is not None})
            workers[name] = ProviderWorker(name, Table(Path(given["path"]), AcceptedSchemas(pins)), policy)
        return LocalTransport(workers)

    def _sites(self, about: Mapping[str, Any]) -> Transport:
        from databazaar.federation.grpc_transport import GrpcTransport
        from databazaar.federation.signatures import MarketKeys

        folder = Path(about["federation"])
        self._keys = MarketKeys.of(folder)
        return GrpcTransport(folder, self._consumer)

    def check(self, payload: bytes, names: Sequence[str], about: Mapping[str, Any]) -> tuple[Request, Tensor | None]:
        """What is asked; a BazaarError says what is wrong with it. Nothing is asked that the job did not agree on."""
        try:
            request, params = decode_request(payload)
        except MessageError as wrong:
            raise BazaarError(f"the question cannot be read: {wrong}") from None
        if (request.run, request.consumer, request.contract) != (self._run, self._consumer, self._run):
            raise BazaarError("the question names another run, consumer or contract: name the job's id and yourself")
        strangers = [name for name in names if name not in self._names]
        if strangers:
            raise BazaarError(f"{strangers[0][:80]!r} is no provider of this job")
        self._refuse_other_work(request)
        if request.kind == "update" and about["no_update"]:
            raise BazaarError(about["no_update"])
        if request.kind == "update" and (request.round, request.seed) != (about["round"], self._market.seed):
            raise BazaarError(f"round {about['round']} is under way, with the seed of the job: ask for that")
        if params is not None and hash_array(params.numpy()) != about["model"]:
            raise BazaarError(
                f"the question has other parameters than those that the ledger names for round {about['round']}: ask "
                "for an update of the run's own model"
            )
        return request, params

    def _refuse_other_work(self, request: Request) -> None:
        """Providers have agreed to a kind of model, to work and to a target."""
        task, market = request.task, self._market
        oracle, step = asked_work(market)
        oracle["step"] = step_at(step, request.round)
        asked = {name: value for name, value in task.oracle.model_dump().items() if name in oracle}
        if asked != {name: oracle[name] for name in asked}:
            raise BazaarError("the question asks for other work than the job's oracle: ask for what was agreed")
        model, table = task.model, task.table
        if model is None or (model.kind, model.hidden) != (market.model.kind, market.built("model").hidden):
            raise BazaarError("the question is about another model than the job's: ask for what was agreed")
        if table is None or (table.target, table.task) != (market.data.target, market.data.task):
            raise BazaarError("the question is about another target than the job's: ask for what was agreed")

    def ask(self, payload: bytes, names: Sequence[str], timeout: float, request: Request, params: Tensor | None) -> Any:
        """Replies, why there are none, and what each comes to by the ledger's codes: None for a valid one."""
        replies, lost = self._transport.request(names, payload, min(timeout, MOST_SECONDS))
        question, codes = question_hash(payload), dict[str, Code | None]()
        privacy = dict[str, tuple[float, float]]()
        for name, data in list(replies.items()):
            if self._keys is not None and not self._is_signed(data, request, name, params, question):
                lost[name] = Lost.PROVIDER_ERROR
                del replies[name]
                continue
            codes[name], spent = _judged(data, request, name, params, question)
            if spent is not None:
                privacy[name] = spent
        codes |= {name: Code(why) for name, why in lost.items()}
        told = {name: None if code is None else code.body() for name, code in codes.items()}
        return replies, {name: str(why) for name, why in lost.items()}, told, privacy

    def _is_signed(self, data: bytes, request: Request, name: str, params: Tensor | None, question: str) -> bool:
        assert self._keys is not None
        try:
            decode_reply(data, request, name, params, question, self._keys.signed_with)
        except MessageError:
            return False
        return True

    def connected(self) -> list[str]:
        return self._transport.connected()


def _judged(
    data: bytes, request: Request, name: str, params: Tensor | None, question: str
) -> tuple[Code | None, tuple[float, float] | None]:
    """What the consumer's arbiter will write of this reply, and what its provider says of its privacy."""
    try:
        reply, update, *_ = decode_reply(data, request, name, params, question)
    except MessageError as wrong:
        return Code(str(wrong)), None
    spent = None if reply.epsilon is None or reply.delta is None else (reply.epsilon, reply.delta)
    if reply.status != "ok":
        return declined(reply.status, reply.code), spent
    return why_invalid(update, params) if params is not None else None, spent


def serve(connection: Connection) -> None:
    """Answers until the hub goes."""
    responder: Responder | None = None
    while True:
        try:
            header, parts = decode_bundle(connection.recv_bytes())
        except (OSError, EOFError):
            return
        told: Header = {"ready": True}
        replies: dict[str, bytes] = {}
        try:
            if responder is None:
                responder = Responder(header)
            else:
                told, replies = _answered(responder, header, parts["body"])
        except BazaarError as refused:
            told = {"refused": str(refused)}
        connection.send_bytes(encode_bundle(told, replies))


def _answered(responder: Responder, header: Header, body: bytes) -> tuple[Header, dict[str, bytes]]:
    if header["op"] == "connected":
        return {"connected": responder.connected()}, {}
    request, params = responder.check(body, header["names"], header)
    replies, lost, codes, privacy = responder.ask(body, header["names"], header["timeout"], request, params)
    return {"kind": request.kind, "lost": lost, "codes": codes, "privacy": privacy}, replies


def main(there: Connection, folder: Path) -> None:
    """The life of the process, which ends with the hub, or when the hub closes its end."""
    become_a_child(folder)
    torch.set_num_threads(1)
    serve(there)
