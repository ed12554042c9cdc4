"""Coordinate by coordinate, the mean of what is left when the ends are cut off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from databazaar.aggregators.protocol import Stateless, suspects
from databazaar.settings import setting

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class TrimmedMean(Stateless):
    """In each coordinate by itself, the mean without the f smallest and the f largest of the m numbers, where f is
    `share` of m, rounded up, and at most (m − 1)/2.

    Breakdown: f. As long as no more than f updates are arbitrary, every coordinate lies between the least and the
    greatest of the others. With two updates or one it is their mean.

    Yin, Chen, Kannan, Bartlett: Byzantine-robust distributed learning, ICML 2018 (which rounds down).
    """

    share: float = setting(
        0.3, "the share of updates that is cut off on each side", at_least=0, at_most=0.5, in_files=False
    )
    kind: ClassVar[str] = "trimmed-mean"

    def combine(self, state: Tensor, updates: Tensor, step: float) -> tuple[Tensor, Tensor]:
        return state, step * trimmed(updates, suspects(self.share, len(updates)))


def trimmed(updates: Tensor, cut: int) -> Tensor:
    """The mean of each coordinate without its `cut` smallest and largest numbers."""
    if not cut:
        return updates.mean(0)
    first, *others = updates.sort(0).values[cut : len(updates) - cut].unbind()
    return sum(others, start=first) / (1 + len(others))
