"""The hold-out in two parts, the scoring part and the control part: who gains on one alone has seen it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.learning.inputs import Examples, NamedInputs
from databazaar.learning.utilities import Evaluator
from databazaar.market.inspection.coverage import FEWEST_ROWS
from databazaar.randomness import stream

Floats = NDArray[np.float64]
MOST_ROWS = 256
"""So many rows of each part are looked at, at the most."""
FARTHEST = 1e6
"""Where the gain on a row is cut off, and how many standard errors there are at the most."""


class Halves(NamedTuple):
    """The places of the rows in each part, in their order."""

    scoring: NDArray[np.int64]
    control: NDArray[np.int64]


def halves(rows: int, seed: int) -> Halves:
    """Splits so many rows by the market's seed.

    >>> [part.tolist() for part in halves(5, seed=1)]
    [[3, 4], [0, 1, 2]]
    """
    order = stream(seed, 0, "parts").permutation(rows)
    return Halves(np.sort(order[: rows // 2]), np.sort(order[rows // 2 :]))


def committed(holdout: Examples | None, seed: int) -> dict[str, str]:
    """The SHA-256 of each part's rows, as the model gets them; nothing where there are no rows, or too few to split.

    Rows with these hashes are those that were chosen before anybody had answered, parted by the market's seed. Hashes
    do not prove that the ledger's figures were measured on these rows, nor that nobody had seen them. They reveal no
    row, but confirm all rows of a part to somebody who has them.
    """
    if holdout is None or len(holdout[1]) < 2 * FEWEST_ROWS:
        return {}
    x, y = holdout
    arrays = [*(x.tensors.items() if isinstance(x, NamedInputs) else [("x", x)]), ("y", y)]
    parts = halves(len(y), seed)._asdict()
    return {name: _digest(arrays, torch.from_numpy(places)) for name, places in parts.items()}


def _digest(arrays: Sequence[tuple[str, Tensor]], places: Tensor) -> str:
    """Of each array its name, type and shape on a line, and then its numbers, row by row."""
    found = hashlib.sha256()
    for name, tensor in arrays:
        rows = tensor.cpu()[places].contiguous()
        found.update(f"{name} {str(rows.dtype).removeprefix('torch.')} {list(rows.shape)}\n".encode())
        found.update(rows.flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()


@dataclass(frozen=True, eq=False)
class Parts:
    """The rows of both parts that are looked at: first `scoring` of them, then those of the control part."""

    evaluator: Evaluator
    places: Tensor
    scoring: int

    @classmethod
    def of(cls, evaluator: Evaluator, seed: int) -> Parts | None:
        """None where there is no hold-out that could be split: a utility of the user's own, or too few rows."""
        if not evaluator.judges_rows:
            return None
        split = halves(len(evaluator.holdout[1]), seed)
        if min(map(len, split)) < FEWEST_ROWS:
            return None
        rng = stream(seed, 1, "parts")
        few = [np.sort(rng.permutation(part)[:MOST_ROWS]) for part in split]
        places = torch.from_numpy(np.concatenate(few)).to(evaluator.holdout[1].device)
        return cls(evaluator, places, len(few[0]))

    @property
    def rows(self) -> int:
        return len(self.places)

    def gains(self, params: Tensor, moves: Tensor) -> Floats:
        """By how much each move [m, d] lessens the loss of each row: [m, rows]. NaN and ∞ become a great harm."""
        losses = self.evaluator.row_losses(torch.cat([params[None], params + moves]), self.places)
        found: Floats = (losses[:1] - losses[1:]).double().cpu().numpy()
        return np.nan_to_num(found, nan=-FARTHEST, posinf=FARTHEST, neginf=-FARTHEST).clip(-FARTHEST, FARTHEST)

    def harm(self, gains: Floats) -> Floats:
        """By how many standard errors each is worse than no move, on the part where it is worst."""
        return np.maximum(*(-_standard(part) for part in self._split(gains)))

    def difference(self, gains: Floats) -> float:
        """By how many standard errors the mean over the scoring part exceeds that over the control part."""
        one, other = self._split(gains[None])
        apart = float(one.mean() - other.mean())
        error = float(np.sqrt(one.var(ddof=1) / one.size + other.var(ddof=1) / other.size))
        return apart / error if error > 0 else 0.0

    def _split(self, gains: Floats) -> tuple[Floats, Floats]:
        return gains[:, : self.scoring], gains[:, self.scoring :]


def _standard(gains: Floats) -> Floats:
    """The mean of each row, in its standard errors. Where all rows gain or lose the same, as those do that are cut off
    at `FARTHEST`, there is no error, and no doubt."""
    mean, error = gains.mean(axis=1), gains.std(axis=1, ddof=1) / np.sqrt(gains.shape[1])
    found: Floats = np.divide(mean, error, out=FARTHEST * np.sign(mean), where=error > 0)
    return found.clip(-FARTHEST, FARTHEST)
