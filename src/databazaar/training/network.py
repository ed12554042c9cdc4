"""A torch model whose parameters, and the buffers that training changes, lie in one vector: its losses row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from databazaar.learning.inputs import Examples, Inputs
from databazaar.learning.models import Layout, caller
from databazaar.learning.task import Task


@dataclass(frozen=True, eq=False)
class Network:
    """At most `at_once` rows pass the model at once. The first numbers of a vector are trained, the others buffers."""

    task: Task
    at_once: int

    @property
    def module(self) -> nn.Module:
        assert self.task.model is not None
        return self.task.model

    @cached_property
    def trained(self) -> int:
        """How many numbers of a vector are trained."""
        return sum(self._layout.sizes[: self._layout.trainable])

    def run(self, trained: Tensor, params: Tensor, x: Inputs, counters: Mapping[str, Tensor]) -> Tensor:
        """The outputs with these trained parameters, and with the buffers of `params`."""
        layout, named = self._layout, self._layout.unflatten(params)
        pieces = torch.split(trained, layout.sizes[: layout.trainable])
        for name, piece, shape in zip(layout.names, pieces, layout.shapes, strict=False):
            named[name] = piece.view(shape)
        return self._call({**counters, **named}, x)

    def each(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Each row's loss by its outputs; the mean, where a row has several targets."""
        losses: Tensor = self.task.loss(outputs.to(torch.float32), targets)
        return losses.flatten(1).mean(1) if losses.dim() > 1 else losses

    def losses(self, trained: Tensor, params: Tensor, rows: Examples) -> Tensor:
        """Each row's loss, by the model as it predicts."""
        self.module.eval()
        return self.each(self.run(trained, params, rows[0], {}), rows[1])

    @torch.no_grad()
    def row_losses(self, params: Tensor, rows: Examples) -> Tensor:
        """The same without derivatives, of any number of rows."""
        return torch.cat([self.losses(params[: self.trained], params, piece) for piece in self.pieces(rows)])

    def mean_loss(self, params: Tensor, rows: Examples) -> float:
        return float(self.row_losses(params, rows).double().mean())

    def pieces(self, rows: Examples) -> Iterator[Examples]:
        """Rows, as many as may pass the model at once."""
        x, y = rows
        for at in range(0, len(y), self.at_once):
            yield x[at : at + self.at_once], y[at : at + self.at_once]

    @cached_property
    def _call(self) -> Callable[[dict[str, Tensor], Inputs], Tensor]:
        return caller(self.module)

    @cached_property
    def _layout(self) -> Layout:
        return self.task.layout
