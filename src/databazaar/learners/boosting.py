"""Boosted trees: a round grows a few, on the rows of all drawn providers and of the buyer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from databazaar.settings import check_settings, setting

if TYPE_CHECKING:
    from databazaar.learners.protocol import Market
    from databazaar.parties import Consumer
    from databazaar.training import Model, Training

MOST = 10**6


@dataclass(frozen=True)
class Boosting:
    """Grows a few trees a round (each time one a class) on the rows of all drawn providers and of the buyer together.

    What a leaf adds to a prediction is a sum over the providers whose rows are in it: so each has a part of the tree,
    in predictions. Bins of the features come from the buyer's rows.
    """

    rows: int = setting(4096, "the most rows of a provider that an access buys", at_least=1, at_most=MOST)
    trees: int = setting(
        20, "the most trees of a round, while rows set aside are the better for them", at_least=1, at_most=100
    )
    rate: float = setting(0.1, "the share of a tree's answer that is added", above=0, at_most=1)
    leaves: int | None = setting(
        None,
        "the most leaves of a tree",
        at_least=2,
        at_most=10_000,
        example=31,
        without="8, 31 or 127, by rows set aside in the round",
    )
    min_rows: int = setting(20, "the fewest bought rows of a leaf", at_least=1, at_most=MOST, in_files=False)
    l2: float = setting(1.0, "added to a leaf's hessian: a small leaf moves less", at_least=0, in_files=False)
    kind: ClassVar[str] = "boosting"
    example: ClassVar[str] = "trees"
    models: ClassVar[tuple[str, ...]] = ("trees",)

    @property
    def passes(self) -> int:
        """One for each tree; the first is tried in three sizes."""
        return self.trees + 2

    def __post_init__(self) -> None:
        check_settings(self, f"learner {self.kind}")

    def begin(self, consumer: Consumer) -> Model:
        from databazaar.training.boosting import refuse_large_trees, untrained

        begun = untrained(consumer)
        refuse_large_trees(self, begun)
        return begun

    def training(self, market: Market) -> Training:
        from databazaar.training.boosting import BoostingTraining

        return BoostingTraining.of(self, market)
