"""The median of every coordinate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from databazaar.aggregators.protocol import Stateless, suspects
from databazaar.aggregators.trimmed_mean import trimmed

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Median(Stateless):
    """argmin over z of Σ_i ‖u_i − z‖₁: in each coordinate by itself the number in the middle, and of an even number of
    updates the mean of the two in the middle. It is the trimmed mean that cuts as much as it can.

    Breakdown: fewer than half. As long as more updates are honest than arbitrary, every coordinate lies between the
    least and the greatest of the honest ones. Where honest providers differ a lot, the median of each coordinate can be
    far from their mean; and a coordinate that most updates leave at zero stays there.

    Yin, Chen, Kannan, Bartlett: Byzantine-robust distributed learning, ICML 2018.
    """

    kind: ClassVar[str] = "median"

    def combine(self, state: Tensor, updates: Tensor, step: float) -> tuple[Tensor, Tensor]:
        return state, step * trimmed(updates, suspects(0.5, len(updates)))
