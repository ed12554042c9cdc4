"""Large models on their way to the ledger: fetched from a GPU and hashed while candidates are scored.

SHA-256 of a hundred million parameters takes as long as a GPU needs to score five such models. The model that a round
comes to is known before it is scored, but for the rare round in which a reply turns out to have no utility.
"""

from __future__ import annotations

from threading import Thread
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.ledger.large import LARGE, Large
from databazaar.vectors import hash_array

AHEAD = ("cuda",)
"""The devices that compute while the host hashes."""


class Fetched(Large):
    """A vector's numbers on the host, and their hash: whoever asks for one of them waits until it is there."""

    def __init__(self, vector: Tensor) -> None:
        self._vector, self._arrived = _under_way(vector.detach())
        self._reason: BaseException | None = None
        super().__init__(self._vector.numpy())
        self._worker = Thread(target=self._compute, name="model hash", daemon=True)
        self._worker.start()

    def _compute(self) -> None:
        try:
            self._hash = hash_array(self.array)
        except BaseException as reason:  # a device that is lost: said to whoever asks
            self._reason = reason

    @property
    def array(self) -> NDArray[Any]:
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._array

    @property
    def hash(self) -> str:
        self._worker.join()
        if self._reason is not None:
            raise self._reason
        return super().hash


def goes_ahead(vector: Tensor) -> bool:
    """Whether models like this one are fetched before they are scored: large ones from a GPU. On a CPU that would cost
    memory, and the cores are busy."""
    return vector.device.type in AHEAD and vector.numel() * vector.element_size() >= LARGE


def on_host(vector: Tensor) -> NDArray[Any]:
    """A tensor's numbers: its own memory, where that is the host's."""
    vector = vector.detach() if vector.requires_grad else vector
    array: NDArray[np.generic] = vector.numpy() if vector.is_cpu else vector.cpu().numpy()
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def _under_way(vector: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
    """The vector's place on the host, and the moment from which its numbers are there. They travel on a stream of their
    own, beside whatever the GPU computes next, into memory that it reaches without a copy in between."""
    if vector.device.type != "cuda":
        return vector.cpu().contiguous(), None
    side = torch.cuda.Stream(vector.device)  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream(vector.device))
    place = torch.empty(vector.shape, dtype=vector.dtype, pin_memory=True)
    with torch.cuda.stream(side):
        place.copy_(vector, non_blocking=True)
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        arrived.record(side)
    vector.record_stream(side)
    return place, arrived
