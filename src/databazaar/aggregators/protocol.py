"""What every aggregator offers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from databazaar.registry import Registry
from databazaar.settings import check_settings

if TYPE_CHECKING:
    from torch import Tensor

AGGREGATORS = Registry("aggregator", "databazaar.aggregators")
"""Every aggregator by its kind."""


@runtime_checkable
class Aggregator(Protocol):
    """Frozen settings and two pure functions over an explicit state, which is one vector (of no length, if need be).

    The state is kept with the parameters, so a run that is resumed goes on as if it had not been stopped.
    `check_aggregator` tests the contract.
    """

    kind: ClassVar[str]

    def init(self, params: Tensor) -> Tensor:
        """The state before the first round, of the type and on the device of these parameters."""
        ...

    def combine(self, state: Tensor, updates: Tensor, step: float) -> tuple[Tensor, Tensor]:
        """The new state, and the move [d] that is added to the model.

        `updates` [m, d] holds one row for each draw with a valid reply, m ≥ 1, in the order of the draws; a
        provider drawn twice stands there twice. `step` is the paper's γ.
        """
        ...


class Stateless:
    """What aggregators inherit from that remember nothing between rounds. Their settings are checked."""

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        check_settings(self, f"aggregator {self.kind}")

    def init(self, params: Tensor) -> Tensor:
        return params.new_empty(0)


def suspects(share: float, updates: int) -> int:
    """A share of the updates, rounded up, but always fewer than half of them: the others must be able to outvote them.

    Rounds differ in length. One or two updates tell nobody which of them is wrong, and none is suspected.

    >>> [suspects(0.3, updates) for updates in range(1, 11)]
    [0, 0, 1, 1, 2, 2, 3, 3, 3, 3]
    """
    return min(math.ceil(share * updates - 1e-9), (updates - 1) // 2)
