"""What a pool of workers has to do: who is given which call, and what becomes of an answer or of a death."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from databazaar.cluster.settings import Answered, Request

Tell = Callable[[Answered], None]
Inputs = Mapping[int | str, Any]
"""What stands for a request's inputs by their places, and by name for what is kept."""


class Worker:
    """One of them: itself alone is equal to it."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def call(self, method: str, arguments: tuple[Any, ...], *inputs: Any) -> Any:
        """Sends a call; what is returned stands for the answer."""
        return self.actor.call.remote(method, arguments, *inputs)


class Heap:
    """Calls that whoever is free takes from; each answer is told when it comes."""

    def __init__(self, request: Request, inputs: Inputs, output: NDArray[Any], tell: Tell) -> None:
        self._request, self._inputs, self._output, self._tell = request, inputs, output, tell
        self._waiting, self._left = deque(request.calls), len(request.calls)

    @property
    def done(self) -> bool:
        return not self._left

    @property
    def calls(self) -> int:
        return self._left

    def take(self, worker: Worker) -> tuple[int, Any] | None:
        """Sends a call to a worker that is idle: its place, and what stands for its answer."""
        if not self._waiting:
            return None
        place = self._waiting.popleft()
        call = self._request.calls[place]
        return place, worker.call(self._request.method, call.arguments, *(self._inputs[i] for i in call.inputs))

    def answered(self, place: int, value: Any) -> None:
        self._left -= 1
        if isinstance(value, np.ndarray):
            np.copyto(self._output[place], value)
            value = None
        self._tell(Answered(place, value))

    def lost(self, place: int) -> None:
        """A worker has died of this call, or before."""
        self._waiting.appendleft(place)
