"""The provider's side of a question: bytes in, bytes out, over its own data and by its own policy.

What goes wrong here stays here: the arbiter hears a status and a fixed code, never an exception's text.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.codes import Code
from databazaar.engines.protocol import as_update, why_invalid
from databazaar.errors import BazaarError
from databazaar.federation.accepted_schemas import Asker
from databazaar.federation.frames import Body
from databazaar.federation.messages import (
    ReceiptMessage,
    Reply,
    ReplyCode,
    Request,
    Status,
    decode_receipt,
    decode_request,
    encode_reply,
    is_receipt,
    question_hash,
    vector_parts,
)
from databazaar.federation.policy import AccessLimit, Policy, RateLimiter, RefusedError, built_in, width
from databazaar.federation.receipts import ReceiptKeeper
from databazaar.federation.records import AccessRecord
from databazaar.federation.table import Data, Examples, Recent, Table
from databazaar.learning.inputs import as_table
from databazaar.learning.losses import LOSSES, Loss
from databazaar.learning.models import build_model
from databazaar.learning.oracles import compute_update
from databazaar.learning.task import Task
from databazaar.randomness import oracle_key

if TYPE_CHECKING:
    from databazaar.federation.privacy import PrivateUpdates
    from databazaar.federation.signatures import Signer

VectorOracle = Callable[[NDArray[Any]], NDArray[Any]]
_REMEMBERED = 2**28
"""Bytes of answers that are remembered in case they are asked for again."""
log = logging.getLogger(__name__)


Source = Table | Data | tuple[NDArray[Any], NDArray[Any]] | VectorOracle


class ProviderWorker:
    """Answers questions about `source`: a Table, examples (x, y), or a callable from parameters to update. The last
    answer of each run is remembered, so that a question asked again costs no ε twice. Several threads may call it:
    one at a time answers, except for a callable, which all of them call."""

    def __init__(
        self,
        id: str,
        source: Source,
        policy: Policy | None = None,
        *,
        record: AccessRecord | None = None,
        privacy: PrivateUpdates | None = None,
        signer: Signer | None = None,
        receipts: ReceiptKeeper | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.id = id
        self._source = as_table(source, id) if isinstance(source, tuple) else source
        self._policy = policy or Policy()
        self._record = record
        self._privacy = privacy
        self._signer = signer
        self._receipts = receipts
        self._clock = clock
        self._alone = threading.Lock()
        self._rate_limiter = RateLimiter(self._policy.max_questions, clock)
        self._accesses = AccessLimit(self._policy.max_accesses, record)
        self._examples = None if callable(self._source) else Examples(self._source, privacy is not None)
        self._last: Recent[str, tuple[str, bytes]] = Recent(most_bytes=_REMEMBERED)
        if privacy is not None and not isinstance(self._source, Table | tuple):
            raise BazaarError("a callable oracle sees to its own privacy: drop the privacy settings, or give data")

    def __call__(self, payload: Body) -> bytes:
        with self._alone:
            return self._answered(payload)

    def _answered(self, payload: Body) -> bytes:
        question = question_hash(payload)  # before an oracle can write into the parameters, which may lie in there
        if is_receipt(payload):
            return self._take_receipt(payload, question)
        request, params = decode_request(payload)
        job = request.contract or request.run
        status: Status = "ok"
        code: ReplyCode = ""
        update = None
        try:
            self._rate_limiter.let_through()
            if (last := self._last.get(request.run)) is not None and last[0] == question:
                return last[1]  # asked again, as after a restart: the same noise tells nothing new
            self._policy.refuse_others(request.consumer)
            self._accesses.check(job, question)
            update = self._answer(request, params)
        except RefusedError as refusal:
            status, code = "refused", refusal.code
        except BazaarError as reason:
            log.warning("round %d is refused: %s", request.round, reason)
            status, code = "refused", "task-does-not-fit"
        except Exception:
            log.exception("round %d failed; the market hears only 'computation failed'", request.round)
            status, code = "error", "computation-failed"
        reply = self._reply(request, question, status, code, update)
        if request.kind == "update" and status == "ok":
            self._accesses.note(job, question)
            if self._privacy is not None:
                self._last.put(request.run, (question, reply), len(reply))
        return reply

    def _take_receipt(self, payload: Body, question: str) -> bytes:
        message = decode_receipt(payload)
        signed = message.receipt, message.signature, message.certificate
        if self._receipts is None or not self._receipts.take(*signed):
            return self._reply(message, question, "refused", "task-not-allowed", None)
        return self._reply(message, question, "ok", "", None)

    def _reply(
        self, request: Request | ReceiptMessage, question: str, status: Status, code: ReplyCode, update: Tensor | None
    ) -> bytes:
        """The reply, signed where there is a key. What is signed is recorded first."""
        private = self._privacy if isinstance(request, Request) else None
        epsilon = None if private is None else private.accountant.spent
        reply = Reply(
            protocol=2,
            run=request.run,
            round=request.round,
            provider=self.id,
            status=status,
            code=code,
            epsilon=epsilon,
            delta=None if private is None else private.accountant.delta,
            question=question,
        )
        vector = vector_parts(update)
        said = reply.statement(*vector)
        if self._record is not None and isinstance(request, Request):
            told = {"kind": request.kind, "consumer": request.consumer, "contract": request.contract}
            signed = said.digest if self._signer is not None and request.kind == "update" else ""
            spent = epsilon if request.kind == "update" else None
            self._record.add(request.run, request.round, status, code, spent, reply=signed, question=question, **told)
        signature = self._signer.sign(said.text) if self._signer is not None else ""
        return encode_reply(reply.model_copy(update={"signature": signature}), vector)

    def _answer(self, request: Request, params: Tensor | None) -> Tensor | None:
        if callable(self._source):
            return None if params is None else self._call(self._source, params)
        assert self._examples is not None
        task = request.task
        if task.model is None:
            raise RefusedError("task-does-not-fit")
        private, by = self._privacy is not None, Asker(request.consumer, request.contract)
        rows = self._examples.rows(task.model, task.loss, task.table, by)
        self._policy.refuse_few_rows(task.oracle, rows)
        if not self._policy.allows(task.model, task.oracle, rows, private):
            raise RefusedError("task-not-allowed")
        data = self._examples.fitting(task.model, task.loss, task.table, by)
        if not private:  # with differential privacy a row without a known target is still in the table
            self._policy.refuse_few_rows(task.oracle, len(data[0]))
        if self._privacy is not None:
            self._privacy.check(task.oracle, rows, request.consumer)
        if params is None:
            return None
        if params.dtype != torch.float32 or len(params) != width(task.model):
            raise RefusedError("task-does-not-fit")
        model = build_model(task.model.kind, task.model.inputs, task.model.outputs, hidden=task.model.hidden)
        work = Task(model, self._timed(LOSSES[task.loss]))
        if self._privacy is not None:
            at_once = self._policy.rows_at_once(task.model, task.oracle, rows)
            return self._privacy.update(task.oracle, work, data, params, at_once, request.consumer)
        key = oracle_key(request.seed, request.round, self.id)
        oracle = built_in(task.oracle, len(data[0]))
        return _sound(compute_update(oracle, work, data, params, request.round, key), params)

    def _timed(self, loss: Loss) -> Loss:
        """The loss, which every step asks for; and the end of it when the answer has taken too long."""
        until = self._clock() + self._policy.max_seconds

        def timed(outputs: Tensor, targets: Tensor) -> Tensor:
            if self._clock() > until:
                log.warning("an answer took longer than %g s and is given up", self._policy.max_seconds)
                raise RefusedError("task-not-allowed")
            return loss(outputs, targets)

        return timed

    def _call(self, oracle: VectorOracle, params: Tensor) -> Tensor:
        self._alone.release()
        try:
            given = oracle(params.numpy().copy())
        finally:
            self._alone.acquire()
        update = as_update(given, params)
        if isinstance(update, Code):
            raise ValueError(str(update))
        return _sound(update, params)


def _sound(update: Tensor, params: Tensor) -> Tensor:
    """The update, unless the arbiter would refuse it: then it is this side's error, and is logged here."""
    if (why := why_invalid(update, params)) is not None:
        raise ValueError(str(why))
    return update
