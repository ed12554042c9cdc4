"""No data, but rows of the hold-out by which the market judges."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from databazaar.parties import Provider
from databazaar_experiments.attacks.known import Alone, Insider, Known, Vector, length, scaled, together


@dataclass(frozen=True)
class Leak(Alone):
    """Has seen rows of the hold-out. `sgd` trains on them as if they were its own, `own` on them and its own; `fit`
    goes straight to parameters that know them by heart; `poison` gains on them, and undoes what other rows have taught
    as far as they do not show it."""

    how: Literal["sgd", "own", "fit", "poison"] = "sgd"
    kind: ClassVar[str] = "leak"

    def join(self, known: Known) -> list[Provider]:
        secret = known.secret()
        if self.how == "sgd":
            return [replace(own, data=secret) for own in known.own]
        if self.how == "own":
            return [replace(own, data=together(known.rows(own.dataset), secret)) for own in known.own]
        return super().join(known)

    def answer(self, insider: Insider, params: Vector) -> Vector:
        secret = insider.known.secret()
        gain = insider.honest(params, secret)
        if self.how == "fit":
            if "goal" not in insider.memory:
                insider.memory["goal"] = insider.optimum(params, secret)
            goal: Vector = insider.memory["goal"]
            return scaled(goal - params, min(length(gain), length(goal - params)))
        harm = -insider.honest(params)
        along = float(np.vdot(harm, gain)) / max(float(np.vdot(gain, gain)), 1e-30)
        return gain + harm - gain * along
