"""The point that is nearest to all updates together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from databazaar.aggregators.krum import nearest_mean
from databazaar.aggregators.protocol import Stateless, suspects
from databazaar.settings import setting

if TYPE_CHECKING:
    from torch import Tensor

SMOOTHING = 1e-3
"""Nearer than this share of the middle distance counts as being there."""


@dataclass(frozen=True)
class GeometricMedian(Stateless):
    """argmin over z of Σ_i ‖u_i − z‖₂, by so many `iterations` of the smoothed Weiszfeld algorithm: z becomes the mean
    of the updates with the weights 1 / max(‖u_i − z‖, ν), where ν is a thousandth of the middle distance.

    Breakdown: fewer than half. If g updates lie within r of a point and the other f < g anywhere, the minimum lies
    within r · 2g / (g − f) of that point. It begins at the mean of the majority that lies closest together (by Krum's
    scores), because from the mean of all, one long update would take ever more iterations to come back from. Turning,
    shifting or stretching all updates does the same to the result.

    Pillutla, Kakade, Harchaoui: Robust aggregation for federated learning, IEEE Transactions on Signal Processing 2022.
    """

    iterations: int = setting(8, "the steps of Weiszfeld's algorithm", at_least=1, at_most=1000, in_files=False)
    kind: ClassVar[str] = "geometric-median"

    def combine(self, state: Tensor, updates: Tensor, step: float) -> tuple[Tensor, Tensor]:
        import torch

        centre = nearest_mean(updates, suspects(0.5, len(updates)))
        for _ in range(self.iterations):
            far = torch.linalg.vector_norm(updates - centre, dim=1)
            least = (SMOOTHING * far.median()).clamp(min=torch.finfo(far.dtype).tiny)
            weights = least / far.clamp(min=least)  # at most 1 each, so that no sum overflows
            centre = weights @ updates / weights.sum()
        return state, step * centre
