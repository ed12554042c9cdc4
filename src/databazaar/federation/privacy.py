"""Differential privacy on the provider's side: DP-SGD updates, and an accountant that the provider keeps.

Every step draws its rows by Poisson sampling, clips each row's gradient to norm `clip`, and adds Gaussian noise
of standard deviation `noise` × `clip` to their sum. Rows and noise come from the operating system's entropy, never
from the market's seed: whoever knows the seed could take the noise off again.
"""

from __future__ import annotations

import json
import secrets
import warnings
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from databazaar.errors import BazaarError
from databazaar.federation.kits import write_json
from databazaar.federation.messages import OracleMessage
from databazaar.federation.policy import RefusedError
from databazaar.federation.table import Data
from databazaar.federation.worker import built_in
from databazaar.files import alone
from databazaar.learning.optimizers import Descent
from databazaar.learning.oracles import LocalSGD
from databazaar.learning.task import Task

_CHUNK = 256


class Accountant:
    """What has been spent, in Rényi differential privacy, with Opacus. Written down before any answer leaves.

    `history` is a list of (noise multiplier, sample rate, steps), and all that a restart needs.
    """

    def __init__(self, path: Path, delta: float, cap: float) -> None:
        if not 0 < delta < 1:
            raise BazaarError(f"δ = {delta} must lie between 0 and 1: take less than one over the number of rows")
        if not cap > 0:
            raise BazaarError(f"the cap ε = {cap} must be positive: raise it, or answer without privacy")
        _opacus()  # says what is missing before anybody connects
        self.path, self.delta, self.cap = path, delta, cap
        self._history = self._read()
        self._spent = self._epsilon(self._history)

    @property
    def spent(self) -> float:
        return self._spent

    def covers(self, noise: float, rate: float, steps: int) -> bool:
        return self._epsilon(_added(self._history, noise, rate, steps)) <= self.cap

    def charge(self, noise: float, rate: float, steps: int) -> None:
        """Takes the cost of one answer, durably, or raises RefusedError and takes nothing.

        What another process has written meanwhile counts: however many answer from one account, none is forgotten.
        """
        try:
            with alone(self.path.with_name(self.path.name + ".lock")):
                history = _added(self._read(), noise, rate, steps)
                epsilon = self._epsilon(history)
                if epsilon > self.cap:
                    raise RefusedError("privacy budget spent")
                write_json(self.path, {"history": history, "delta": self.delta, "epsilon": epsilon})
        except BazaarError as reason:
            raise OSError(str(reason)) from None  # this machine's fault, and no refusal
        self._history, self._spent = history, epsilon

    def _epsilon(self, history: list[tuple[float, float, int]]) -> float:
        if not history:
            return 0.0
        orders, _, smallest = _opacus()
        total = sum(_one_step(noise, rate) * steps for noise, rate, steps in history)
        with warnings.catch_warnings():  # at the ends of its table of orders Opacus's bound is loose, and still holds
            warnings.simplefilter("ignore")
            return float(smallest(orders=orders, rdp=total, delta=self.delta)[0])

    def _read(self) -> list[tuple[float, float, int]]:
        if not self.path.exists():
            return []
        try:
            kept = json.loads(self.path.read_text())["history"]
            return [(float(noise), float(rate), int(steps)) for noise, rate, steps in kept]
        except (OSError, ValueError, KeyError, TypeError):
            raise BazaarError(
                f"{self.path} cannot be read, so what was spent is not known: put it back from a copy"
            ) from None


def _added(
    history: list[tuple[float, float, int]], noise: float, rate: float, steps: int
) -> list[tuple[float, float, int]]:
    for place, (known_noise, known_rate, known_steps) in enumerate(history):
        if (known_noise, known_rate) == (noise, rate):
            return [*history[:place], (noise, rate, known_steps + steps), *history[place + 1 :]]
    return [*history, (noise, rate, steps)]


def _opacus() -> tuple[Any, Any, Any]:
    """The orders that Opacus looks at, the cost of some steps at each, and the smallest ε that follows."""
    try:
        from opacus.accountants import RDPAccountant
        from opacus.accountants.analysis import rdp
    except ImportError:
        raise BazaarError("privacy needs more packages: pip install 'databazaar[privacy]'") from None
    return RDPAccountant.DEFAULT_ALPHAS, rdp.compute_rdp, rdp.get_privacy_spent


@lru_cache(maxsize=1000)
def _one_step(noise: float, rate: float) -> Any:
    """The cost of one step at every order; that of several steps is as many times as much."""
    orders, cost, _ = _opacus()
    return cost(q=rate, noise_multiplier=noise, steps=1, orders=orders)


@dataclass(frozen=True)
class PrivateUpdates:
    """Answers a market's oracle with DP-SGD in its place: the same steps and batch size, clipped and noisy."""

    noise: float
    clip: float
    accountant: Accountant

    @property
    def delta(self) -> float:
        return self.accountant.delta

    def spent(self) -> float:
        return self.accountant.spent

    def check(self, oracle: OracleMessage, rows: int) -> None:
        if not self.accountant.covers(self.noise, *_work(oracle, rows)):
            raise RefusedError("privacy budget spent")

    def update(self, oracle: OracleMessage, task: Task, data: Data, params: Tensor) -> Tensor:
        share, steps = _work(oracle, len(data[0]))
        self.accountant.charge(self.noise, share, steps)
        generator = torch.Generator().manual_seed(secrets.randbits(63))
        made = built_in(oracle, len(data[0]))
        rate, descend = (oracle.step, made.descent()) if isinstance(made, LocalSGD) else (1.0, Descent())
        w = params.clone()
        for _ in range(steps):
            chosen = torch.rand(len(data[0]), generator=generator) < share
            total = clipped_sum(task, (data[0][chosen], data[1][chosen]), w, self.clip)
            noisy = total + self.noise * self.clip * torch.randn(w.shape, generator=generator)
            descend({"w": w}, [noisy / (share * len(data[0]))], rate)
        return w - params


def _work(oracle: OracleMessage, rows: int) -> tuple[float, int]:
    """The sample rate and the number of steps of one answer."""
    if oracle.kind == "full-gradient":
        return 1.0, 1
    made = built_in(oracle, rows)
    batch = min(oracle.batch_size, rows)
    return batch / rows, made.step_count(rows) if isinstance(made, LocalSGD) else 1


def clipped_sum(task: Task, data: Data, params: Tensor, clip: float) -> Tensor:
    """Σ over rows of that row's gradient, each scaled down to norm `clip` where it is longer."""
    assert task.model is not None
    model, layout = task.model, task.layout

    def loss(flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        outputs = functional_call(model, layout.unflatten(flat), (x[None],))
        return task.loss(outputs, y[None]).sum()

    total = torch.zeros_like(params)
    for begin in range(0, len(data[0]), _CHUNK):
        x, y = data[0][begin : begin + _CHUNK], data[1][begin : begin + _CHUNK]
        rows = vmap(grad(loss), in_dims=(None, 0, 0))(params, x, y)
        norms = rows.norm(dim=1, keepdim=True)
        total += (rows * (clip / norms.clamp(min=clip))).sum(0)
    return total
