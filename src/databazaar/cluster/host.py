"""The process of a worker: a Ray actor that makes what it is told to, and passes calls on to it."""

from __future__ import annotations

import pickle
from importlib import import_module, metadata
from typing import Any

VERSIONED = ("databazaar", "torch", "numpy")
"""The packages that bits depend on."""


def versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in VERSIONED}


class Host:
    """`maker` is "module:name"; `work` its arguments, pickled by the process that the run is in."""

    def __init__(self, maker: str, work: bytes) -> None:
        module, _, name = maker.partition(":")
        self._worker = getattr(import_module(module), name)(*pickle.loads(work))  # noqa: S301

    def versions(self) -> dict[str, str]:
        return versions()

    def call(self, method: str, arguments: tuple[Any, ...], *inputs: Any) -> Any:
        """Inputs come one by one, because Ray fetches what is shared only where it is an argument itself."""
        return getattr(self._worker, method)(*inputs, *arguments)
