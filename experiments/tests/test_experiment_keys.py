"""A finished part is found by the settings that its method reads: others may change, and it is not computed again."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from databazaar_experiments.compute import compute, missing
from databazaar_experiments.images import market_from
from databazaar_experiments.methods import PAPER_METHODS, Measurement, PaperMarket, run_method
from databazaar_experiments.mixture import mixture_market
from databazaar_experiments.parts import Case, Settings
from databazaar_experiments.protocol_figures import FIGURES
from databazaar_experiments.protocol_quick import QUICK, SYNTHETIC, synthetic_images
from databazaar_experiments.settings import READ_BY, WORDS, MixtureSettings, changed, read_by
from small_runs import TINY, tiny_plan

torch.set_num_threads(1)
IMAGES, MIXTURE = changed(QUICK.images["synthetic"], TINY), changed(QUICK.mixture, TINY)
BOTH = pytest.mark.parametrize("settings", [IMAGES, MIXTURE], ids=["images", "mixture"])
EVERY = pytest.mark.parametrize("method", PAPER_METHODS)


class InspectedReplies:
    """Settings that note which of them are read."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.read = settings, set[str]()

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        return getattr(self.settings, name)


def market_of(settings: Any, mixture: bool) -> PaperMarket:
    return mixture_market(settings) if mixture else market_from(synthetic_images(400, 50), SYNTHETIC, settings)


def run(method: str, settings: Settings) -> Measurement:
    return run_method(method, market_of(settings, isinstance(settings, MixtureSettings)), (0, 1), "cpu")


def another(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return next(word for word in WORDS[name] if word != value)
    if isinstance(value, bool):
        return not value
    return tuple(2 * each + 1 for each in value) if isinstance(value, tuple) else 2 * value + 1


def key(method: str, settings: Settings) -> str:
    return Case("mixture" if isinstance(settings, MixtureSettings) else "images", "here", method, settings).key


@BOTH
@EVERY
def test_a_method_reads_what_is_declared_and_nothing_else(method: str, settings: Settings) -> None:
    watched = InspectedReplies(settings)
    run_method(method, market_of(watched, isinstance(settings, MixtureSettings)), (0,), "cpu")
    assert watched.read == set(read_by(method, settings))


@BOTH
@EVERY
def test_what_a_method_does_not_read_changes_neither_its_key_nor_its_result(method: str, settings: Settings) -> None:
    unread = asdict(settings).keys() - read_by(method, settings).keys()
    assert unread, "every method leaves some to the others"
    other = replace(settings, **{name: another(name, getattr(settings, name)) for name in unread})
    assert other != settings and key(method, other) == key(method, settings)
    before, after = run(method, settings), run(method, other)
    for name in ("pay", "rounds", "curve", "permutations", "stopped"):
        assert np.array_equal(getattr(before, name), getattr(after, name)), name


@BOTH
@EVERY
def test_whatever_a_method_reads_changes_its_key(method: str, settings: Settings) -> None:
    read = read_by(method, settings)
    keys = {key(method, replace(settings, **{name: another(name, value)})) for name, value in read.items()}
    assert len(keys) == len(read) and key(method, settings) not in keys
    assert READ_BY[method] <= read.keys()


def test_other_draws_of_osmd_are_computed_and_nothing_else(tmp_path: Path) -> None:
    plan = tiny_plan("revenue", "runtime", "mixture", seeds=1)
    compute(plan, tmp_path, device="cpu")
    other = replace(plan, changes={**TINY, "images.repeats": "count"})
    left = [part.case for part in missing(other, tmp_path, 1)]
    assert {case.method for case in left} == {"osmd"} and len(left) == 3, "of the images, and two of the runtime study"
    assert "mixture" not in {case.experiment for case in left}


def test_the_images_are_drawn_without_replacement_and_the_mixture_with() -> None:
    assert {settings.repeats for settings in FIGURES.images.values()} == {"never"}
    assert FIGURES.mixture.repeats == "once"
