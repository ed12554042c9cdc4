"""The mean of those updates that have others near them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from databazaar.aggregators.protocol import Stateless, suspects
from databazaar.settings import setting

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Krum(Stateless):
    """Multi-Krum. The score of an update is the sum of its squared distances to the m − f − 2 that are nearest to it,
    where f is `share` of the m updates, rounded up, and at most (m − 1)/2. The mean of the `keep` updates with the
    lowest scores is taken: without a number, of all but f; 1 is Krum itself. Equal scores are kept together.

    Breakdown: f, with the paper's guarantee where m ≥ 2f + 3. Rounds may be shorter than that. Then the nearest f are
    looked at, which still keeps out what is far from everybody: of three updates, the two that are nearest to each
    other are kept. Of two updates or one nobody can tell which is wrong, and the mean is taken.

    Blanchard, El Mhamdi, Guerraoui, Stainer: Machine learning with adversaries, NIPS 2017.
    """

    share: float = setting(0.3, "the share of updates that may be arbitrary", at_least=0, at_most=0.5, in_files=False)
    keep: int | None = setting(None, "how many updates are averaged; 1 is Krum itself", at_least=1, in_files=False)
    kind: ClassVar[str] = "krum"

    def combine(self, state: Tensor, updates: Tensor, step: float) -> tuple[Tensor, Tensor]:
        return state, step * nearest_mean(updates, suspects(self.share, len(updates)), self.keep)


def nearest_mean(updates: Tensor, f: int, keep: int | None = None) -> Tensor:
    """The mean of the updates with the lowest scores, of which f may be arbitrary."""
    most = len(updates) - f
    keep = most if keep is None else min(keep, most)
    if keep == len(updates):
        return updates.mean(0)
    nearest = squared_distances(updates).sort(1).values[:, 1 : 1 + max(most - 2, f)]  # the first is its own, zero
    scores = nearest.sum(1)
    kept = (scores <= scores.kthvalue(keep).values).to(updates)
    return kept @ updates / kept.sum()


def squared_distances(updates: Tensor) -> Tensor:
    """‖u_i − u_j‖² for every pair, from the differences themselves: nothing cancels, and the matrix is symmetric."""
    import torch

    apart = updates.new_zeros(len(updates), len(updates))
    low, high = torch.triu_indices(len(updates), len(updates), 1, device=updates.device)
    apart[low, high] = torch.pdist(updates).square()
    return apart + apart.T
