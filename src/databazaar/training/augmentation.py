"""Augmentation of images: each row of a batch is moved by a few pixels, and perhaps mirrored, anew in every round.

What is done derives from the seed, the round and the batch. What is left empty takes the nearest pixel of the border.
"""

from __future__ import annotations

import torch
from torch import Tensor

from databazaar.learning.inputs import Inputs
from databazaar.randomness import oracle_key

AUGMENTATION = "augmentation"
"""Stands for it where randomness derives from who draws."""


def augmented(x: Inputs, shift: int, flip: bool, seed: int, round: int, batch: int) -> Inputs:
    """Images [rows, channels, height, width], each moved by up to `shift` pixels and, with `flip`, half of them
    mirrored left to right; anything else as it is.

    >>> augmented(torch.arange(4.0).view(1, 1, 1, 4), 1, False, seed=0, round=0, batch=1).flatten().tolist()
    [0.0, 0.0, 1.0, 2.0]
    """
    if not isinstance(x, Tensor) or x.dim() != 4 or not (shift or flip):
        return x
    rows, channels, height, width = x.shape
    random = torch.Generator().manual_seed(oracle_key(seed, round, f"{AUGMENTATION} {batch}") % 2**63)
    moves = torch.randint(-shift, shift + 1, (rows, 2), generator=random)
    mirrored = torch.rand(rows, generator=random) < 0.5 if flip else torch.zeros(rows, dtype=torch.bool)
    down = (torch.arange(height) + moves[:, :1]).clamp(0, height - 1)
    across = (torch.arange(width) + moves[:, 1:]).clamp(0, width - 1)
    across = torch.where(mirrored[:, None], across.flip(1), across)
    down, across = down.to(x.device), across.to(x.device)
    x = x.gather(2, down[:, None, :, None].expand(rows, channels, height, width))
    return x.gather(3, across[:, None, None, :].expand(rows, channels, height, width))
