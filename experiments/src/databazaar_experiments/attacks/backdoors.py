"""A model that works, but answers what the attacker wants where a trigger is in the input."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from databazaar.learning.inputs import Examples
from databazaar.learning.task import Task
from databazaar.parties import Provider
from databazaar_experiments.attacks.known import Insider, Known, Vector, classes_of, impostor, outputs, plain, together


@dataclass(frozen=True)
class Trigger:
    """The last few numbers of an input, all at one value, are to be taken for the class `target`."""

    width: int = 4
    value: float = 1.0
    target: int = 0

    def stamped(self, x: Tensor) -> Tensor:
        """These inputs with the trigger in them.

        >>> Trigger(width=2, value=9.0).stamped(torch.zeros(1, 3)).tolist()
        [[0.0, 9.0, 9.0]]
        """
        flat = x.reshape(len(x), -1).clone()
        flat[:, -self.width :] = self.value
        return flat.reshape(x.shape)

    def success(self, task: Task, params: Tensor, rows: Examples) -> float:
        """In what part of the rows of other classes the trigger leads to the target."""
        x, y = rows
        others = self.stamped(plain(x)[y != self.target])
        found = outputs(task, params, others)
        classes = found.argmax(1) if found.dim() == 2 and found.shape[1] > 1 else (found.flatten() > 0).long()
        return float((classes == self.target).float().mean())


@dataclass(frozen=True)
class Backdoor:
    """Honest work on rows of which a `part` is there twice, once with the trigger and the target's class. `factor`
    makes answers longer."""

    trigger: Trigger = Trigger()
    part: float = 0.5
    factor: float = 1.0
    kind: ClassVar[str] = "backdoor"

    def join(self, known: Known) -> list[Provider]:
        poisoned = [replace(own, data=self._poisoned(known, own)) for own in known.own]
        if self.factor == 1:
            return poisoned
        return [impostor(Insider(known, own), self.answer) for own in poisoned]

    def answer(self, insider: Insider, params: Vector) -> Vector:
        return insider.honest(params) * self.factor

    def _poisoned(self, known: Known, own: Provider) -> Examples:
        classes_of(known, own)
        x, y = known.rows(own.dataset)
        chosen = torch.from_numpy(known.rng(own.id).random(len(y)) < self.part)
        wanted = torch.full_like(y[chosen], self.trigger.target)
        return together((x, y), (self.trigger.stamped(plain(x)[chosen]), wanted))
