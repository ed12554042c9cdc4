"""How a market's job reaches its federation: what is asked of whom, and where the server is."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from databazaar.data.schema import Schema
from databazaar.data.schema_message import SchemaMessage
from databazaar.errors import BazaarError
from databazaar.federation.engine import FederatedEngine
from databazaar.federation.messages import ModelMessage, OracleMessage, TaskMessage
from databazaar.learning.task import Schedule

if TYPE_CHECKING:
    from databazaar.runs.folder import RunFolder


@dataclass(frozen=True)
class Plan:
    """A federated market's own settings; `engine` opens the way to its providers."""

    folder: Path
    task: TaskMessage
    step: float | Schedule
    deadline: float
    wait: float

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

    def engine(self, names: Sequence[str], run: RunFolder | None) -> FederatedEngine:
        """An engine on the market's server. For a run it waits for the providers, and says who does not come."""
        onboarding, transports = _installed()
        members = onboarding.members(self.folder)
        for name in names:
            if name not in members:
                raise BazaarError(
                    f"{name} is no member of the federation in {self.folder}: invite it with "
                    f"`bazaar federation invite {name}`, or take it out of market.toml"
                )
        transport = transports.FlareTransport(self.folder)
        with transport:
            transport.connected()
        engine = FederatedEngine(
            self.task,
            names,
            transport,
            run=str(run.recipe["id"]) if run is not None else "0" * 32,
            step=self.step,
            deadline=self.deadline,
            spent=run.note_privacy if run is not None else None,
        )
        if run is not None:
            absent = transport.wait_for(names, self.wait)
            here = [name for name in names if name not in absent]
            unwilling = {**dict.fromkeys(absent, "not connected"), **engine.would_take(here, self.deadline)}
            for name, reason in unwilling.items():
                warnings.warn(f"{name}: {reason}; the run goes on and asks it when it is drawn", stacklevel=2)
        return engine


def _installed() -> tuple[Any, Any]:
    try:
        from databazaar.federation import onboarding, transport
    except ImportError:
        raise BazaarError("federation needs more packages: pip install 'databazaar[federated]'") from None
    return onboarding, transport
