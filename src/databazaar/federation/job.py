"""How a market's job reaches its federation: what is asked of whom, and where the server is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from databazaar.data.schema import Schema
from databazaar.data.schema_message import SchemaMessage
from databazaar.errors import BazaarError
from databazaar.federation.engine import FederatedEngine
from databazaar.federation.messages import ModelMessage, OracleMessage, TaskMessage
from databazaar.learning.task import Schedule


@dataclass(frozen=True)
class FederatedJob:
    """What a job over a federation has beside the others: the work for its providers, and the way to them. With
    `pack` large questions and answers are compressed on their way."""

    folder: Path
    task: TaskMessage
    step: float | Schedule
    deadline: float
    wait: float
    consumer: str = ""
    contract: str = ""
    pack: bool = False

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
        enrolment, transports, signing = _installed()
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
        transport = transports.GrpcTransport(self.folder, self.consumer, pack=self.pack)
        with transport:
            transport.connected()
        return FederatedEngine(
            self.task,
            names,
            transport,
            step=self.step,
            deadline=self.deadline,
            wait=self.wait,
            keys=signing.MarketKeys.of(self.folder),
            consumer=self.consumer,
            contract=self.contract,
        )


def _installed() -> tuple[Any, Any, Any]:
    try:
        from databazaar.federation import enrolment, grpc_transport
        from databazaar.federation import signatures as signing
    except ImportError:
        raise BazaarError("federation needs more packages: pip install 'databazaar[federated]'") from None
    return enrolment, grpc_transport, signing
