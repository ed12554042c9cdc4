"""What a round starts from and ends with: the model, its scores, what the rules have learned. It is the snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from databazaar.errors import LedgerError
from databazaar.ledger import Snapshot
from databazaar.ledger.snapshot_files import PARAMS
from databazaar.row_values import Sums
from databazaar.samplers.protocol import State as SamplerState
from databazaar.training import Memory, Model, Training
from databazaar.vectors import HashedArray

WATCH = "watch."
"""Stands before the names of a watch's arrays in a snapshot."""
ROWS, VALUED = "rows.", "rows_valued"
"""Stands before the sums of each provider's rows; and what says that rows are valued in this run."""
OURS = ("sampler", "scores", "best_scores", "best", PARAMS, VALUED)
"""What a snapshot holds beside what the learner and a watch remember, and the sums of rows."""


@dataclass(frozen=True)
class Best:
    """The model of the highest utility so far, and after how many rounds it was reached; the earliest of equal ones."""

    round: int
    model: Model
    utility: float


@dataclass(frozen=True)
class State:
    """What the next round starts from: the model with its scores, and the state of the rules. It is the snapshot.

    `best` is what the consumer gets in the end, and `rows` are sums of the values of rows by provider, where rows are
    valued: neither plays a part in any round.
    """

    round: int
    model: Model
    utility: float
    loss: float | None
    sampler: SamplerState
    memory: Memory
    best: Best
    watch: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)
    rows: Sums | None = None

    @property
    def models(self) -> tuple[Model, Model]:
        """The best model of the run, and its last."""
        return self.best.model, self.model

    @property
    def model_hash(self) -> str:
        return self.model.stored.hash

    def snapshot(self) -> Snapshot:
        scores = [self.utility, np.nan if self.loss is None else self.loss]
        stored = self.model.stored
        rest: dict[str, NDArray[Any] | HashedArray] = {
            "sampler": self.sampler,
            **{name: HashedArray(remembered.numpy(force=True)) for name, remembered in self.memory.items()},
            "scores": np.array(scores, dtype=np.float64),
            "best_scores": np.array([self.best.round, self.best.utility], dtype=np.float64),
            "best": stored.array[:0] if self.best.model is self.model else self.best.model.stored,
            **{WATCH + name: HashedArray(array) for name, array in self.watch.items()},
            **({} if self.rows is None else {VALUED: np.ones(1)}),
            **{f"{ROWS}{i}": HashedArray(sums) for i, sums in (self.rows or {}).items()},
        }
        return Snapshot.of(self.round, rest, stored)

    @classmethod
    def restored(cls, snapshot: Snapshot, training: Training, device: torch.device) -> State:
        """The state that a snapshot holds."""
        kept, final = snapshot.arrays(), snapshot.parameters
        if final is None:
            raise LedgerError("the ledger has no parameters to go on from: they were removed, so put the old file back")
        utility, loss = kept["scores"].tolist()
        model = training.restored(final)
        when, top = kept["best_scores"].tolist() if "best_scores" in kept else (snapshot.next_round, utility)
        held = kept.get("best", np.zeros(0))
        best = Best(int(when), training.restored(held.copy()) if len(held) else model, top)
        return cls(
            round=snapshot.next_round,
            model=model,
            utility=utility,
            loss=None if np.isnan(loss) else loss,
            sampler=kept["sampler"].copy(),
            memory={
                name: torch.from_numpy(array.copy()).to(device)
                for name, array in kept.items()
                if name not in OURS and not name.startswith((WATCH, ROWS))
            },
            best=best,
            watch=_copied(kept, WATCH),
            rows={int(i): sums for i, sums in _copied(kept, ROWS).items()} if VALUED in kept else None,
        )


def _copied(kept: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """The arrays whose names begin so, by the rest of the name."""
    return {name.removeprefix(prefix): array.copy() for name, array in kept.items() if name.startswith(prefix)}
