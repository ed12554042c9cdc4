"""Oracles: which rows an ask goes through, and how it moves the model over them. One a file."""

from typing import Any

from databazaar.oracles.full_gradient import FullGradient
from databazaar.oracles.local_sgd import LocalSGD
from databazaar.oracles.protocol import ORACLES, Batches
from databazaar.oracles.stochastic_gradient import StochasticGradient
from databazaar.settings import declared

Oracle = FullGradient | StochasticGradient | LocalSGD

__all__ = ["ORACLES", "Batches", "FullGradient", "LocalSGD", "Oracle", "StochasticGradient", "build_oracle"]


def build_oracle(kind: str, **settings: Any) -> Oracle:
    """An oracle by name, with those of the settings that it has a use for.

    >>> build_oracle("stochastic-gradient", batch_size=5, step=0.1)
    StochasticGradient(batch_size=5)
    """
    used = {one.name for one in declared(ORACLES.find(kind))}
    oracle: Oracle = ORACLES.build({"kind": kind, **{name: settings[name] for name in used if name in settings}})
    return oracle
