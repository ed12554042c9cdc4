"""The image markets of the paper: providers whose labels are wrong to different degrees."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from databazaar.errors import BazaarError
from databazaar.learning.models import build_model
from databazaar.learning.oracles import LocalSGD
from databazaar.learning.task import Halving
from databazaar.parties.consumer import Consumer
from databazaar.parties.provider import Provider
from databazaar_experiments.datasets import SOURCES, Bytes, Images, Source, load_images
from databazaar_experiments.settings import ImageSettings


@dataclass(frozen=True)
class ImageMarket:
    """Providers, and what a consumer needs. `groups[i]` is the place of provider i's share of wrong labels."""

    settings: ImageSettings
    providers: list[Provider]
    groups: list[int]
    holdout: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]

    def consumer(self, seed: int) -> Consumer:
        settings = self.settings
        shape = tuple(self.holdout[0].shape[1:])
        return Consumer(
            build_model(settings.network, shape, 10, hidden=[300], seed=seed),
            budget=settings.per_round * settings.rounds,
            holdout=self.holdout,
            utility="negative-loss",
            per_round=settings.per_round,
            step=settings.global_step,
        )


def image_market(dataset: str, settings: ImageSettings, folder: Path | None = None) -> ImageMarket:
    return market_from(load_images(dataset, folder), SOURCES[dataset], settings)


def market_from(images: Images, source: Source, settings: ImageSettings) -> ImageMarket:
    """Splits the training images among the providers and the hold-out, and spoils labels as the settings say.

    Both are the same for all seeds of an experiment: a seed moves training and sampling only. The draw is the authors':
    NumPy's legacy generator shuffles the training images, providers take theirs one after the other, the hold-out
    takes the next, and the wrong labels come from the same stream.
    """
    rng = np.random.RandomState(settings.data_seed)
    training = settings.providers * settings.samples
    if training + settings.holdout > len(images.x_train):
        raise BazaarError(
            f"{settings.providers} providers with {settings.samples} samples and a hold-out of {settings.holdout} "
            f"need more than the {len(images.x_train)} training images: lower one of them with --set"
        )
    order = rng.permutation(len(images.x_train))[: training + settings.holdout]
    x = prepared(images.x_train[order], source, settings)
    y = images.y_train[order].astype(np.int64)
    groups = provider_groups(settings)
    oracle = LocalSGD(
        Halving(settings.local_step, settings.halve_every),
        settings.batch_size,
        momentum=settings.momentum,
        steps=None,
    )
    providers = []
    for i, group in enumerate(groups):
        mine = slice(i * settings.samples, (i + 1) * settings.samples)
        labels = with_wrong_labels(y[mine], settings.wrong_labels[group], settings.corrupt, rng)
        providers.append(Provider(f"provider-{i + 1:03d}", (x[mine], labels), oracle))
    test = prepared(images.x_test, source, settings), torch.from_numpy(images.y_test.astype(np.int64))
    return ImageMarket(settings, providers, groups, (x[training:], torch.from_numpy(y[training:])), test)


def provider_groups(settings: ImageSettings) -> list[int]:
    """The group of each provider, in the proportions of `group_sizes`; the last group takes what rounding leaves."""
    whole = sum(settings.group_sizes)
    sizes = [round(settings.providers * size / whole) for size in settings.group_sizes[:-1]]
    sizes.append(settings.providers - sum(sizes))
    return [group for group, size in enumerate(sizes) for _ in range(size)]


def prepared(images: Bytes, source: Source, settings: ImageSettings) -> Tensor:
    """Pixels over 255; in protocol `figures` also normalised, and every image divided by its own length."""
    x = torch.from_numpy(images).to(torch.float32) / 255
    if settings.normalise:
        x = (x - source.mean) / source.deviation
        x = x / x.flatten(1).norm(dim=1).clamp(min=1e-12)[:, None, None]
    return x[:, None] if settings.network == "cnn" else x.flatten(1)


def with_wrong_labels(
    labels: np.ndarray, share: float, which: str, rng: np.random.RandomState, classes: int = 10
) -> np.ndarray:
    """A share of the labels replaced by a wrong one: drawn among all classes until it is wrong."""
    count = round(share * len(labels))
    chosen = np.arange(count) if which == "first" else rng.permutation(len(labels))[:count]
    spoilt = labels.copy()
    for sample in chosen:
        while spoilt[sample] == labels[sample]:
            spoilt[sample] = rng.randint(classes)
    return spoilt
