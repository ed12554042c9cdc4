"""Mixture linear regression (Section 5.2): four groups of providers, of which one is the consumer's own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from databazaar.learning.oracles import FullGradient
from databazaar.parties.consumer import Consumer
from databazaar.parties.provider import Provider
from databazaar_experiments.settings import MixtureSettings

GROUPS = 4


@dataclass(frozen=True)
class MixtureMarket:
    """`truth` is the consumer's own parameter, w_1; `groups` counts from 0."""

    settings: MixtureSettings
    providers: list[Provider]
    groups: list[int]
    holdout: tuple[Tensor, Tensor]
    truth: Tensor

    def consumer(self, seed: int) -> Consumer:
        settings = self.settings
        linear = nn.Linear(settings.dimensions, 1, bias=False)
        nn.init.constant_(linear.weight, -1.0)
        return Consumer(
            nn.Sequential(linear),  # of which the engine knows the gradient, and valuations the first layer
            budget=settings.per_round * settings.rounds,
            holdout=self.holdout,
            utility="negative-loss",
            loss="squared-error",
            per_round=settings.per_round,
            step=settings.step,
        )


def mixture_market(settings: MixtureSettings) -> MixtureMarket:
    """The data of the published figure: NumPy's legacy generator, set to the same seed before each of three parts."""
    seed, d = settings.data_seed, settings.dimensions
    legacy = np.random.RandomState(seed)
    truths = [legacy.uniform(0.5 * k, 0.5 * (k + 1), d) for k in range(GROUPS)]
    groups = provider_groups(settings)
    legacy = np.random.RandomState(seed)

    def samples(count: int, truth: np.ndarray) -> tuple[Tensor, Tensor]:
        x = legacy.normal(size=(count, d))
        y = x @ truth + legacy.normal(0.0, settings.noise, count)
        return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y.astype(np.float32))

    oracle = FullGradient()
    providers = [
        Provider(f"provider-{i + 1:03d}", samples(settings.samples, truths[group]), oracle)
        for i, group in enumerate(groups)
    ]
    holdout = samples(settings.holdout, truths[0])
    return MixtureMarket(settings, providers, groups, holdout, torch.from_numpy(truths[0].astype(np.float32)))


def provider_groups(settings: MixtureSettings) -> list[int]:
    groups: list[int] = np.random.RandomState(settings.data_seed).choice(GROUPS, settings.providers).tolist()
    return groups
