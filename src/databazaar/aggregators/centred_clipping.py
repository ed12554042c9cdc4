"""The last average, and what updates want beyond it, each by a limited length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from databazaar.settings import check_settings, setting

if TYPE_CHECKING:
    from torch import Tensor

RECENT = 64
"""Of so many draws before this round the distances are remembered."""


@dataclass(frozen=True)
class CentredClipping:
    """v⁺ = v + 1/m · Σ_i (u_i − v) · min(1, τ / ‖u_i − v‖), where v is the average of the round before, at first zero.
    The model moves by γv⁺. One arbitrary update moves it by γτ/m, however long it is.

    The paper leaves τ to the user. Here it is `radius` times the median of the distances ‖u_i − v‖ of this
    round and of the 64 draws before it; so there is nothing to tune: it follows the lengths of a market's updates, of
    any model and any rate, and who wants to widen it must send half of the recent updates. The state is v, and those
    distances.

    Breakdown: what a round takes from a minority is bounded by τ, and the paper proves convergence with up to a tenth
    of arbitrary updates. It works with rounds of a single update, where no rule without a memory can tell anything.

    Karimireddy, He, Jaggi: Learning from history for Byzantine robust optimization, ICML 2021.
    """

    radius: float = setting(
        1.0, "how far an update counts, in medians of the recent distances", above=0, in_files=False
    )
    kind: ClassVar[str] = "centred-clipping"

    def __post_init__(self) -> None:
        check_settings(self, "aggregator centred-clipping")

    def init(self, params: Tensor) -> Tensor:
        return params.new_zeros(len(params) + RECENT)

    def combine(self, state: Tensor, updates: Tensor, step: float) -> tuple[Tensor, Tensor]:
        import torch

        centre, before = state[:-RECENT], state[-RECENT:]
        apart = updates - centre
        far = torch.linalg.vector_norm(apart, dim=1)
        seen = torch.cat([before, far])
        middle = seen.where(seen > 0, torch.nan).nanmedian().nan_to_num(0.0)  # no distance is none yet, or says nothing
        radius = (self.radius * middle).clamp(min=torch.finfo(far.dtype).tiny)
        moved = centre + radius / far.clamp(min=radius) @ apart / len(updates)
        return torch.cat([moved, seen[-RECENT:]]), step * moved
