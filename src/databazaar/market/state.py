"""What a round starts from and ends with: the model, its scores, what the rules have learned. It is the snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.errors import LedgerError
from databazaar.ledger import Snapshot
from databazaar.ledger.snapshot_files import PARAMS, HashedArray
from databazaar.samplers.protocol import State as SamplerState
from databazaar.training import Memory

OURS = ("sampler", "scores", "best_scores", "best", PARAMS)
"""What a snapshot holds beside what the learner and a watch remember."""
WATCH = "watch."
"""Stands before the names of a watch's arrays in a snapshot."""


def on_host(vector: Tensor) -> NDArray[Any]:
    """A tensor's numbers: its own memory, where that is the host's."""
    vector = vector.detach() if vector.requires_grad else vector
    array: NDArray[np.generic] = vector.numpy() if vector.is_cpu else vector.cpu().numpy()
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


@dataclass(frozen=True)
class Best:
    """The model of the highest utility so far, and after how many rounds it was reached; the earliest of equal ones."""

    round: int
    params: Tensor
    utility: float

    @cached_property
    def model(self) -> HashedArray:
        """The parameters on the host, and their hash: computed once for as long as this is the best."""
        return HashedArray(on_host(self.params))


@dataclass(frozen=True)
class State:
    """What the next round starts from: the model with its scores, and the state of the rules. It is the snapshot.

    `best` is what the consumer gets in the end: it plays no part in any round.
    """

    round: int
    params: Tensor
    utility: float
    loss: float | None
    sampler: SamplerState
    memory: Memory
    best: Best
    watch: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)

    @cached_property
    def model(self) -> HashedArray:
        """The parameters on the host, and their hash, which the ledger and the snapshot share."""
        return self.best.model if self.best.params is self.params else HashedArray(on_host(self.params))

    @property
    def models(self) -> tuple[Tensor, Tensor]:
        """The parameters of the best model of the run, and of its last."""
        return self.best.params, self.params

    @property
    def model_hash(self) -> str:
        return self.model.hash

    def snapshot(self) -> Snapshot:
        scores = [self.utility, np.nan if self.loss is None else self.loss]
        here = self.best.params is self.params
        rest: dict[str, NDArray[Any] | HashedArray] = {
            "sampler": self.sampler,
            **{name: self._kept(array) for name, array in self.memory.items()},
            "scores": np.array(scores, dtype=np.float64),
            "best_scores": np.array([self.best.round, self.best.utility], dtype=np.float64),
            "best": self.model.array[:0] if here else self.best.model,
            **{WATCH + name: HashedArray(array) for name, array in self.watch.items()},
        }
        return Snapshot.of(self.round, rest, self.model)

    def _kept(self, remembered: Tensor) -> NDArray[Any] | HashedArray:
        nothing = remembered.shape == (0,) and remembered.dtype is self.params.dtype
        return self.model.array[:0] if nothing else HashedArray(on_host(remembered))

    @classmethod
    def restored(cls, snapshot: Snapshot, like: Tensor) -> State:
        """The state that a snapshot holds, on the device of `like`."""
        kept, final = snapshot.arrays(), snapshot.parameters
        if final is None:
            raise LedgerError("the ledger has no parameters to go on from: they were removed, so put the old file back")
        utility, loss = kept["scores"].tolist()
        params = torch.from_numpy(final).to(like)
        when, top = kept["best_scores"].tolist() if "best_scores" in kept else (snapshot.next_round, utility)
        held = kept.get("best", np.zeros(0))
        best = Best(int(when), torch.from_numpy(held.copy()).to(like) if len(held) else params, top)
        return cls(
            round=snapshot.next_round,
            params=params,
            utility=utility,
            loss=None if np.isnan(loss) else loss,
            sampler=kept["sampler"].copy(),
            memory={
                name: torch.from_numpy(array.copy()).to(like)
                for name, array in kept.items()
                if name not in OURS and not name.startswith(WATCH)
            },
            best=best,
            watch={name.removeprefix(WATCH): array.copy() for name, array in kept.items() if name.startswith(WATCH)},
        )
