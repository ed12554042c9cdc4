"""Where entries are kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from databazaar.ledger.chain import Entry


@dataclass(frozen=True)
class Snapshot:
    """What the next round starts from: the state of the rules, and the parameters. Replaced every round.

    Both are safetensors (in format 1, the state is the sampler's alone, as plain float64). The parameters are dropped
    when the run is closed and its model is saved.
    """

    next_round: int
    state: bytes
    params: bytes


class Store(Protocol):
    """`append` writes all of it or nothing. A durable store outlives the process."""

    durable: bool

    def append(self, entries: Sequence[Entry], snapshot: Snapshot | None) -> None: ...

    def entries(self) -> Iterator[Entry]: ...

    def snapshot(self) -> Snapshot | None: ...

    def finish(self) -> None:
        """Called once the run is closed and its model is saved elsewhere: what only a resume needs may go."""
        ...

    def dispose(self) -> None:
        """Let go of what the store holds open; what was appended stays."""
        ...


class MemoryStore(Store):
    """Entries in a list: for runs that need no folder."""

    durable = False

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._snapshot: Snapshot | None = None

    def append(self, entries: Sequence[Entry], snapshot: Snapshot | None) -> None:
        self._entries.extend(entries)
        self._snapshot = snapshot or self._snapshot

    def entries(self) -> Iterator[Entry]:
        return iter(self._entries)

    def snapshot(self) -> Snapshot | None:
        return self._snapshot

    def finish(self) -> None:
        """Nothing to do: it ends with the process."""

    def dispose(self) -> None:
        """Nothing to do: nothing is held open."""
