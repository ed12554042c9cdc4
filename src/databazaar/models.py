"""Models as one flat vector: the four built-in ones, and how any torch module lies in a vector."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn

from databazaar.errors import BazaarError

KINDS = ("linear", "logistic", "mlp", "cnn")


def build_model(
    kind: str,
    inputs: Sequence[int],
    outputs: int,
    *,
    hidden: Sequence[int] = (32,),
    seed: int = 0,
) -> nn.Module:
    """A built-in model by name, initialised from `seed` without touching torch's global generator.

    >>> sum(p.numel() for p in build_model("mlp", [784], 10, hidden=[300]).parameters())
    238510
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if kind in ("linear", "logistic"):
            return nn.Sequential(nn.Flatten(), nn.Linear(prod(inputs), outputs))
        if kind == "mlp":
            return _mlp(prod(inputs), hidden, outputs)
        if kind == "cnn":
            return _cnn(inputs, outputs)
    raise BazaarError(f"model {kind!r} is unknown: use one of {', '.join(KINDS)}, or any torch.nn.Module")


def _mlp(inputs: int, hidden: Sequence[int], outputs: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Flatten()]
    for width in hidden:
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


def _cnn(inputs: Sequence[int], outputs: int) -> nn.Module:
    """One convolution and two feed-forward layers: the paper's network for CIFAR-10."""
    if len(inputs) != 3 or min(inputs[1:]) < 6:
        raise BazaarError(
            f"a cnn takes images of channels × height × width with sides of at least 6, not {list(inputs)}: "
            "give the image's shape, or use an mlp"
        )
    channels, height, width = inputs
    flat = 6 * ((height - 4) // 2) * ((width - 4) // 2)
    return nn.Sequential(
        PooledConv2d(channels, 6, 5), nn.Flatten(), nn.Linear(flat, 120), nn.ReLU(), nn.Linear(120, outputs)
    )


class PooledConv2d(nn.Conv2d):
    """Convolution, ReLU and 2×2 max-pooling in one, with the parameters of `nn.Conv2d`.

    Written as one matrix product over patches, with the pooling before the bias and the ReLU, which commute with it:
    a quarter of the numbers pass through them. Stacked over many models it is several times faster than the grouped
    convolution that torch makes of `nn.Conv2d`.
    """

    def __init__(self, channels: int, filters: int, size: int) -> None:
        super().__init__(channels, filters, size)

    def forward(self, input: Tensor) -> Tensor:
        size = self.kernel_size[0]
        patches = input.unfold(2, size, 1).unfold(3, size, 1)  # [batch, channels, H, W, size, size]
        batch, channels, height, width = patches.shape[:4]
        h, w = height // 2, width // 2
        windows = patches[:, :, : 2 * h, : 2 * w].reshape(batch, channels, h, 2, w, 2, size, size)
        windows = windows.permute(0, 2, 4, 3, 5, 1, 6, 7).reshape(batch * h * w * 4, -1)
        strongest = (windows @ self.weight.flatten(1).T).view(batch, h * w, 4, -1).amax(2)
        assert self.bias is not None
        return torch.relu(strongest + self.bias).mT.reshape(batch, -1, h, w)


@dataclass(frozen=True)
class Layout:
    """Where each parameter lies in the flat vector: parameters first, then floating-point buffers.

    Buffers such as a batch norm's running mean are part of the model, so they travel and are averaged too.
    """

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    trainable: int

    @classmethod
    def of(cls, model: nn.Module) -> Layout:
        named = [(name, p.shape) for name, p in model.named_parameters()]
        trainable = len(named)
        named += [(name, b.shape) for name, b in model.named_buffers() if b.is_floating_point()]
        return cls(tuple(n for n, _ in named), tuple(s for _, s in named), trainable)

    @property
    def sizes(self) -> list[int]:
        return [shape.numel() for shape in self.shapes]

    @property
    def width(self) -> int:
        return sum(self.sizes)

    def flatten(self, model: nn.Module) -> Tensor:
        tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        return torch.cat([tensors[name].detach().reshape(-1).to(torch.float32) for name in self.names])

    def unflatten(self, flat: Tensor) -> dict[str, Tensor]:
        """Views into `flat` [..., d] by name, each [..., *shape]: writing to a view writes to the vector."""
        pieces = torch.split(flat, self.sizes, dim=-1)
        lead = flat.shape[:-1]
        return {
            name: piece.view(*lead, *shape) for name, piece, shape in zip(self.names, pieces, self.shapes, strict=True)
        }

    def load(self, model: nn.Module, flat: Tensor) -> None:
        tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        with torch.no_grad():
            for name, value in self.unflatten(flat).items():
                tensors[name].copy_(value)


def hash_vector(flat: Tensor) -> str:
    """SHA-256 of a parameter vector: its type, its length and its bytes."""
    array = flat.detach().cpu().contiguous().numpy()
    digest = hashlib.sha256(f"{array.dtype.str}:{array.size}:".encode())
    digest.update(array.data)
    return digest.hexdigest()


def to_bytes(flat: Tensor) -> bytes:
    """A parameter vector as safetensors."""
    return model_to_bytes(None, flat)


def from_bytes(data: bytes) -> Tensor:
    return model_from_bytes(None, data)


def model_to_bytes(layout: Layout | None, flat: Tensor) -> bytes:
    """Named tensors as safetensors; a model that is only a vector is saved as `w`."""
    from safetensors.torch import save

    flat = flat.detach().cpu().contiguous()
    return save({"w": flat} if layout is None else {n: t.contiguous() for n, t in layout.unflatten(flat).items()})


def model_from_bytes(layout: Layout | None, data: bytes) -> Tensor:
    from safetensors.torch import load

    named = load(data)
    return named["w"] if layout is None else torch.cat([named[name].reshape(-1) for name in layout.names])
