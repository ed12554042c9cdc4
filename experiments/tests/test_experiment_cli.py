"""`bazaar reproduce`: the quick run from end to end at its smallest, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from cli_markets import bazaar, contents

from small_runs import SETS

QUICK = ("reproduce", "all", "--quick", "--device", "cpu", *SETS)


def test_the_quick_run_from_end_to_end(tmp_path: Path) -> None:
    first = bazaar(*QUICK, "--out", "here", cwd=tmp_path)
    assert first.code == 0, first
    assert "What came out" in first.out and "page: here/index.html" in first.out
    left = contents(tmp_path / "here")
    for path in (
        "index.html",
        "raw/revenue.parquet",
        "raw/runtime.parquet",
        "figures/mixture.svg",
        "figures/runtime.png",
    ):
        assert path in left
    revenue = pd.read_parquet(tmp_path / "here/raw/revenue.parquet")
    assert set(revenue.method) == {"osmd", "uniform", "g-shapley", "fedsv"}
    assert set(revenue.dataset) == {"synthetic", "mixture"} and set(revenue.seed) == {0, 1}
    runtime = pd.read_parquet(tmp_path / "here/raw/runtime.parquet")
    assert sorted(set(runtime.providers)) == [4, 8] and (runtime.seconds > 0).all()
    assert not [path for path in left if path.endswith(".partial")]
    again = bazaar(*QUICK, "--out", "here", cwd=tmp_path)
    assert again.code == 0 and again.out == first.out
    assert contents(tmp_path / "here") == left, "nothing is computed again and the page is the same"


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
