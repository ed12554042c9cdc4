"""One MNIST-shaped round here, in JAX and as a plain PyTorch loop, asked in turns in one process.

    .venv/bin/python -m pip install -c constraints.txt jax
    .venv/bin/python benchmarks/bench_round.py

Ten providers × 400 samples, 784 → 300 → 10, batches of 5, momentum 0.1; eleven candidates scored on 1,000 hold-out
samples. All three meet the same samples in the same order; the largest differences are printed. JAX is written as its
users would: `scan` over the steps, `vmap` over the providers, `jit` around all of it, on the CPU with as many threads
as it takes. The loop has no data loader and no optimizer object: samples are sliced, gradients are subtracted in place.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bench_core import HOLDOUT, ORACLE, PROVIDERS, SAMPLES, market
from databazaar import Consumer, Provider
from databazaar.engines import Ask, VectorizedEngine
from databazaar.learning.models import Layout
from databazaar.randomness import oracle_key, sample_order
from databazaar_experiments.stacks.dual import DualSGD

Outcome = tuple[NDArray[np.float32], NDArray[np.float64]]
"""Updates [providers, d], and the utilities of the candidates and of the model itself."""
STEP, MOMENTUM, BATCH = 0.02, ORACLE.momentum, ORACLE.batch_size


def orders(providers: Sequence[Provider]) -> NDArray[np.int64]:
    return np.stack([sample_order(oracle_key(0, 0, one.id), SAMPLES) for one in providers])


def with_databazaar(consumer: Consumer, providers: Sequence[Provider]) -> Callable[[], Outcome]:
    engine = VectorizedEngine(consumer.task, providers, torch.device("cpu"), stacks=[DualSGD])
    evaluator, start = consumer.evaluator(engine.device), consumer.initial_parameters()
    ask = Ask(start, list(range(len(providers))), round=0, seed=0)

    def work() -> Outcome:
        updates = engine.query(ask).updates
        return updates.numpy(), evaluator.score(torch.cat([start + updates, start[None]])).utility

    return work


def with_a_loop(consumer: Consumer, providers: Sequence[Provider]) -> Callable[[], Outcome]:
    assert isinstance(consumer.model, nn.Module) and consumer.holdout is not None
    model, layout = copy.deepcopy(consumer.model), Layout.of(consumer.model)
    start, drawn = layout.flatten(consumer.model), torch.from_numpy(orders(providers))
    x_held, y_held = consumer.holdout
    assert isinstance(x_held, Tensor)

    @torch.no_grad()
    def utility() -> float:
        return -float(nn.functional.cross_entropy(model(x_held), y_held))

    def update(provider: Provider, order: Tensor) -> Tensor:
        layout.load(model, start)
        x, y = provider.dataset
        velocity = [torch.zeros_like(p) for p in model.parameters()]
        for rows in order.view(-1, BATCH):
            loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            with torch.no_grad():
                for own, v, gradient in zip(model.parameters(), velocity, gradients, strict=True):
                    own.sub_(v.mul_(MOMENTUM).add_(gradient), alpha=STEP)
        return layout.flatten(model) - start

    def work() -> Outcome:
        updates, utilities = [], []
        for provider, order in zip(providers, drawn, strict=True):
            updates.append(update(provider, order))
            utilities.append(utility())
        layout.load(model, start)
        return torch.stack(updates).numpy(), np.array([*utilities, utility()])

    return work


def with_jax(consumer: Consumer, providers: Sequence[Provider]) -> Callable[[], Outcome]:
    import jax
    import jax.numpy as jnp

    assert isinstance(consumer.model, nn.Module) and consumer.holdout is not None
    start = {name: jnp.asarray(p.detach().numpy()) for name, p in consumer.model.named_parameters()}
    first, bias, second, last = start
    x = jnp.stack([jnp.asarray(np.asarray(one.dataset[0])) for one in providers])
    y = jnp.stack([jnp.asarray(one.dataset[1].numpy()) for one in providers])
    batches = jnp.asarray(orders(providers)).reshape(PROVIDERS, -1, BATCH)
    x_held, y_held = (jnp.asarray(np.asarray(part)) for part in consumer.holdout)

    def loss(w: Any, x: Any, y: Any) -> Any:
        hidden = jax.nn.relu(x @ w[first].T + w[bias])
        logits = jax.nn.log_softmax(hidden @ w[second].T + w[last])
        return -jnp.take_along_axis(logits, y[:, None], axis=1).mean()

    def update(x: Any, y: Any, batches: Any) -> Any:
        def step(carry: Any, rows: Any) -> Any:
            w, v = carry
            gradient = jax.grad(loss)(w, x[rows], y[rows])
            v = jax.tree.map(lambda v, g: MOMENTUM * v + g, v, gradient)
            return (jax.tree.map(lambda w, v: w - STEP * v, w, v), v), None

        (w, _), _ = jax.lax.scan(step, (start, jax.tree.map(jnp.zeros_like, start)), batches)
        return jax.tree.map(jnp.subtract, w, start)

    def whole() -> Any:
        updates = jax.vmap(update)(x, y, batches)
        reached = jax.tree.map(lambda w, g: jnp.concatenate([w + g, w[None]]), start, updates)
        flat = jnp.concatenate([updates[name].reshape(PROVIDERS, -1) for name in start], axis=1)
        return flat, -jax.vmap(loss, in_axes=(0, None, None))(reached, x_held, y_held)

    compiled = jax.jit(whole)

    def work() -> Outcome:
        flat, utilities = compiled()
        return np.asarray(flat), np.asarray(utilities, dtype=np.float64)

    return work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--times", type=int, default=9)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    consumer, providers = market()
    made = {"databazaar": with_databazaar, "JAX": with_jax, "PyTorch loop": with_a_loop}
    ways = {name: make(consumer, providers) for name, make in made.items()}
    outcomes = {name: work() for name, work in ways.items()}  # compiles, and warms up
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(chosen.times):
        for name, work in ways.items():
            begun = time.perf_counter()
            work()
            seconds[name].append(time.perf_counter() - begun)
    print(f"One MNIST-shaped round, {SAMPLES} samples a provider, {HOLDOUT} to score on, {chosen.threads} threads")
    print(f"{'':14} {'median s':>9} {'best s':>9} {'times':>6}   largest difference of updates, of utilities")
    base = statistics.median(seconds["databazaar"])
    updates, utilities = outcomes["databazaar"]
    for name, taken in seconds.items():
        gaps = np.abs(outcomes[name][0] - updates).max(), np.abs(outcomes[name][1] - utilities).max()
        median = statistics.median(taken)
        print(f"{name:14} {median:9.3f} {min(taken):9.3f} {median / base:6.1f}   {gaps[0]:.1e}, {gaps[1]:.1e}")


if __name__ == "__main__":
    main()
