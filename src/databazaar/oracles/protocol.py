"""What every oracle offers."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from databazaar.registry import Registry

ORACLES = Registry("oracle", "databazaar.oracles")
"""Every oracle by its kind."""

MOST_STEPS = 10**6
OptimizerKind = Literal["sgd", "adam"]
Batches = NDArray[np.int64]
"""Which samples each step uses: [steps, batch size], a short batch filled up with −1."""
