"""The mean of those updates that point where the consumer's own rows do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from databazaar.aggregators.protocol import Stateless
from databazaar.errors import BazaarError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FLTrust(Stateless):
    """Σ_i t_i · ‖r‖ u_i / ‖u_i‖ / Σ_i t_i with the trust t_i = max(0, cos(u_i, r)): updates count by how far they point
    where the reference r does, and all of them with its length. If none does, the model does not move.

    The reference is the consumer's own update of the round, computed from the rows by which it scores as if they were a
    provider's. Breakdown: none by number. A majority can be arbitrary, but not move the model against the reference; it
    can still take it far off to the side. An update that is made from the consumer's rows is trusted most: against a
    leaked hold-out it is no help. The state holds the reference within a round, and nothing between rounds.

    Cao, Fang, Liu, Gong: FLTrust, NDSS 2021.
    """

    kind: ClassVar[str] = "fltrust"

    def guide(self, state: Tensor, reference: Tensor) -> Tensor:
        """The reference as the state. One that has diverged is none: it trusts nobody."""
        return reference.where(reference.isfinite().all(), 0.0)

    def combine(self, state: Tensor, updates: Tensor, step: float) -> tuple[Tensor, Tensor]:
        import torch

        if len(state) != updates.shape[1]:
            raise BazaarError("aggregator fltrust has no reference for this round: give it one with `guide` first")
        least = torch.finfo(updates.dtype).tiny
        length = torch.linalg.vector_norm(state)
        units = updates / torch.linalg.vector_norm(updates, dim=1, keepdim=True).clamp(min=least)
        trust = (units @ (state / length.clamp(min=least))).clamp(min=0.0)
        return state.new_empty(0), step * length * (trust / trust.sum().clamp(min=least) @ units)
