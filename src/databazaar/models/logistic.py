"""Logistic regression, for classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from databazaar.models.protocol import Flat


@dataclass(frozen=True)
class Logistic(Flat):
    """Logistic regression, for classes."""

    kind: ClassVar[str] = "logistic"
    tasks: ClassVar[tuple[str, ...]] = ("classification",)
