"""Chances that are worked out once a round: the draw, the ledger and the update all ask for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from databazaar.roster import Purse
from databazaar.samplers.protocol import Vector

Probabilities = Callable[[Any, Vector, Purse], Vector]


def remembered(probabilities: Probabilities) -> Probabilities:
    """The same function, which knows its last answer: for the same purse, and a state that is equal to the last bit."""

    @wraps(probabilities)
    def once(sampler: Any, state: Vector, purse: Purse) -> Vector:
        last = sampler.__dict__.get("_remembered")
        if last is not None and last[0] is purse and np.array_equal(last[1], state):
            kept: Vector = last[2].copy()
            return kept
        found = probabilities(sampler, state, purse)
        object.__setattr__(sampler, "_remembered", (purse, state.copy(), found.copy()))
        return found

    return once
