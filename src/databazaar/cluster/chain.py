"""Answers that stay with the workers: each adds its own to a sum and hands it on, and only the sum comes back.

To the same bits with any number of workers, because numbers are added in the order that was asked for, whoever has
them: a sum travels as often as the next to be added lies with another worker. So a worker is given what stands next to
what it has. One that dies takes what it holds along: that is computed anew, and the sum begun again.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from databazaar.cluster.settings import Answered, Gathered, Gathering
from databazaar.cluster.todo import Inputs, Tell, Worker

Place = tuple[str, int | None]


class Chain:
    """A gathering on its way: everything is held by somebody, then added up, then looked at."""

    def __init__(self, ray: Any, gathering: Gathering, inputs: Inputs, output: NDArray[Any], tell: Tell) -> None:
        self._ray, self._gathering, self._inputs, self._output, self._tell = ray, gathering, inputs, output, tell
        self._keys = list(dict.fromkeys(gathering.order))
        self._missing = set(self._keys)
        self._computing: set[int | None] = set()
        self._asked: set[Worker] = set()
        self._holder: dict[int, Worker] = {}
        self._said: dict[int, Any] = {}
        self._sum: Any = None
        self._added, self._adding = 0, False
        self._total: Any = None
        self._unseen = set(gathering.looks)
        self._looking: set[int | None] = set()
        self._looks: dict[int | None, Any] = {}
        self.done = False

    @property
    def calls(self) -> int:
        return max(1, len(self._missing) + len(self._computing))

    def take(self, worker: Worker) -> tuple[Hashable, Any] | None:
        self._asked.add(worker)
        if self._missing:
            return self._hold(worker)
        if self._computing or self._adding:
            return None
        return self._add(worker) if self._total is None else self._look(worker)

    def _hold(self, worker: Worker) -> tuple[Place, Any]:
        own = [place for place, key in enumerate(self._keys) if self._holder.get(key) is worker]
        taken = [place for place, key in enumerate(self._keys) if key not in self._missing]
        key = self._keys[nearest(own, taken, [place for place, key in enumerate(self._keys) if key in self._missing])]
        self._missing.discard(key)
        self._computing.add(key)
        self._holder[key] = worker
        call = self._gathering.holds[key]
        arguments = self._gathering.name, key, *call.arguments
        return ("hold", key), worker.call("hold", arguments, *(self._inputs[i] for i in call.inputs))

    @property
    def _order(self) -> list[int]:
        """What is added: a string is nothing to add."""
        return [key for key in self._gathering.order if not isinstance(self._said[key], str)]

    def _add(self, worker: Worker) -> tuple[Place, Any] | None:
        keys = run_of(self._order, self._holder, worker, self._added)
        if not keys:
            return None
        self._adding = True
        done, self._sum = worker.add((self._gathering.name, keys), *([] if self._sum is None else [self._sum]))
        self._added += len(keys)
        return ("add", self._added), done

    def _look(self, worker: Worker) -> tuple[Place, Any] | None:
        own = sorted(key for key in self._unseen - self._looking if key is not None and self._holder[key] is worker)
        free = [None] if None in self._unseen - self._looking else []
        for key in (*own, *free):
            self._looking.add(key)
            call = self._gathering.looks[key]
            arguments = self._gathering.name, key, len(self._order), *call.arguments
            return ("look", key), worker.call("look", arguments, self._total, *(self._inputs[i] for i in call.inputs))
        return None

    def answered(self, worker: Worker, place: Place, value: Any) -> None:
        kind, key = place
        if kind == "hold":
            assert key is not None
            self._computing.discard(key)
            self._said[key] = value
            if isinstance(value, str):
                self._unseen.discard(key)
            if not self._missing and not self._computing and not self._order:
                self._end()
        elif kind == "add":
            self._adding = False
            if self._added == len(self._order):
                np.copyto(self._output[0], self._ray.get(self._sum))
                self._total = self._sum
        else:
            self._looking.discard(key)
            self._unseen.discard(key)
            self._looks[key] = value
            if not self._unseen:
                self._end()

    def _end(self) -> None:
        for worker in self._asked:
            worker.call("let_go", ())
        self.done = True
        self._tell(Answered(0, Gathered(self._said, self._looks)))

    def lost(self, worker: Worker, place: Place) -> None:
        kind, key = place
        self._asked.discard(worker)
        if kind == "hold":
            self._computing.discard(key)
        if kind == "look":
            self._looking.discard(key)
            self._total = self._ray.put(self._output[0])  # what was lost with a machine is here
        if self._total is None:
            self._sum, self._added, self._adding = None, 0, False
        for own in [key for key, holder in self._holder.items() if holder is worker]:
            del self._holder[own]
            nothing = isinstance(self._said.get(own), str)
            if not nothing and (self._total is None or own in self._unseen):
                self._missing.add(own)


def nearest(own: Collection[int], taken: Collection[int], missing: Sequence[int]) -> int:
    """Of the missing places: the next after one's own, or before; else that which is farthest from all that are taken.

    >>> nearest([], [], range(6)), nearest([], [0], range(1, 6)), nearest([0], [0, 5], range(1, 5))
    (0, 5, 1)
    """
    for beside in (1, -1):
        found = [place for place in missing if place - beside in own]
        if found:
            return found[0]
    return max(missing, key=lambda place: (min((abs(place - other) for other in taken), default=0), -place))


def run_of(order: Sequence[int], holder: dict[int, Worker], worker: Worker, first: int) -> list[int]:
    """The keys from this place on that a worker holds without a gap."""
    last = first
    while last < len(order) and holder[order[last]] is worker:
        last += 1
    return list(order[first:last])
