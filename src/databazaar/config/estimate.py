"""What a run will take, before it begins: rounds, accesses, rows per ask, the model's size, and about how long."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch

from databazaar.config.jobs import Job
from databazaar.learning.oracles import Oracle, compute_update
from databazaar.randomness import oracle_key


@dataclass(frozen=True)
class Estimate:
    """`rounds` are those of full length, and `shortens` says whether the sampler may make more and shorter ones of
    them. `seconds` is that of the slow way, one ask after the other; None where providers answer from elsewhere."""

    rounds: int
    accesses: int
    rows_per_ask: int | None
    features: int
    parameters: int
    seconds: float | None
    shortens: bool = False

    @property
    def sentence(self) -> str:
        rows = f", each on about {self.rows_per_ask:,} rows" if self.rows_per_ask else ""
        took = f"; it takes about {duration(self.seconds)}, or less" if self.seconds is not None else ""
        rounds = f"about {self.rounds:,} rounds{' or more' if self.shortens else ''}"
        return (
            f"{rounds} and {self.accesses:,} accesses{rows}, for a model of {self.features:,} "
            f"features and {self.parameters:,} parameters{took}"
        )


def estimate(job: Job) -> Estimate:
    """One ask of a provider of middling size is timed, and one look at the hold-out."""
    consumer = job.consumer
    params = consumer.initial_parameters()
    most = min(consumer.budget, *consumer.limits.values()) if consumer.limits else consumer.budget
    sellers = [provider for provider in job.providers if provider.price <= most]
    price = float(np.mean([provider.price for provider in sellers]))
    caps = [provider.most_accesses for provider in sellers]
    accesses = min(int(consumer.budget // price), sum(cap if cap is not None else consumer.budget for cap in caps))
    pace = consumer.per_round if consumer.most_per_round is None else int(consumer.most_per_round // price)
    per_round = max(1, min(consumer.per_round, pace))
    local = sorted((p for p in job.providers if p.data is not None), key=lambda p: len(p.dataset[0]))
    rows, seconds = None, None
    if local and consumer.task.model is not None:
        middle = local[len(local) // 2]
        assert isinstance(middle.oracle, Oracle)
        key = oracle_key(job.seed, 0, middle.id)
        rows = int(np.mean([(p.oracle.batches(len(p.dataset[0]), key) >= 0).sum() for p in local]))  # type: ignore[union-attr]
        evaluator = consumer.evaluator(torch.device("cpu"))
        took = []
        for _ in range(2):  # the first time also warms up
            began = time.perf_counter()
            compute_update(middle.oracle, consumer.task, middle.dataset, params, 0, key)
            evaluator.score(params[None])
            took.append(time.perf_counter() - began)
        seconds = accesses * min(took)
    features = int(np.prod(consumer.holdout[0].shape[1:])) if consumer.holdout is not None else 0
    return Estimate(
        rounds=max(1, accesses // per_round),
        accesses=accesses,
        rows_per_ask=rows,
        features=features,
        parameters=len(params),
        seconds=seconds,
        shortens=job.sampler.wants.short_rounds,
    )


def duration(seconds: float) -> str:
    """
    >>> duration(0.2), duration(42), duration(200), duration(9000)
    ('a second', '42 seconds', '3 minutes', '2.5 hours')
    """
    if seconds < 1.5:
        return "a second"
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
