"""Protocol `quick`: the same code on small data that the package makes itself, for a first look and for the tests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from databazaar_experiments.datasets import Images, Source
from databazaar_experiments.protocol_figures import FIGURES
from databazaar_experiments.settings import Protocol, RuntimeSettings

SYNTHETIC = Source("synthetic.npz", "", 6_000, 0.5, 0.25)
CLASSES, SIDE = 10, 28

QUICK = Protocol(
    name="quick",
    images={
        "synthetic": replace(
            FIGURES.images["mnist"],
            rounds=60,
            providers=20,
            samples=60,
            holdout=300,
            per_round=4,
            group_sizes=(5, 5, 5, 5),
            local_step=0.1,
            halve_every=40,
            eta=4.0,
            alpha=0.05,
            g_max_permutations=60,
            fed_max_permutations=60,
        )
    },
    runtime=RuntimeSettings(providers=(10, 20), samples=50, share_per_round=0.2, rounds=20),
    mixture=replace(
        FIGURES.mixture,
        providers=20,
        samples=100,
        dimensions=100,
        per_round=4,
        rounds=200,
        step=0.03,
        eta=0.1,
        alpha=0.05,
        g_back_check=30,
        g_max_permutations=300,
        fed_back_check=20,
        fed_max_permutations=100,
    ),
)


def synthetic_images(training: int = SYNTHETIC.training, testing: int = 1_000, seed: int = 7) -> Images:
    """Ten classes of 28×28 images: a smooth pattern for each class, shifted a little and noisy."""
    rng = np.random.default_rng(seed)
    coarse = rng.normal(size=(CLASSES, 7, 7))
    patterns = np.kron(coarse, np.ones((4, 4)))

    def images(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = rng.integers(0, CLASSES, count)
        shifts = rng.integers(-2, 3, (count, 2))
        drawn = np.stack([np.roll(patterns[k], tuple(by), (0, 1)) for k, by in zip(labels, shifts, strict=True)])
        noisy = 0.5 + 0.15 * drawn + 0.15 * rng.normal(size=drawn.shape)
        return np.rint(255 * noisy.clip(0, 1)).astype(np.uint8), labels.astype(np.uint8)

    return Images(*images(training), *images(testing))
