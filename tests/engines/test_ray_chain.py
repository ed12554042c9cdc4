"""Sums that workers hand on, with workers that die at any call: as if everything had been added here, in order."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from databazaar.cluster.chain import Chain
from databazaar.cluster.settings import Answered, Call, Gathered, Gathering, SharedArray
from databazaar.cluster.todo import Worker

NUMBERS = [1.0, 1e16, -1e16, 3.0, 0.1, -7e15, 2.5]
"""Of which any two orders have other sums."""


class DeceasedError(Exception):
    pass


class Store:
    """Stands for Ray's: what is put is got."""

    def put(self, value: Any) -> Any:
        return np.array(value)

    def get(self, value: Any) -> Any:
        if value is None:
            raise DeceasedError
        return value


class Holder(Worker):
    """A worker in this process, that may be dead and takes what it holds along. Key 0 is nothing to add."""

    def __init__(self) -> None:
        self.alive, self.held = True, dict[int, float]()

    def call(self, method: str, arguments: tuple[Any, ...], *inputs: Any) -> Any:
        return getattr(self, f"_{method}")(*inputs, *arguments) if self.alive else None

    def _hold(self, name: str, key: int) -> str | float:
        if key == 0:
            return "nothing"
        self.held[key] = NUMBERS[key]
        return NUMBERS[key]

    def add(self, arguments: tuple[Any, ...], *inputs: Any) -> tuple[Any, Any]:
        if not self.alive:
            return None, None
        total = inputs[0] if inputs else np.zeros(1)
        for key in arguments[1]:
            total = total + self.held[key]
        return "done", total

    def _look(self, total: Any, name: str, key: int | None, count: int) -> tuple[float, int, float | None]:
        return float(total[0]), count, None if key is None else self.held[key]

    def _let_go(self) -> None:
        self.held.clear()


@given(
    order=st.lists(st.integers(0, len(NUMBERS) - 1), min_size=1, max_size=9),
    together=st.booleans(),
    workers=st.integers(1, 4),
    data=st.data(),
)
def test_whoever_holds_what_and_dies_when_the_sum_is_in_order(
    order: list[int], together: bool, workers: int, data: st.DataObject
) -> None:
    looks: dict[int | None, Call] = {key: Call((), ()) for key in [None, *(set(order) if together else ())]}
    holds = {key: Call((), ()) for key in set(order)}
    told, output, store = list[Answered](), np.full((1, 1), np.nan), Store()
    shared = SharedArray.__new__(SharedArray)  # not looked at here
    chain = Chain(store, Gathering("name", (), holds, tuple(order), looks, shared), {}, output, told.append)
    idle, running, deaths = list[Holder](), list[tuple[Holder, Any, Any]](), 6
    for _ in range(500):
        if chain.done:
            break
        idle += [Holder() for _ in range(min(workers, chain.calls) - len(idle) - len(running))]
        for worker in list(idle):
            if (taken := chain.take(worker)) is not None:
                idle.remove(worker)
                running.append((worker, *taken))
        victims = [*idle, *(worker for worker, *_ in running)]
        if deaths and data.draw(st.booleans()):
            deaths -= 1
            data.draw(st.sampled_from(victims)).alive = False
        worker, place, answer = running.pop(data.draw(st.integers(0, len(running) - 1)))
        try:
            if not worker.alive:
                raise DeceasedError
            chain.answered(worker, place, store.get(answer))
            idle.append(worker)
        except DeceasedError:
            chain.lost(worker, place)
    (answered,) = told
    assert isinstance(answered.answer, Gathered)
    good = [key for key in order if key]
    assert answered.answer.holds == {key: NUMBERS[key] if key else "nothing" for key in order}
    if not good:
        assert answered.answer.looks == {}
        return
    total = 0.0
    for key in good:
        total += NUMBERS[key]
    assert output[0, 0] == total
    seen = {key: (total, len(good), NUMBERS[key]) for key in good} if together else {}
    looked = dict(answered.answer.looks)
    assert looked.pop(None) == (total, len(good), None)
    assert looked == seen
    assert not any(worker.held for worker in idle if worker.alive)
