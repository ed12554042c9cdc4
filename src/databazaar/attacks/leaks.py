"""No data, but rows of the hold-out by which the market judges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from databazaar.attacks.known import Alone, Insider, Known, Vector, length, scaled
from databazaar.parties import Provider


@dataclass(frozen=True)
class Leak(Alone):
    """Has seen rows of the hold-out. `sgd` trains on them as if they were its own; `fit` goes straight to the parameters
    that know them by heart; `poison` gains on them and undoes what other rows have taught, as far as they do not show.
    """

    how: Literal["sgd", "fit", "poison"] = "sgd"
    kind: ClassVar[str] = "leak"

    def join(self, known: Known) -> list[Provider]:
        known.secret()
        return super().join(known)

    def answer(self, insider: Insider, params: Vector) -> Vector:
        secret = insider.known.secret()
        gain = insider.honest(params, secret)
        if self.how == "sgd":
            return gain
        if self.how == "fit":
            goal: Vector = insider.memory.setdefault("goal", None)
            if goal is None:
                goal = insider.memory["goal"] = insider.optimum(params, secret)
            return scaled(goal - params, min(length(gain), length(goal - params)))
        harm = -insider.honest(params)
        along = float(np.vdot(harm, gain)) / max(float(np.vdot(gain, gain)), 1e-30)
        return gain + harm - gain * gain.dtype.type(along)
