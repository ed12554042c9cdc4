"""The provider's side of a question: bytes in, bytes out, over its own data and by its own policy.

What goes wrong here stays here: the arbiter hears a status and a fixed code, never an exception's text.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.data.schema_message import SchemaMessage
from databazaar.engines.protocol import as_update, why_invalid
from databazaar.errors import BazaarError
from databazaar.federation.messages import (
    Code,
    ModelMessage,
    OracleMessage,
    ReceiptMessage,
    Reply,
    Request,
    Status,
    decode_receipt,
    decode_request,
    encode_reply,
    encode_vector,
    is_receipt,
    question_hash,
)
from databazaar.federation.policy import Policy, width
from databazaar.federation.receipts import ReceiptKeeper
from databazaar.federation.records import Record
from databazaar.files import write_whole
from databazaar.learning.inputs import as_table
from databazaar.learning.losses import LOSSES
from databazaar.learning.models import build_model
from databazaar.learning.oracles import Oracle, build_oracle, compute_update
from databazaar.learning.task import Task
from databazaar.randomness import oracle_key

if TYPE_CHECKING:
    from databazaar.federation.signing import Signer

Data = tuple[Tensor, Tensor]
VectorOracle = Callable[[NDArray[Any]], NDArray[Any]]
log = logging.getLogger(__name__)


class RefusedError(Exception):
    """An honest no, with one of the fixed codes."""

    def __init__(self, code: Code) -> None:
        super().__init__(code)
        self.code: Code = code


class Privacy(Protocol):
    """What a provider with differential privacy answers with; `federation.privacy` has one."""

    @property
    def delta(self) -> float:
        """The δ that goes with ε."""

    def check(self, oracle: OracleMessage, rows: int) -> None:
        """Raises RefusedError where one more answer would pass the provider's cap."""

    def update(self, oracle: OracleMessage, task: Task, data: Data, params: Tensor) -> Tensor:
        """Charges the accountant, durably, and only then computes."""

    def spent(self) -> float:
        """ε so far."""


@dataclass
class Table:
    """The provider's file. It is encoded as the market's schema says, once for every schema.

    The last schema is written to `kept`, so that `bazaar provider check` can read a file as an answer would.
    """

    path: Path
    kept: Path | None = None
    _schema: SchemaMessage | None = None
    _data: Data | None = None

    def examples(self, schema: SchemaMessage | None) -> Data:
        if schema is None:
            raise RefusedError("task does not fit the data")
        if self._data is None or schema != self._schema:
            if self.kept is not None:
                write_whole(self.kept, schema.model_dump_json().encode())
            self._data, self._schema = self.encoded(schema), schema
        return self._data

    def encoded(self, schema: SchemaMessage) -> Data:
        """The rows of which the target is known, by this schema."""
        from databazaar.data.tables import Schema, labelled, read_table

        known, frame = Schema.from_dict(schema.model_dump()), read_table(self.path)
        rows = labelled(frame, known.target, known.task, str(self.path))
        if len(rows) < len(frame):
            gone = len(frame) - len(rows)
            log.warning("%d of %d rows have no %r and are left out", gone, len(frame), known.target)
        return as_table(known.encode(rows, str(self.path)), str(self.path))


Source = Table | Data | tuple[NDArray[Any], NDArray[Any]] | VectorOracle


