"""What of a model travels, and what stays where it is.

Trained parameters travel: from the market to providers and back, into scores, hashes and snapshots. So do the buffers
that training changes, such as a batch norm's running mean. Frozen parameters (requires_grad=False) and other buffers
(positional tables, rotary frequencies) are the same for everybody and in every round, so each copy of the module keeps
them, and the ledger's first entry holds one digest of them all.

Which buffers training changes is known of torch's norm layers. Of any other layer it is tried: the consumer's model
passes a few rows once, and what it has written to is noted on the module, from where `Layout` and every copy have it.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from databazaar.errors import BazaarError

MARK = "changed_buffers"
"""Under this name a module holds which of its buffers its own forward pass was seen to change."""


def moving_buffers(model: nn.Module) -> list[tuple[str, Tensor]]:
    """The floating-point buffers that training changes."""
    marked = vars(model).get(MARK, ())
    return [
        (name, buffer)
        for name, layer, buffer in _floating_buffers(model)
        if isinstance(layer, _NormBase) or name in marked
    ]


def _floating_buffers(model: nn.Module) -> Iterator[tuple[str, nn.Module, Tensor]]:
    """In the order of `model.named_buffers()`, each once, with the layer that holds it."""
    layers = dict(model.named_modules())
    for name, buffer in model.named_buffers():
        if buffer.is_floating_point():
            yield name, layers[name.rpartition(".")[0]], buffer


class StayingBuffers:
    """The buffers of a module that do not travel, to see whether any was changed since."""

    def __init__(self, model: nn.Module) -> None:
        travels = {name for name, _ in moving_buffers(model)}
        self._seen = {
            name: (layer, buffer, buffer._version)
            for name, layer, buffer in _floating_buffers(model)
            if name not in travels
        }

    def __len__(self) -> int:
        return len(self._seen)

    def replaced(self) -> list[str]:
        """Those for which another tensor was put in place."""
        return [name for name, (layer, buffer, _) in self._seen.items() if _own(layer, name) is not buffer]

    def written(self) -> list[str]:
        """Those that were written to in place."""
        return [name for name, (_, buffer, version) in self._seen.items() if buffer._version != version]

    def refuse_change(self) -> None:
        for name in (*self.replaced(), *self.written()):
            raise BazaarError(
                f"the model changes its buffer {name!r} as it trains, and that does not travel: write to it in place "
                "from the first forward pass on, or make it a norm layer's statistic or a parameter"
            )


def _own(layer: nn.Module, name: str) -> Tensor | None:
    return layer._buffers.get(name.rpartition(".")[2])


def note_changed_buffers(model: nn.Module, run: Callable[[nn.Module], object]) -> None:
    """Lets those buffers travel that `run`, a forward pass of a copy of the model, writes to.

    One that is replaced by another tensor is refused: what a forward pass puts in place is lost when it ends.
    """
    if not StayingBuffers(model):
        return
    tried = lean_copy(model, {name for name, _ in model.named_buffers()}).train()
    staying = StayingBuffers(tried)
    run(tried)
    for name in staying.replaced():
        raise BazaarError(
            f"the model replaces its buffer {name!r} as it trains, and that would be lost: write to it in place, as "
            f"self.{name.rpartition('.')[2]}.copy_(…), or make it a norm layer's statistic or a parameter"
        )
    if written := staying.written():
        vars(model)[MARK] = (*vars(model).get(MARK, ()), *written)


def kept_tensors(model: nn.Module, travelling: Collection[str]) -> list[tuple[str, Tensor]]:
    """The frozen parameters and buffers of a module, without those that it derives anew whenever it is built."""
    derived = {
        f"{prefix}.{name}" if prefix else name
        for prefix, layer in model.named_modules()
        for name in layer._non_persistent_buffers_set
    }
    buffers = ((name, buffer) for name, _, buffer in _floating_buffers(model) if name not in derived)
    return [(name, one) for name, one in (*model.named_parameters(), *buffers) if name not in travelling]


def frozen_digest(model: nn.Module, travelling: Collection[str]) -> str:
    """SHA-256 of all that stays: names, types, shapes and bytes; "" where everything travels."""
    kept = kept_tensors(model, travelling)
    if not kept:
        return ""
    digest = hashlib.sha256()
    for name, tensor in kept:
        digest.update(f"{name}:{tensor.dtype}:{list(tensor.shape)}:".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def lean_copy(model: nn.Module, travelling: Collection[str] = ()) -> nn.Module:
    """A copy of the module for somebody who only reads it: tensors share their memory with the model's, but those
    `travelling`, which the copy may write to. On another device it has memory of its own."""
    memo: dict[int, Any] = {}
    for name, parameter in model.named_parameters():
        if name not in travelling:
            memo[id(parameter)] = copy.copy(parameter)
    for name, buffer in model.named_buffers():
        if name not in travelling and buffer.is_floating_point():
            memo[id(buffer)] = buffer.detach()
    return copy.deepcopy(model, memo)
