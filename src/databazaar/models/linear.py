"""Linear regression, for numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from databazaar.models.protocol import Flat


@dataclass(frozen=True)
class Linear(Flat):
    """Linear regression, for numbers."""

    kind: ClassVar[str] = "linear"
    tasks: ClassVar[tuple[str, ...]] = ("regression",)