class ProviderWorker:
    """Answers questions about `source`: a Table, examples (x, y), or a callable from parameters to update."""

    def __init__(
        self,
        id: str,
        source: Source,
        policy: Policy | None = None,
        *,
        record: Record | None = None,
        privacy: Privacy | None = None,
        signer: Signer | None = None,
        receipts: ReceiptKeeper | None = None,
    ) -> None:
        self.id = id
        self._source = as_table(source, id) if isinstance(source, tuple) else source
        self._policy = policy or Policy()
        self._record = record
        self._privacy = privacy
        self._signer = signer
        self._receipts = receipts
        self._last: tuple[bytes, bytes] | None = None
        if privacy is not None and not isinstance(self._source, Table | tuple):
            raise BazaarError("a callable oracle sees to its own privacy: drop the privacy settings, or give data")

    def __call__(self, payload: bytes) -> bytes:
        if is_receipt(payload):
            return self._take_receipt(payload)
        if self._privacy is not None and self._last is not None and self._last[0] == payload:
            return self._last[1]  # asked again, as after a restart: the same noise tells nothing new
        request, params = decode_request(payload)
        status: Status = "ok"
        code: Code = ""
        update = None
        try:
            update = self._answer(request, params)
        except RefusedError as refusal:
            status, code = "refused", refusal.code
        except BazaarError as reason:
            log.warning("round %d is refused: %s", request.round, reason)
            status, code = "refused", "task does not fit the data"
        except Exception:
            log.exception("round %d failed; the market hears only 'computation failed'", request.round)
            status, code = "error", "computation failed"
        reply = self._reply(request, payload, status, code, update)
        if request.kind == "update" and status == "ok":
            self._last = payload, reply
        return reply

    def _take_receipt(self, payload: bytes) -> bytes:
        message = decode_receipt(payload)
        signed = message.receipt, message.signature, message.certificate
        if self._receipts is None or not self._receipts.take(*signed):
            return self._reply(message, payload, "refused", "task not allowed", None)
        return self._reply(message, payload, "ok", "", None)

    def _reply(
        self, request: Request | ReceiptMessage, payload: bytes, status: Status, code: Code, update: Tensor | None
    ) -> bytes:
        """The reply, signed where there is a key. What is signed is recorded first."""
        asked = request.kind != "receipt"
        epsilon = self._privacy.spent() if self._privacy is not None and asked else None
        delta = self._privacy.delta if self._privacy is not None and asked else None
        reply = Reply(
            protocol=2,
            run=request.run,
            round=request.round,
            provider=self.id,
            status=status,
            code=code,
            epsilon=epsilon,
            delta=delta,
            question=question_hash(payload),
        )
        vector = encode_vector(update)
        said = reply.statement(vector)
        if self._record is not None and request.kind == "update":
            signed = said.digest if self._signer is not None else ""
            self._record.add(request.run, request.round, status, code, epsilon, signed)
        signature = self._signer.sign(said.text) if self._signer is not None else ""
        return encode_reply(reply.model_copy(update={"signature": signature}), vector)

    def _answer(self, request: Request, params: Tensor | None) -> Tensor | None:
        if callable(self._source):
            return None if params is None else self._call(self._source, params)
        task = request.task
        if task.model is None:
            raise RefusedError("task does not fit the data")
        data = self._fitting(task.model, task.loss, task.table)
        if not self._policy.allows(task.model, task.oracle, len(data[0])):
            raise RefusedError("task not allowed")
        if self._privacy is not None:
            self._privacy.check(task.oracle, len(data[0]))
        if params is None:
            return None
        if params.dtype != torch.float32 or len(params) != width(task.model):
            raise RefusedError("task does not fit the data")
        model = build_model(task.model.kind, task.model.inputs, task.model.outputs, hidden=task.model.hidden)
        work = Task(model, LOSSES[task.loss])
        if self._privacy is not None:
            return _sound(self._privacy.update(task.oracle, work, data, params), params)
        key = oracle_key(request.seed, request.round, self.id)
        oracle = built_in(task.oracle, len(data[0]))
        return _sound(compute_update(oracle, work, data, params, request.round, key), params)

    def _call(self, oracle: VectorOracle, params: Tensor) -> Tensor:
        update = as_update(oracle(params.numpy().copy()), params)
        if isinstance(update, str):
            raise ValueError(update)
        return _sound(update, params)

    def _fitting(self, model: ModelMessage, loss: str, table: SchemaMessage | None) -> Data:
        """The examples in the shape that the model takes, with targets that its loss takes."""
        assert not callable(self._source)
        x, y = self._source.examples(table) if isinstance(self._source, Table) else self._source
        if x[0].numel() != prod(model.inputs) or (loss == "cross-entropy") == y.is_floating_point():
            raise RefusedError("task does not fit the data")
        if loss == "cross-entropy":
            fits = int(y.min()) >= 0 and int(y.max()) < model.outputs
        else:
            fits = y[0].numel() == model.outputs
        if not fits:
            raise RefusedError("task does not fit the data")
        return x.reshape(len(x), *model.inputs), y


def built_in(oracle: OracleMessage, rows: int) -> Oracle:
    """The oracle that a message describes; its step is already this round's.

    A batch of more than all rows is one of all rows: it gives the same update and cannot be used to fill memory.
    """
    batch = min(oracle.batch_size, rows)
    return build_oracle(**oracle.model_copy(update={"batch_size": batch}).model_dump())


def _sound(update: Tensor, params: Tensor) -> Tensor:
    """The update, unless the arbiter would refuse it: then it is this side's error, and is logged here."""
    if (why := why_invalid(update, params)) is not None:
        raise ValueError(why)
    return update
