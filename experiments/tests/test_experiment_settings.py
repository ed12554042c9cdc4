"""The two protocols side by side, the published numbers, and the settings that a user may change."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from databazaar.errors import BazaarError
from databazaar_experiments import protocol_figures, protocol_text, published
from databazaar_experiments.methods import PAPER_METHODS
from databazaar_experiments.protocol_figures import FIGURES
from databazaar_experiments.settings import changed, checked

DIFFERS = "corrupt normalise global_step local_step momentum halve_every eta repeats pay g_criterion g_credits_first"


def test_the_protocol_files_compare_line_by_line() -> None:
    figures, text = (
        Path(str(module.__file__)).read_text(encoding="utf-8").splitlines()
        for module in (protocol_figures, protocol_text)
    )
    assert len(figures) == len(text)
    pairs = [(a, b) for a, b in zip(figures, text, strict=True) if a != b]
    settings = {a.split("=")[0].strip() for a, b in pairs if "=" in a and a.startswith("        ")}
    assert settings == set(DIFFERS.split())
    assert all(a.split("=")[0] == b.split("=")[0] for a, b in pairs if a.startswith("        "))
    assert len([line for line in difflib.ndiff(figures, text) if line.startswith("- ")]) == len(pairs)


def test_the_published_numbers_load() -> None:
    for method in PAPER_METHODS:
        for dataset in ("mnist", "fmnist", "mixture"):
            revenue = published.revenue(dataset, method)
            assert revenue is not None and len(revenue.mean) == 100 and len(revenue.groups) == 4
        for dataset in ("mnist", "fmnist", "kmnist", "cifar10"):
            runtime = published.runtime(dataset, method)
            assert runtime is not None and runtime.at == (50, 100, 200, 400)
    accuracy, error = published.accuracy("mnist", "osmd"), published.mixture_error("uniform")
    assert accuracy is not None and (accuracy.at[-1], accuracy.final) == (500, 0.9044)
    assert error is not None and error.values[0] == 39.774
    assert published.revenue("kmnist", "osmd") is None and published.accuracy("cifar10", "osmd") is None


def test_a_published_groups_mean_is_that_of_its_providers() -> None:
    groups = published.mixture_groups()
    assert [groups.count(g) for g in range(4)] == [25, 21, 30, 24]
    revenue = published.revenue("mixture", "osmd")
    assert revenue is not None
    first = [pay for pay, group in zip(revenue.mean, groups, strict=True) if group == 0]
    assert sum(first) / len(first) == pytest.approx(revenue.groups[0], abs=0.1)


def test_a_change_reaches_every_section_or_one() -> None:
    assert changed(FIGURES.mixture, {"rounds": "7", "mixture.rounds": "9"}).rounds == 9
    assert changed(FIGURES.runtime, {"rounds": "7", "mixture.rounds": "9"}).rounds == 7
    assert changed(FIGURES.runtime, {"runtime.providers": "5,10"}).providers == (5, 10)
    assert changed(FIGURES.images["mnist"], {"normalise": "false", "momentum": "0"}).normalise is False


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"learning_rate": "1"}, "there is no such setting"),
        ({"mixture.momentum": "1"}, "there is no such setting"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_list(changes: dict[str, str], words: str) -> None:
    with pytest.raises(BazaarError, match=words) as refused:
        checked(changes)
    assert "momentum" in str(refused.value) and "mixture.NAME" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value", "least"),
    [("rounds", "-3", 1), ("per_round", "0", 1), ("eta", "-1", 0), ("eta", "nan", 0), ("wrong_labels", "0,inf,0,0", 0)],
)
def test_a_number_out_of_range_is_refused_by_the_name_it_was_given(name: str, value: str, least: int) -> None:
    with pytest.raises(BazaarError, match=f"--set {name}={value}: take a number of at least {least}"):
        changed(FIGURES.images["mnist"], {name: value})
    assert changed(FIGURES.images["mnist"], {"data_seed": "0"}).data_seed == 0


@pytest.mark.parametrize(("name", "value"), [("rounds", "many"), ("repeats", "maybe"), ("network", "rnn")])
def test_a_value_of_the_wrong_kind_is_refused(name: str, value: str) -> None:
    with pytest.raises(BazaarError, match=f"--set {name}={value}"):
        changed(FIGURES.images["mnist"], {name: value})
