"""One model and one optimizer for the whole run; an access buys rows for the steps of its round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from databazaar.settings import check_settings, setting

if TYPE_CHECKING:
    from databazaar.learners.protocol import Market
    from databazaar.parties import Consumer
    from databazaar.training import Model, Training

MOST = 10**6


@dataclass(frozen=True)
class InRun:
    """Trains one model by one optimizer on the rows of all providers of a round together.

    The optimizer's state stays from round to round. A round takes as many steps as its rows fill batches, or more where
    the run would have few; each batch mixes rows of all drawn providers and of the buyer. The rate rises over the first
    steps and then falls along a cosine with the share of the budget that is spent.
    """

    rows: int = setting(2048, "the most rows of a provider that an access buys", at_least=1, at_most=MOST)
    batch_size: int = setting(256, "the rows of a step, of all providers", at_least=1, at_most=MOST, in_files=False)
    at_once: int = setting(1024, "the most rows that pass the model at once", at_least=1, at_most=MOST, in_files=False)
    least_steps: int = setting(
        1600, "of a run; a round goes through few rows several times for it", at_least=1, at_most=MOST, in_files=False
    )
    judged: int = setting(
        32,
        "the fewest rows of a provider that its gain is of in a large model; in a small one it is of all",
        at_least=1,
        at_most=MOST,
        in_files=False,
    )
    rate: float = setting(2e-3, "the optimizer's learning rate at its highest", above=0)
    optimizer: Literal["adam", "sgd"] = setting("adam", "adam is AdamW; sgd has momentum 0.9", in_files=False)
    shift: int = setting(0, "images are moved by up to so many pixels", at_least=0, at_most=100)
    flip: bool = setting(False, "half of the images are mirrored left to right")
    weight_decay: float = setting(0.01, "as torch.optim.AdamW and SGD have it; 0 is none", at_least=0, in_files=False)
    warm_up: int = setting(20, "the steps over which the rate rises", at_least=0, at_most=MOST, in_files=False)
    clip: float = setting(1.0, "the largest norm of a step's gradient", above=0, in_files=False)
    kind: ClassVar[str] = "in-run"
    example: ClassVar[str] = "logistic"
    models: ClassVar[None] = None
    passes: ClassVar[int] = 10
    """Two to judge it, and at most eight to learn from few rows."""

    def __post_init__(self) -> None:
        check_settings(self, f"learner {self.kind}")

    def begin(self, consumer: Consumer) -> Model:
        from databazaar.training.parameters import Parameters

        return Parameters(consumer.initial_parameters())

    def training(self, market: Market) -> Training:
        from databazaar.training.in_run import InRunTraining

        return InRunTraining.of(self, market)
