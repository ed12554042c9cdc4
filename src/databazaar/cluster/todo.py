"""What a pool of workers has to do: who is given which call, and what becomes of an answer or of a death."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Protocol

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

    def add(self, arguments: tuple[Any, ...], *inputs: Any) -> tuple[Any, Any]:
        """The same for a sum, of which a first answer says that the second is there."""
        done, total = self.actor.add.options(num_returns=2).remote(arguments, *inputs)
        return done, total


class Todo(Protocol):
    """One request on its way."""

    @property
    def done(self) -> bool:
        """Whether all that was asked for has been told."""

    @property
    def calls(self) -> int:
        """How many workers could be busy now."""

    def take(self, worker: Worker) -> tuple[Hashable, Any] | None:
        """Sends a call to a worker that is idle: what it is called here, and what stands for its answer."""

    def answered(self, worker: Worker, place: Any, value: Any) -> None:
        """Takes an answer."""

    def lost(self, worker: Worker, place: Any) -> None:
        """A worker has died of a call, or before."""


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

    def take(self, worker: Worker) -> tuple[Hashable, Any] | None:
        if not self._waiting:
            return None
        place = self._waiting.popleft()
        call = self._request.calls[place]
        return place, worker.call(self._request.method, call.arguments, *(self._inputs[i] for i in call.inputs))

    def answered(self, worker: Worker, place: int, value: Any) -> None:
        self._left -= 1
        if isinstance(value, np.ndarray):
            np.copyto(self._output[place], value)
            value = None
        self._tell(Answered(place, value))

    def lost(self, worker: Worker, place: int) -> None:
        self._waiting.appendleft(place)
