"""The shapes of messages between the arbiter and a provider, field by field; `messages` writes and reads them.

Every kind of message has a protocol number of its own, which changes when its fields do.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from databazaar.data.schema_message import SchemaMessage
from databazaar.federation.lanes import LONGEST_NAME
from databazaar.federation.payloads import Body
from databazaar.federation.receipts import LONGEST_CERTIFICATE, LONGEST_SIGNATURE
from databazaar.learning.kinds import ModelKind, OptimizerKind, OracleKind
from databazaar.ledger.replies import ReplyStatement

MAX_HEADER = 1024 * 1024

Status = Literal["ok", "refused", "error"]
ReplyCode = Literal[
    "",
    "task-not-allowed",
    "task-does-not-fit",
    "privacy-spent",
    "too-many-questions",
    "computation-failed",
    "consumer-not-allowed",
    "no-accesses-left",
    "consumer-privacy-spent",
    "too-few-rows",
]
"""Why a provider refused or failed, in a reply; empty in one that brings what was asked for. See codes.py."""

_Name = Annotated[str, Field(min_length=1, max_length=100)]
_MaybeName = Annotated[str, Field(max_length=LONGEST_NAME)]
_Run = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
_Round = Annotated[int, Field(ge=0, lt=2**53)]
_Seed = Annotated[int, Field(ge=0, lt=2**63)]
_Size = Annotated[int, Field(ge=1, le=10**7)]
_Sizes = Annotated[tuple[_Size, ...], Field(strict=False, max_length=64)]
_Count = Annotated[int, Field(ge=1, le=10**9)]
_Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Signature = Annotated[str, Field(pattern=r"^([0-9a-f]{2})*$", max_length=LONGEST_SIGNATURE)]


def hash_of(*parts: Body) -> str:
    """SHA-256 of the parts, one after the other."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ModelMessage(_Strict):
    """A built-in model by kind and sizes."""

    kind: ModelKind
    inputs: Annotated[tuple[_Size, ...], Field(strict=False, min_length=1, max_length=3)]
    outputs: _Size
    hidden: _Sizes


class OracleMessage(_Strict):
    """A built-in oracle; `step` is this round's."""

    kind: OracleKind
    step: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
    batch_size: _Count
    epochs: Annotated[int, Field(ge=1, le=10**6)]
    momentum: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
    steps: _Count | None = None
    optimizer: OptimizerKind = "sgd"
    weight_decay: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 0.0


class TaskMessage(_Strict):
    """The work, as a description. Without a model, only a provider's own callable understands the parameters."""

    model: ModelMessage | None
    loss: Literal["cross-entropy", "squared-error"]
    oracle: OracleMessage
    table: SchemaMessage | None


class Request(_Strict):
    """`describe` asks whether the provider would take the task; `update` asks for an update.

    `consumer` is for whom, and `contract` by which agreement: both are the market's word, and empty where there is
    none, as at home.
    """

    protocol: Literal[3]
    kind: Literal["update", "describe"]
    run: _Run
    round: _Round
    seed: _Seed
    consumer: _MaybeName
    contract: _MaybeName
    task: TaskMessage


class ReceiptMessage(_Strict):
    """A receipt for its provider to keep (federation/receipts.py): its text, signed by the market's server, with the
    server's certificate in PEM. `round` is how many rounds were settled by then."""

    protocol: Literal[2]
    kind: Literal["receipt"]
    run: _Run
    round: _Round
    receipt: Annotated[str, Field(max_length=MAX_HEADER)]
    signature: _Signature
    certificate: Annotated[str, Field(max_length=LONGEST_CERTIFICATE)]


class Reply(_Strict):
    """`epsilon` is what a provider with differential privacy says it has spent so far, at its own `delta`. `question`
    is the hash of the bytes that it answers, and `signature` stands under both: they are empty where no party needs to
    prove anything, as in a market at home."""

    protocol: Literal[2]
    run: _Run
    round: _Round
    provider: _Name
    status: Status
    code: ReplyCode
    epsilon: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None
    delta: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] | None
    question: _Hash | Literal[""] = ""
    signature: _Signature = ""

    def statement(self, *update: Body) -> ReplyStatement:
        """What is signed of it, with the update's bytes as they are sent, in one or several parts."""
        update_hash = hash_of(*update) if any(map(len, update)) else ""
        said = (self.run, self.round, self.provider, self.question, self.status, self.code, update_hash)
        return ReplyStatement(*said)
