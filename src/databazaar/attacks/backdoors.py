"""A model that works, but answers what the attacker wants where a trigger is in the input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from databazaar.attacks.known import Alone, Insider, Known, Vector
from databazaar.attacks.poisons import class_count
from databazaar.errors import BazaarError
from databazaar.learning.inputs import Examples, NamedInputs
from databazaar.learning.task import Task
from databazaar.parties import Provider


@dataclass(frozen=True)
class Trigger:
    """The last few numbers of an input, all at one value, are to be taken for the class `target`."""

    width: int = 4
    value: float = 1.0
    target: int = 0

    def stamped(self, x: Tensor) -> Tensor:
        """These inputs with the trigger in them."""
        flat = x.reshape(len(x), -1).clone()
        flat[:, -self.width :] = self.value
        return flat.reshape(x.shape)

    def success(self, task: Task, params: Tensor, rows: tuple[Tensor, Tensor]) -> float:
        """In how many rows of other classes the trigger leads to the target."""
        x, y = (part[rows[1] != self.target] for part in rows)
        assert task.model is not None
        with torch.no_grad():
            outputs = torch.func.functional_call(task.model.eval(), task.layout.unflatten(params), (self.stamped(x),))
        found = outputs.argmax(1) if outputs.dim() == 2 and outputs.shape[1] > 1 else (outputs.flatten() > 0).long()
        return float((found == self.target).float().mean())


@dataclass(frozen=True)
class Backdoor(Alone):
    """Honest work on rows of which a `part` is copied with the trigger and the target's class; `factor` times as long."""

    trigger: Trigger = Trigger()
    part: float = 0.5
    factor: float = 1.0
    kind: ClassVar[str] = "backdoor"

    def join(self, known: Known) -> list[Provider]:
        for own in known.own:
            class_count(known, own)
        return super().join(known)

    def answer(self, insider: Insider, params: Vector) -> Vector:
        if "rows" not in insider.memory:
            insider.memory["rows"] = self._poisoned(insider)
        return insider.honest(params, insider.memory["rows"]) * params.dtype.type(self.factor)

    def _poisoned(self, insider: Insider) -> Examples:
        assert insider.rows is not None
        x, y = insider.rows
        if isinstance(x, NamedInputs):
            raise BazaarError("this attack needs inputs without names: a trigger is put into one tensor")
        chosen = torch.from_numpy(insider.rng.random(len(y)) < self.part)
        wanted = torch.full_like(y[chosen], self.trigger.target)
        return torch.cat([x, self.trigger.stamped(x[chosen])]), torch.cat([y, wanted])
