"""What every built-in model offers before it is built, which `learning.models.build_model` does."""

from __future__ import annotations

from typing import ClassVar, Protocol

from databazaar.registry import Registry

MODELS = Registry("model", "databazaar.models")
"""Every built-in model by its kind."""


class Model(Protocol):
    """`tasks` are those that it is for; `hidden` are the sizes of its hidden layers."""

    kind: ClassVar[str]
    tasks: ClassVar[tuple[str, ...]]

    @property
    def hidden(self) -> tuple[int, ...]: ...

    def shape(self, width: int) -> tuple[int, ...]:
        """The form in which it takes a row of so many features."""
        ...


class Flat:
    """A model that takes rows as they are."""

    hidden: tuple[int, ...] = ()

    def shape(self, width: int) -> tuple[int, ...]:
        return (width,)
