"""A sampler as a stranger would write it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from databazaar import OSMD
from databazaar.samplers import SAMPLERS, Wants


@SAMPLERS.register
@dataclass(frozen=True)
class Valued(OSMD):
    """OSMD that learns from Shapley gains."""

    eta: float = 3.0
    alpha: float = 0.05
    kind: ClassVar[str] = "test-shapley"
    wants: ClassVar[Wants] = Wants(gains="shapley")
