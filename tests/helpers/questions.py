"""A question as a hostile arbiter would put it to a provider's worker, and what it hears."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any, get_args

import pandas as pd
from torch import Tensor

from databazaar.data.schema import Schema
from databazaar.data.schema_message import SchemaMessage
from databazaar.federation.accountant import Accountant
from databazaar.federation.messages import (
    ModelMessage,
    OracleMessage,
    ReplyCode,
    Request,
    Status,
    TaskMessage,
    decode_reply,
    decode_request,
    encode_request,
)
from databazaar.federation.privacy import PrivateUpdates
from databazaar.federation.worker import ProviderWorker

ORACLE = OracleMessage(kind="full-gradient", step=0.1, batch_size=8, epochs=1, momentum=0.0)
PROTOCOL = get_args(Request.model_fields["protocol"].annotation)[0]


def as_message(schema: Schema) -> SchemaMessage:
    return SchemaMessage.model_validate(schema.to_dict())


def asked(
    worker: ProviderWorker, table: SchemaMessage | None, params: Tensor | None = None, **changes: Any
) -> tuple[Status, ReplyCode, Tensor | None]:
    """What the arbiter hears: to a `describe`, or with parameters to a question for an update."""
    regression = table is not None and table.task == "regression"
    outputs = 2 if table is None else 1 if regression else len(table.classes)
    inputs = 4 if table is None else len(Schema.from_dict(table.model_dump()).feature_names)
    model = {"kind": "logistic", "inputs": (inputs,), "outputs": outputs, "hidden": ()}
    task = TaskMessage(
        model=ModelMessage.model_validate({**model, **changes.pop("model", {})}),
        loss="squared-error" if regression else "cross-entropy",
        oracle=ORACLE.model_copy(update=changes.pop("oracle", {})),
        table=table,
    )
    header = {"protocol": PROTOCOL, "kind": "describe" if params is None else "update", "run": "a" * 32}
    header |= {"round": 0, "seed": 0, "consumer": "", "contract": ""}
    request = Request.model_validate({**header, "task": task, **changes})
    payload = encode_request(request, params)
    reply, update, *_ = decode_reply(worker(payload), decode_request(payload)[0], worker.id, params)
    return reply.status, reply.code, update


HONEST = as_message(
    Schema.fit(
        pd.DataFrame({"amount": [1.0, 2.0, 4.0], "income": [3, 4, 9], "fraud": ["no", "yes", "no"]}),
        target="fraud",
        task="classification",
    )
)


def private(path: Path, cap: float = 1e6, clip: float = 0.5, noise: float = 1.0) -> PrivateUpdates:
    return PrivateUpdates(noise, clip, Accountant(path, 1e-5, cap))


def a_kit(folder: Path) -> Path:
    """A kit as far as a provider's own files go: its key opens no door."""
    invitation = {"kind": "invitation", "market": "fraud", "provider": "bank", "host": "localhost", "port": 20_001}
    invitation |= {"identity": "fraud.server", "authority": "authority"}
    (folder / "startup").mkdir(parents=True)
    for name in ("rootCA.pem", "client.crt"):
        (folder / "startup" / name).write_text("of no use")
    (folder / "invitation.json").write_text(json.dumps(invitation))
    (folder / "startup" / "client.key").write_text(secrets.token_hex(32))
    return folder
