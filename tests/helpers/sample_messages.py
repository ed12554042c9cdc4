"""A request, a reply and a schema as honest parties write them."""

from __future__ import annotations

import pandas as pd
import torch

from databazaar.data.schema import Schema
from databazaar.data.schema_message import SchemaMessage
from databazaar.federation.messages import ModelMessage, OracleMessage, Reply, Request, TaskMessage

RUN = "0123456789abcdef" * 2
PARAMS = torch.linspace(-1, 1, 9)


def a_table() -> SchemaMessage:
    frame = pd.DataFrame({"amount": [1.0, 3.5], "channel": ["web", "größe"], "fraud": [0, 1]})
    return SchemaMessage.model_validate(Schema.fit(frame, target="fraud", task="classification").to_dict())


def a_request(kind: str = "update", round: int = 3, table: SchemaMessage | None = None) -> Request:
    oracle = OracleMessage(kind="local-sgd", step=0.1, batch_size=32, epochs=1, momentum=0.0)
    model = ModelMessage(kind="mlp", inputs=(4,), outputs=2, hidden=(8,))
    task = TaskMessage(model=model, loss="cross-entropy", oracle=oracle, table=table)
    asked = {"protocol": 3, "kind": kind, "run": RUN, "round": round, "seed": 7}
    return Request.model_validate({**asked, "consumer": "north", "contract": "c1", "task": task})


def a_reply(**changes: object) -> Reply:
    header = {"protocol": 2, "run": RUN, "round": 3, "provider": "bank1", "status": "ok", "code": ""}
    return Reply.model_validate({**header, "epsilon": None, "delta": None, **changes})
