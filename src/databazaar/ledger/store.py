"""Where entries are kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from databazaar.ledger.chain import Entry
from databazaar.ledger.snapshot_files import PARAMS, is_large
from databazaar.vectors import HashedArray, hash_packed, pack, unpack


@dataclass(frozen=True)
class Snapshot:
    """What the next round starts from: the state of the rules, and the parameters. Replaced every round.

    Both are safetensors, but for arrays that are `large`: a store that has a folder keeps these in files of their own.
    The parameters are dropped when the run is closed and its model is saved.
    """

    next_round: int
    state: bytes
    params: bytes
    large: Mapping[str, HashedArray] = field(default_factory=dict)

    @classmethod
    def of(cls, next_round: int, state: Mapping[str, NDArray[Any] | HashedArray], params: HashedArray) -> Snapshot:
        """With a large model, those arrays of the state that may be as large (a `HashedArray` each) leave too."""
        large: dict[str, HashedArray] = {}
        if is_large(params.array):
            large = {name: one for name, one in state.items() if isinstance(one, HashedArray) and is_large(one.array)}
            large[PARAMS] = params
        small = {
            name: one.array if isinstance(one, HashedArray) else one for name, one in state.items() if name not in large
        }
        return cls(next_round, pack(small), b"" if large else pack({"w": params.array}), large)

    def arrays(self) -> dict[str, NDArray[Any]]:
        large = {name: one.array for name, one in self.large.items() if name != PARAMS}
        return {**unpack(self.state), **large}

    @property
    def parameters(self) -> NDArray[Any] | None:
        """The model's vector; None once it was dropped."""
        if PARAMS in self.large:
            return self.large[PARAMS].array
        return np.concatenate([array.reshape(-1) for array in unpack(self.params).values()]) if self.params else None

    @property
    def model_hash(self) -> str | None:
        if PARAMS in self.large:
            return self.large[PARAMS].hash
        return hash_packed(self.params) if self.params else None

    def packed(self) -> Snapshot:
        """The same in bytes alone, for a database without a folder beside it."""
        if not self.large:
            return self
        return Snapshot(self.next_round, pack(self.arrays()), pack({"w": self.large[PARAMS].array}))


class Store(Protocol):
    """`append` writes all of it or nothing. A durable store outlives the process."""

    durable: bool

    def append(self, entries: Sequence[Entry], snapshot: Snapshot | None) -> None: ...

    def entries(self) -> Iterator[Entry]: ...

    def snapshot(self) -> Snapshot | None: ...

    def finish(self) -> None:
        """Called once the run is closed and its model is saved elsewhere: what only a resume needs may go."""
        return None

    def dispose(self) -> None:
        """Let go of what the store holds open; what was appended stays."""
        return None


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
