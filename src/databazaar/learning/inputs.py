"""What people bring as data, as tensors: arrays, torch datasets and loaders, one input or several with names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from databazaar.errors import BazaarError


@dataclass(frozen=True, eq=False)
class NamedInputs:
    """Several tensors of one length, for a model whose forward takes them by name. Rows are taken as of one tensor."""

    tensors: Mapping[str, Tensor]

    def __len__(self) -> int:
        return len(next(iter(self.tensors.values())))

    def __getitem__(self, rows: Any) -> NamedInputs:
        return NamedInputs({name: tensor[rows] for name, tensor in self.tensors.items()})

    def to(self, device: torch.device) -> NamedInputs:
        return NamedInputs({name: tensor.to(device) for name, tensor in self.tensors.items()})

    def numel(self) -> int:
        return sum(tensor.numel() for tensor in self.tensors.values())

    @property
    def device(self) -> torch.device:
        return next(iter(self.tensors.values())).device


Inputs = Tensor | NamedInputs
Examples = tuple[Inputs, Tensor]
HOLES = "{owner}: the data hold NaN or infinity: remove or replace those rows"


def as_dataset(data: Any, owner: str) -> Examples:
    """(x, y), a torch Dataset or a DataLoader, as tensors.

    y is int64 where it holds integers (classes), else float32; classes in one column are made a plain row of them.
    x is float32, or int64 where it holds integers: `Task.inputs` says what a model makes of those. x may also be a
    dict of arrays, for a model that takes them by name: there every array keeps its kind. Missing values of x are NaN,
    which few models take: see `refuse_missing`.
    """
    x, y = _pair(data, owner)
    named = x.tensors if isinstance(x, NamedInputs) else x
    inputs = _named(named, owner) if isinstance(named, Mapping) else _plain(named, owner)
    targets = _as_tensor(y, owner)
    if targets.dim() == 0:
        raise BazaarError(f"{owner}: the targets are a single number: give one per row")
    targets = targets.to(torch.float32 if targets.is_floating_point() else torch.int64)
    if not targets.is_floating_point() and targets.dim() == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if len(inputs) == 0 or len(inputs) != len(targets):
        raise BazaarError(
            f"{owner}: {len(inputs)} rows of features and {len(targets)} targets: give one of each per row, "
            "and at least one"
        )
    parts = [part for part in (targets, *_tensors(inputs)) if part.is_floating_point()]
    if bool(torch.isnan(targets).any()) or any(bool(torch.isinf(part).any()) for part in parts):
        raise BazaarError(HOLES.format(owner=owner))
    return inputs, targets


def refuse_missing(inputs: Inputs, owner: str) -> None:
    """Refuses inputs with missing values, for a model that cannot take them."""
    if any(bool(torch.isnan(part).any()) for part in _tensors(inputs) if part.is_floating_point()):
        raise BazaarError(HOLES.format(owner=owner))


def _tensors(inputs: Inputs) -> list[Tensor]:
    return [inputs] if isinstance(inputs, Tensor) else list(inputs.tensors.values())


def as_table(data: Any, owner: str) -> tuple[Tensor, Tensor]:
    """As `as_dataset`, for the built-in models: one input, all of it floats."""
    x, y = as_dataset(data, owner)
    if isinstance(x, NamedInputs):
        raise BazaarError(f"{owner}: a built-in model takes no named inputs: give x as one array")
    return x.to(torch.float32), y


def _pair(data: Any, owner: str) -> tuple[Any, Any]:
    if isinstance(data, torch.utils.data.Dataset | torch.utils.data.DataLoader):
        data = _materialised(data, owner)
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise BazaarError(f"{owner}: data must be (x, y), a torch Dataset or a DataLoader, not {type(data).__name__}")
    return data[0], data[1]


def _materialised(data: Any, owner: str) -> Any:
    """Every sample of a dataset in its own order, collated into one batch. A loader's order and workers do not count:
    the market draws batches itself."""
    from torch.utils.data import DataLoader, IterableDataset, default_collate

    collate, rows = default_collate, None
    if isinstance(data, DataLoader):
        rows, collate, data = getattr(data.sampler, "indices", None), data.collate_fn, data.dataset
    if isinstance(data, IterableDataset) or not hasattr(data, "__len__"):
        raise BazaarError(
            f"{owner}: {type(data).__name__} is a stream without a length, and a market draws rows by number: "
            "give a map-style Dataset, or (x, y)"
        )
    try:
        return collate([data[int(row)] for row in (range(len(data)) if rows is None else rows)])
    except (TypeError, ValueError, RuntimeError, IndexError, KeyError) as reason:
        text = " ".join(str(reason).split())[:200]
        raise BazaarError(
            f"{owner}: the samples of {type(data).__name__} do not make one batch ({text}): "
            "let each be a pair (x, y) of numbers, all of one shape"
        ) from None


def _plain(x: Any, owner: str) -> Tensor:
    tensor = _as_tensor(x, owner)
    if tensor.dim() == 0:
        raise BazaarError(f"{owner}: the features are a single number: give a row for each target")
    whole = not tensor.is_floating_point() and tensor.dtype != torch.bool
    return tensor.to(torch.int64 if whole else torch.float32)


def _named(x: Mapping[Any, Any], owner: str) -> NamedInputs:
    tensors = {str(name): _as_tensor(part, owner) for name, part in x.items()}
    if not tensors or len({len(tensor) if tensor.dim() else 0 for tensor in tensors.values()}) != 1:
        raise BazaarError(f"{owner}: named inputs must all have the same number of rows, and there must be one")
    kinds = {name: tensor.dtype for name, tensor in tensors.items()}
    for name, kind in kinds.items():
        tensors[name] = tensors[name].to(
            torch.float32 if kind.is_floating_point else torch.bool if kind == torch.bool else torch.int64
        )
    return NamedInputs(tensors)


def _as_tensor(part: Any, owner: str) -> Tensor:
    if isinstance(part, Tensor):
        return part.detach()
    try:
        return torch.from_numpy(np.array(part))
    except (TypeError, ValueError) as reason:
        raise BazaarError(f"{owner}: the data are not numbers in rows ({reason}): convert them first") from None
