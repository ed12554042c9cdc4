"""`bazaar reproduce`: the quick run from end to end at its smallest, its page in a browser, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from cli_markets import Outcome, bazaar, contents

from browsing import DESK, NEEDS_CHROMIUM, PHONE, assert_fits, laid_out, visit
from databazaar_experiments.page import render
from databazaar_experiments.plan import ReproductionPlan
from small_runs import SETS, pretended

QUICK = ("reproduce", "all", "--quick", "--device", "cpu", *SETS)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """A quick run in here/, and what it printed."""
    folder = tmp_path_factory.mktemp("reproduced")
    done = bazaar(*QUICK, "--out", "here", cwd=folder)
    assert done.code == 0, done
    return folder, done


@pytest.mark.slow
def test_the_quick_run_from_end_to_end(quick: tuple[Path, Outcome]) -> None:
    folder, first = quick
    assert "What came out" in first.out and "page: here/index.html" in first.out
    left = contents(folder / "here")
    for path in (
        "index.html",
        "raw/revenue.parquet",
        "raw/runtime.parquet",
        "figures/mixture.svg",
        "figures/runtime.png",
    ):
        assert path in left
    revenue = pd.read_parquet(folder / "here/raw/revenue.parquet")
    assert set(revenue.method) == {"osmd", "uniform", "g-shapley", "fedsv"}
    assert set(revenue.dataset) == {"synthetic", "mixture"} and set(revenue.seed) == {0, 1}
    runtime = pd.read_parquet(folder / "here/raw/runtime.parquet")
    assert sorted(set(runtime.providers)) == [4, 8] and (runtime.seconds > 0).all()
    assert not [path for path in left if path.endswith(".partial")]
    again = bazaar(*QUICK, "--out", "here", cwd=folder)
    assert again.code == 0 and again.out == first.out
    assert contents(folder / "here") == left, "nothing is computed again and the page is the same"


@NEEDS_CHROMIUM[0]
@NEEDS_CHROMIUM[1]
def test_the_page_asks_for_nothing_and_complains_of_nothing(quick: tuple[Path, Outcome]) -> None:
    seen = visit(quick[0] / "here/index.html")
    assert seen.console == [] and seen.requests == []


@NEEDS_CHROMIUM[0]
@NEEDS_CHROMIUM[1]
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_figures_and_verdicts_can_be_seen(quick: tuple[Path, Outcome], tmp_path: Path, width: int) -> None:
    shown = laid_out((quick[0] / "here/index.html").read_text(encoding="utf-8"), width, tmp_path)
    assert_fits(shown, width)
    assert len(shown["figures"]) == 4
    rows = {name: count for name, count, _, _ in shown["tables"]}
    assert rows["Verdicts"] >= 7 and rows["Image markets"] > 20
    assert "OSMD" in shown["text"] and "Computing took" in shown["text"]


@NEEDS_CHROMIUM[0]
@NEEDS_CHROMIUM[1]
def test_a_page_with_long_reasons_fits_a_phone(tmp_path: Path) -> None:
    made = {("mnist", "osmd"): ([100.0, 90.0, 80.0, 70.0], 0.7), ("mnist", "fedsv"): ([168.8, 135.3, 87.7, 20.0], 0.5)}
    page = render(pretended(tmp_path / "parts", made, ReproductionPlan()))
    shown = laid_out(page, PHONE, tmp_path)
    assert_fits(shown, PHONE)
    assert "Why: Off by 4.5 units" in shown["text"] and "Why: The cause is not known." in shown["text"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("figures",), "use all, revenue, accuracy, runtime, mixture"),
        (("all", "--dataset", "mnist,imagenet"), "dataset 'imagenet' is unknown: use mnist, fmnist, kmnist, cifar10"),
        (("all", "--protocol", "other"), "use figures or text"),
        (("all", "--set", "rate=1"), "--set rate: there is no such setting: use one of rounds, network"),
        (("all", "--set", "rounds"), "NAME=VALUE"),
        (("all", "--set", "rounds=few"), "--set rounds=few: write it like"),
        (("mixture", "--device", "abacus"), "device 'abacus' is not here"),
        (("all", "--render-only"), "holds no finished part"),
        (("revenue", "--dataset", ","), "name a dataset"),
    ],
)
def test_refused_in_one_sentence_and_nothing_is_written(tmp_path: Path, args: tuple[str, ...], words: str) -> None:
    refused = bazaar("reproduce", *args, "--out", "here", cwd=tmp_path)
    assert words in refused.complaint
    assert contents(tmp_path) == {}


def test_no_data_and_no_network_names_both_remedies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sklearn.datasets

    def offline(*_: object, **__: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", offline)
    refused = bazaar("reproduce", "all", "--data-dir", "data", "--out", "here", cwd=tmp_path)
    complaint = refused.complaint
    assert "cannot be fetched" in complaint and "--data-dir or BAZAAR_DATA" in complaint and "go online" in complaint
    assert contents(tmp_path) == {}
