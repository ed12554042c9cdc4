"""Small convolutional networks on a GPU: a whole epoch of many networks, and their outputs, by kernels of our own.

Torch runs a step of such a network as some forty small kernels that fetch all weights from memory again and again;
`epoch` in cnn_kernels.cu keeps a network on the chip until its epoch is over. The kernels are compiled when
they are first needed, by the compiler that torch's CUDA builds bring along (NVRTC). Where the model is another, or
there is no such GPU or compiler, the library's engines/stacks.py does the same work.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from databazaar.engines.stacks import BatchPlan, Data, Stack, Workload
from databazaar.learning.inputs import Examples, Inputs
from databazaar.learning.losses import cross_entropy
from databazaar.learning.models import Layout, PooledPatches, StrongestPatch
from databazaar.learning.oracles import LocalSGD, Oracle
from databazaar.learning.task import Task
from databazaar.learning.utilities import Evaluator
from databazaar.models import FILTER_SIDE, pooled_side
from databazaar.parties import Consumer
from databazaar.utilities import Utility

# The same numbers stand in cnn_kernels.cu, which explains them.
TAPS_PADDED, LANES, PARTS, SUMS, DOTS, FEW, HALVES = 32, 8, 14, 14, 8, 8, 2
CLUSTER, REGISTERS = 8, 128
"""A cluster has at most so many blocks on every GPU that has clusters, and a thread room for so many velocities."""


@dataclass(frozen=True)
class Form:
    """The sizes of such a network."""

    side: int
    filters: int
    hidden: int
    classes: int

    @classmethod
    def of(cls, model: nn.Module | None, x: Tensor) -> Form | None:
        """None where the model is of another kind than `models.build_model("cnn", …)` on square gray images."""
        kinds = (PooledPatches, nn.Linear, StrongestPatch, nn.Flatten, nn.Linear, nn.ReLU, nn.Linear)
        if type(model) is not nn.Sequential or tuple(type(layer) for layer in model) != kinds:
            return None
        if x.dim() != 4 or x.shape[1] != 1 or x.shape[2] != x.shape[3] or x.dtype != torch.float32:
            return None
        patches, first, _, _, second, _, last = model
        whole = all(layer.bias is not None for layer in (first, second, last))
        trained = all(p.requires_grad for p in model.parameters()) and len(list(model.parameters())) == 6
        if patches.size != FILTER_SIDE or not whole or not trained:
            return None
        return cls(x.shape[2], first.out_features, second.out_features, last.out_features)  # type: ignore[arg-type]

    @property
    def windows(self) -> int:
        """Of 2×2 places each, in one image."""
        return pooled_side(self.side) ** 2

    @property
    def threads(self) -> dict[str, int]:
        """Of a block of each kernel: two for each window, or one, in whole warps."""
        column = -(-self.windows // 32) * 32
        return {"epoch": HALVES * column, "features": column}

    def shared_bytes(self, batch: int) -> dict[str, int]:
        """The shared memory that a block of each kernel works in."""
        picture = self.side * (self.side + 5)
        lanes = ((2 + HALVES) * self.windows + self.hidden) * LANES + 2 * TAPS_PADDED
        layers = self.hidden * (self.windows | 1) + 2 * self.classes * (self.hidden + 2) + 2 * self.hidden
        scratch = PARTS * batch * self.hidden + SUMS * TAPS_PADDED + batch * self.hidden + DOTS * batch * self.classes
        floats = {
            "epoch": lanes + 2 * batch * picture + layers + scratch,
            "features": self.filters * TAPS_PADDED + FEW * picture,
        }
        return {name: -(-4 * count // 16) * 16 for name, count in floats.items()}

    def source(self, batch: int, momentum: float) -> str:
        sizes = {"SIDE": self.side, "FILTERS": self.filters, "HIDDEN": self.hidden, "CLASSES": self.classes}
        given = {**sizes, "BATCH": batch, "MOMENTUM": f"{momentum!r}f", "THREADS": self.threads["epoch"]}
        code = files("databazaar_experiments.stacks").joinpath("cnn_kernels.cu").read_text(encoding="utf-8")
        return "".join(f"#define {name} {value}\n" for name, value in given.items()) + code

    def fits(self, batch: int, bytes_a_block: int) -> bool:
        small = self.threads["epoch"] <= 512 and self.hidden <= REGISTERS and self.filters <= CLUSTER and batch <= LANES
        return small and max(self.shared_bytes(batch).values()) <= bytes_a_block


Launch = Callable[[str, tuple[int, int], Sequence[Any]], None]
"""Runs a kernel by its name on a grid of blocks, with tensors and whole numbers as arguments."""


class Compile(Protocol):
    def __call__(self, form: Form, batch: int, momentum: float) -> Launch:
        """The kernels for networks of this form."""


@cache
def _kernels(form: Form, batch: int, momentum: float) -> dict[str, Any]:
    code, room = form.source(batch, momentum), form.shared_bytes(batch)
    kernels = {name: torch.cuda._compile_kernel(code, name) for name in room}
    for name, kernel in kernels.items():
        kernel.set_shared_memory_config(room[name])
    return kernels


@cache
def for_gpu(form: Form, batch: int, momentum: float) -> Launch:
    kernels, room = _kernels(form, batch, momentum), form.shared_bytes(batch)

    def launch(name: str, grid: tuple[int, int], args: Sequence[Any]) -> None:
        kernels[name]((*grid, 1), (form.threads[name], 1, 1), list(args), room[name])

    return launch


class _LaunchConfig(ctypes.Structure):
    """CUlaunchConfig of CUDA's driver."""

    _fields_ = (
        *((f"{of}_{axis}", ctypes.c_uint) for of in ("grid", "block") for axis in "xyz"),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


@cache
def networks_at_once(form: Form, batch: int, momentum: float) -> int | None:
    """How many networks the GPU trains at a time; None where its driver does not say.

    So many are launched at a time. They end together, so nothing is lost by it; but blocks that wait for their turn
    would hold up whatever other processes launch after them, be it ever so small.
    """
    found, threads = ctypes.c_int(), form.threads["epoch"]
    config = _LaunchConfig(form.filters, 1, 1, threads, 1, 1, form.shared_bytes(batch)["epoch"])
    try:
        driver, kernel = torch.cuda._utils._get_gpu_runtime_library(), _kernels(form, batch, momentum)["epoch"]
        wrong = driver.cuOccupancyMaxActiveClusters(ctypes.byref(found), kernel.func, ctypes.byref(config))
    except (AttributeError, OSError, RuntimeError):
        return None
    return None if wrong or found.value < 1 else found.value


@cache
def compiles() -> bool:
    """Whether torch can compile a kernel here. What it does that with is not part of its promised interface."""
    try:
        torch.cuda._compile_kernel('extern "C" __global__ void nothing() {}', "nothing")
    except Exception as reason:
        text = " ".join(str(reason).split())[:200]
        warnings.warn(f"small CNNs train without kernels of their own, and more slowly: {text}", stacklevel=2)
        return False
    return True


def room_on(device: torch.device) -> int:
    """Bytes of shared memory that a block may have there; 0 where these kernels cannot run."""
    if device.type != "cuda" or torch.version.hip is not None or not compiles():
        return 0
    about = torch.cuda.get_device_properties(device)
    room: int = getattr(about, "shared_memory_per_block_optin", 0)
    return room if about.major >= 9 else 0  # clusters came with compute capability 9.0


def suits(task: Task, oracle: Oracle, data: Data, room: int | None = None) -> bool:
    """Whether these kernels can do the oracle's work. `room` is that of a block on the data's device, unless given."""
    if task.loss is not cross_entropy or task.precision != "float32":
        return False
    if not isinstance(oracle, LocalSGD) or oracle.optimizer != "sgd" or oracle.weight_decay:
        return False
    form = Form.of(task.model, data.x)
    return form is not None and form.fits(oracle.batch_size, room_on(data.x.device) if room is None else room)


class FusedCNN(Stack):
    """Stacked local SGD of small convolutional networks."""

    kind = "fused"

    @classmethod
    def make(cls, work: Workload, oracle: Oracle, shape: tuple[int, int]) -> FusedCNN | None:
        if not suits(work.task, oracle, work.data):
            return None
        assert isinstance(oracle, LocalSGD)
        form = Form.of(work.task.model, work.data.x)
        assert form is not None
        together = networks_at_once(form, shape[1], oracle.momentum)
        return cls(work.task, oracle.momentum, shape[1], work.data, together=together)

    def __init__(
        self,
        task: Task,
        momentum: float,
        batch: int,
        data: Data,
        compile: Compile = for_gpu,
        together: int | None = None,
    ) -> None:
        form = Form.of(task.model, data.x)
        assert form is not None
        self._form, self._data = form, data
        self._images = data.x.flatten(1).contiguous()
        self.floats_per_sample = form.side**2
        self._launch, self._at_once = compile(form, batch, momentum), together

    def __call__(self, params: Tensor, plan: BatchPlan) -> Tensor:
        form, rows, data = self._form, len(params), self._data
        steps, batch = plan.local.shape[1:]
        samples = (data.starts[plan.providers][:, None, None] + plan.local).contiguous()
        weights, rates = plan.weights.contiguous(), plan.steps.contiguous()
        params = params.contiguous()
        updates = torch.empty_like(params)
        shares = params.new_empty(rows, 2, form.filters, batch, form.hidden)
        for first in range(0, rows, at_once := self._at_once or rows):
            own = slice(first, min(first + at_once, rows))
            given = (
                *(params[own], updates[own], self._images, data.y),
                *(samples[own], weights[own], rates[own], shares[own], steps),
            )
            self._launch("epoch", (form.filters, own.stop - first), given)
        return updates


class FusedOutputs:
    """Outputs [R, samples, classes] of R networks on the same images."""

    def __init__(self, form: Form, layout: Layout, compile: Compile = for_gpu) -> None:
        self._form, self._layout = form, layout
        self._launch = compile(form, 1, 0.0)

    @property
    def floats_per_sample(self) -> int:
        return self._form.filters * self._form.windows + 2 * self._form.hidden + 4 * self._form.classes

    def __call__(self, params: Tensor, x: Tensor) -> Tensor:
        form = self._form
        features = x.new_empty(len(params), len(x), form.filters * form.windows)
        given = (x.contiguous(), params.contiguous(), features, len(x))
        self._launch("features", (-(-len(x) // FEW), len(params)), given)
        _, _, w1, b1, w2, b2 = self._layout.unflatten(params).values()
        hidden = torch.baddbmm(b1[:, None], features, w1.mT).relu_()
        return torch.baddbmm(b2[:, None], hidden, w2.mT)


class FusedEvaluator(Evaluator):
    """An evaluator with these outputs in place of the model's own forward pass."""

    def __init__(
        self, task: Task, holdout: Examples, utility: str | Utility, device: torch.device, outputs: FusedOutputs
    ) -> None:
        super().__init__(task, holdout, utility, device)
        assert task.model is not None
        self._fused = outputs
        self._module, self._x = task.model.to(device).eval(), holdout[0].to(device)  # images as they came
        self._floats_per_sample = outputs.floats_per_sample
        self.floats_per_model = len(self._x) * self._floats_per_sample

    @property
    def recipe(self) -> None:
        """No other process makes one that scores alike."""
        return

    def _outputs(self, stack: Tensor, x: Inputs) -> Tensor:
        assert isinstance(x, Tensor)
        return self._fused(stack, x)


def evaluator_for(consumer: Consumer, device: torch.device) -> Evaluator:
    """As `consumer.evaluator(device)`, to float tolerance, with these kernels where they suit."""
    holdout, utility = consumer.holdout, consumer.utility
    if callable(utility) or holdout is None or not isinstance(consumer.model, nn.Module):
        return consumer.evaluator(device)
    form = Form.of(consumer.model, holdout[0]) if isinstance(holdout[0], Tensor) else None
    if form is None or not form.fits(1, room_on(device)):
        return consumer.evaluator(device)
    outputs = FusedOutputs(form, Layout.of(consumer.model))
    return FusedEvaluator(consumer.task.copied(), holdout, utility, device, outputs)
