"""What is to be reproduced: which experiments, on which datasets, with which settings and how many seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from databazaar.errors import BazaarError
from databazaar_experiments.datasets import SOURCES
from databazaar_experiments.methods import PAPER_METHODS, SHAPLEY
from databazaar_experiments.parts import Case
from databazaar_experiments.protocol_figures import FIGURES
from databazaar_experiments.protocol_quick import QUICK
from databazaar_experiments.protocol_text import TEXT
from databazaar_experiments.settings import ImageSettings, Protocol, changed, checked

PROTOCOLS = {protocol.name: protocol for protocol in (FIGURES, TEXT, QUICK)}
WHATS = ("revenue", "accuracy", "runtime", "mixture")
PAPER_SEEDS, PAPER_MIXTURE_SEEDS = 10, 100


@dataclass(frozen=True)
class ReproductionPlan:
    """Experiments, datasets, seeds, and settings changed on the command line."""

    whats: tuple[str, ...] = WHATS
    datasets: tuple[str, ...] = tuple(SOURCES)
    seeds: int = PAPER_SEEDS
    mixture_seeds: int = PAPER_MIXTURE_SEEDS
    protocol: str = "figures"
    methods: tuple[str, ...] = PAPER_METHODS
    changes: Mapping[str, str] | None = None

    @property
    def is_whole_paper(self) -> bool:
        """Whether everything of the paper is asked for, with no setting changed and no seed less."""
        names = (self.whats, WHATS), (self.datasets, SOURCES), (self.methods, PAPER_METHODS)
        enough = self.seeds >= PAPER_SEEDS and self.mixture_seeds >= PAPER_MIXTURE_SEEDS
        return all(set(asked) >= set(every) for asked, every in names) and enough and not self.changes

    def cases(self) -> Iterator[tuple[Case, int]]:
        """Every case with the number of its seeds; long ones first, so that workers end together."""
        protocol = _chosen(self.protocol)
        changes = checked(self.changes or {})
        if "mixture" in self.whats:
            settings = changed(protocol.mixture, changes)
            for method in (m for m in reversed(PAPER_METHODS) if m in self.methods):
                yield Case("mixture", "mixture", method, settings), self.mixture_seeds
        for dataset in reversed(self.datasets):
            if dataset not in protocol.images:
                raise BazaarError(f"dataset {dataset!r} is unknown: use {', '.join(protocol.images)}")
            images = changed(protocol.images[dataset], changes)
            yield from self._image_cases(dataset, images)
            if "runtime" in self.whats:
                yield from self._runtime_cases(dataset, images, protocol, changes)

    def _image_cases(self, dataset: str, images: ImageSettings) -> Iterator[tuple[Case, int]]:
        """Revenue and accuracy come of the same runs; the Shapley methods train no model whose accuracy counts."""
        wanted = [m for m in PAPER_METHODS if m in self.methods and ("revenue" in self.whats or m not in SHAPLEY)]
        if "revenue" in self.whats or "accuracy" in self.whats:
            for method in reversed(wanted):
                yield Case("images", dataset, method, images), self.seeds

    def _runtime_cases(
        self, dataset: str, images: ImageSettings, protocol: Protocol, changes: Mapping[str, str]
    ) -> Iterator[tuple[Case, int]]:
        runtime = changed(protocol.runtime, changes)
        for n in runtime.providers:
            sized = replace(
                images,
                providers=n,
                samples=runtime.samples,
                per_round=max(1, round(n * runtime.share_per_round)),
                rounds=runtime.rounds,
            )
            for method in (m for m in PAPER_METHODS if m in self.methods):
                yield Case("runtime", dataset, method, sized), 1


def _chosen(name: str) -> Protocol:
    if name not in PROTOCOLS:
        raise BazaarError(f"protocol {name!r} is unknown: use {' or '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
