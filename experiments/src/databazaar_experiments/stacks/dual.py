"""Local SGD without touching the first layer's weights: exact, and far less memory traffic.

Most of an MLP's parameters sit in its first linear layer, and each SGD step reads and writes all of them although
its gradient has rank one batch. That layer's input never changes, though: it is the data. With z = Wx + b, step
size λ, momentum μ, and δ_r = ∂ℓ/∂z of the batch used in step r, after s steps of v ← μv + ∇, W ← W − λv

    W_s = W_0 − λ Σ_{r<s} c_{s−r} δ_rᵀ x_r,      c_k = 1 + μ + … + μ^{k−1}.

So the pre-activations of step s follow from the Gram matrix of the provider's samples alone,

    z_s = x_s W_0ᵀ + b_0 − λ Σ_{r<s} c_{s−r} (x_s·x_r + 1) δ_r,

where the 1 carries the bias, and W_S is formed once, at the end of the epoch. The layers above are trained in the
ordinary way. For the paper's MNIST round (784 → 300 → 10, 80 steps of 5 samples) the work per step falls from
two products with a 300 × 784 matrix and five passes over it to one product with at most 400 rows of δ.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import vmap

from databazaar.engines.plain_layers import PlainLayers
from databazaar.engines.stacks import BatchPlan, Data, Stack, Workload
from databazaar.learning.models import caller
from databazaar.learning.oracles import Descent, LocalSGD, Oracle
from databazaar.learning.task import Task
from databazaar_experiments.first_layer import split_first_linear

GRAM_FLOATS = 2**28
"""Gram matrices are kept under this many floats (1 GiB)."""
MOST_SAMPLES = 512
"""Of one ask. The pulls between them are as many as their square, and cost more than the layer from here on."""


def suits(task: Task, data: Data, steps: int, batch: int) -> bool:
    """Whether the dual form applies and saves work: fewer samples seen in a round than twice the features.

    Where asks see only a few of a provider's samples, a Gram matrix of all of them would be made in vain.
    """
    if task.model is None or split_first_linear(task.model) is None or data.x.dim() != 2 or task.precision != "float32":
        return False
    seen, largest = steps * batch, int(data.sizes.max())
    few = seen <= min(2 * data.x.shape[1], MOST_SAMPLES)
    return few and largest <= 2 * seen and len(data.sizes) * largest**2 <= GRAM_FLOATS


class DualSGD(Stack):
    """Stacked local SGD in which the first linear layer lives in its dual form."""

    kind = "dual"

    @classmethod
    def make(cls, work: Workload, oracle: Oracle, shape: tuple[int, int]) -> DualSGD | None:
        task, data = work.without_prefix.task, work.without_prefix.data
        if not isinstance(oracle, LocalSGD) or oracle.optimizer != "sgd" or oracle.weight_decay:
            return None
        return cls(task, oracle, data) if suits(task, data, *shape) else None

    def __init__(self, task: Task, oracle: LocalSGD, data: Data) -> None:
        assert task.model is not None
        split = split_first_linear(task.model)
        assert split is not None
        self._name, first, above = split
        run = caller(above.train())
        self._layout = task.layout
        self._momentum = oracle.momentum
        self._data = data
        self.floats_per_sample = data.x[0].numel()
        self._x = data.x
        self._bias = first.bias is not None
        self._gram = self._gram_matrices()
        self._reaches: dict[tuple[int, int], Tensor] = {}
        above_names = list(dict(above.named_parameters()))
        own = [name for name in self._layout.names if not name.startswith(f"{self._name}.")]
        self._names = dict(zip(own, above_names, strict=True))

        def loss(z: Tensor, w: dict[str, Tensor], y: Tensor, weight: Tensor) -> Tensor:
            return (weight * task.loss(run(w, z), y)).sum()

        self._losses = vmap(loss, randomness="error")
        self._plain = PlainLayers(above, task.loss) if PlainLayers.fit(above, task.loss) else None

    def floats(self, samples: int) -> int:
        """Also a number for every pair of samples."""
        return super().floats(samples) + samples * samples

    def _gradients(self, z: Tensor, w: dict[str, Tensor], y: Tensor, weights: Tensor) -> tuple[Tensor, list[Tensor]]:
        """∂ℓ/∂z, and the gradients of the layers above: by hand where they are plain, else by autograd."""
        if self._plain is not None:
            return self._plain.gradients(z, w, y, weights)
        leaves = {name: value.detach().requires_grad_() for name, value in w.items()}
        z = z.detach().requires_grad_()
        losses = self._losses(z, leaves, y, weights)
        delta, *gradients = torch.autograd.grad(losses.sum(), [z, *leaves.values()], materialize_grads=True)
        return delta, gradients

    def _gram_matrices(self) -> Tensor:
        """x·x' (+ 1 for the bias) between the samples of each provider: [n, m, m], padded with zeros."""
        data = self._data
        largest = int(data.sizes.max())
        gram = self._x.new_zeros(len(data.sizes), largest, largest)
        for i, (start, size) in enumerate(zip(data.starts.tolist(), data.sizes.tolist(), strict=True)):
            x = self._x[start : start + size]
            gram[i, :size, :size] = x @ x.T + float(self._bias)
        return gram

    def _couplings(self, plan: BatchPlan) -> Tensor:
        """λ c_{s−r} (x_s·x_r + 1) for every pair of samples in the order they are used: [R, Sb, Sb]."""
        rows, steps, batch = plan.local.shape
        order = plan.local.reshape(rows, -1)
        if order.device.type == "cpu":  # a third of the time that one gather takes
            pulls = self._gram.new_empty(rows, steps * batch, steps * batch)
            for pull, provider, own in zip(pulls, plan.providers.tolist(), order, strict=True):
                torch.index_select(self._gram[provider].index_select(0, own), 1, own, out=pull)
        else:
            columns = order[:, None, :].expand(rows, steps * batch, steps * batch)
            pulls = self._gram[plan.providers[:, None], order].gather(2, columns)
        if (steps, batch) not in self._reaches:
            step = torch.arange(steps, device=order.device).repeat_interleave(batch)
            self._reaches[steps, batch] = self._reach(step[:, None] - step[None, :])
        return pulls.mul_(self._reaches[steps, batch]).mul_(plan.steps.repeat_interleave(batch, 1)[:, :, None])

    def _reach(self, distance: Tensor) -> Tensor:
        """c_k = 1 + μ + … + μ^{k−1}, and 0 for k ≤ 0."""
        k = distance.clamp(min=0).to(torch.float32)
        mu = self._momentum
        return (1 - mu**k) / (1 - mu) if mu else (k > 0).to(torch.float32)

    def __call__(self, params: Tensor, plan: BatchPlan) -> Tensor:
        rows, steps, batch = plan.local.shape
        samples = self._data.starts[plan.providers][:, None] + plan.local.reshape(rows, -1)
        x, y = self._x.index_select(0, samples.view(-1)).view(*samples.shape, -1), self._data.y[samples]
        moving = params.detach().clone()
        everything = self._layout.unflatten(moving)
        weight = everything[f"{self._name}.weight"]
        bias = everything.get(f"{self._name}.bias")
        w = {above: everything[name] for name, above in self._names.items()}
        z0 = torch.bmm(x, weight.mT)
        if bias is not None:
            z0 += bias[:, None, :]
        if self._plain is not None:
            y = self._plain.targets(y, z0)
        couplings = self._couplings(plan)
        deltas = torch.zeros_like(z0)
        descend = Descent(momentum=self._momentum)
        for s in range(steps):
            now = slice(s * batch, (s + 1) * batch)
            z = z0[:, now]
            if s:
                z = torch.baddbmm(z, couplings[:, now, : s * batch], deltas[:, : s * batch], alpha=-1)
            deltas[:, now], gradients = self._gradients(z, w, y[:, now], plan.weights[:, s])
            descend(w, gradients, plan.steps[:, s])
            del gradients  # not held while the next ones are made
        # W_S = W_0 − λ Σ_r c_{S−r} δ_rᵀ x_r, where each row counts its own steps
        done = (plan.steps > 0).sum(1, keepdim=True) - torch.arange(steps, device=x.device)
        final = (self._reach(done) * plan.steps).repeat_interleave(batch, 1)
        deltas *= final[:, :, None]
        weight.sub_(torch.bmm(deltas.mT, x))
        if bias is not None:
            bias.sub_(deltas.sum(1))
        return moving.sub_(params)
