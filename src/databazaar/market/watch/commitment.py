"""The two parts of the hold-out as the terms name them, before the first round: by a hash of their rows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from databazaar.learning.inputs import Examples, NamedInputs
from databazaar.market.watch.needs import FEWEST_ROWS
from databazaar.market.watch.parts import halves


def committed(holdout: Examples | None, seed: int) -> dict[str, str]:
    """The SHA-256 of each part's rows, as the model gets them; nothing where there are no rows, or too few to split.

    Whoever shows rows with these hashes has shown that they are the ones that were chosen before anybody had answered,
    and that it was the market's seed that parted them: no part was picked for what it says of a provider. It does not
    prove that the figures in the ledger were measured on them, which is the arbiter's word, nor that nobody had seen
    them. No row can be read from a hash, but who has all rows of a part can tell by it that they are it, and who has
    the whole hold-out in its order knows the parts anyway, as the seed stands in the terms.
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
