"""The measured parts in the repository: whole, found by their names, and what the documentation says of them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from databazaar_experiments import published
from databazaar_experiments.compute import missing
from databazaar_experiments.methods import PAPER_METHODS
from databazaar_experiments.plan import ReproductionPlan
from databazaar_experiments.published import DATASET_NAMES
from databazaar_experiments.results import Results, gather
from databazaar_experiments.verdicts import judge
from databazaar_experiments.wall_times import behind

HERE = Path(__file__).parents[1]
SAID = (HERE.parent / "docs" / "results.md").read_text(encoding="utf-8")
PLANS = {
    "h200": ReproductionPlan(),
    "h200-text": ReproductionPlan(whats=("accuracy",), methods=("osmd", "uniform"), protocol="text"),
}


@pytest.fixture(scope="module")
def measured() -> dict[str, Results]:
    return {name: gather(plan, HERE / name / "parts") for name, plan in PLANS.items()}


@pytest.mark.parametrize("name", PLANS)
def test_no_part_is_missing_left_over_or_untimed(measured: dict[str, Results], name: str) -> None:
    """A setting that is changed or added renames parts: those that it does not concern are renamed with it."""
    folder, results = HERE / name / "parts", measured[name]
    assert [part.name for part in missing(PLANS[name], folder, 10)] == []
    assert results.parts == {path.stem for path in folder.glob("*.npz")}
    runs, untimed = behind(results.wall_times, results.parts)
    assert not untimed and runs == list(results.wall_times)


def test_every_target_holds(measured: dict[str, Results]) -> None:
    verdicts = judge(measured["h200"])
    assert [verdict for verdict in verdicts if verdict.word != "holds"] == []
    assert f"All {len(verdicts)} targets hold" in SAID


def pay(results: Results, dataset: str, method: str) -> str:
    return ", ".join(f"{mean:.1f}" for mean in results.group_means(dataset, method))


def spread(results: Results, dataset: str, method: str) -> str:
    """Standard deviation of a provider's pay over the seeds, its mean in each group."""
    deviation = results.pay(dataset, method).std(ddof=0).to_numpy()
    return ", ".join(f"{value:.1f}" for value in pd.Series(deviation).groupby(results.groups(dataset)).mean())


def final(results: Results, dataset: str, method: str, digits: int = 4) -> str:
    return f"{results.curve(dataset, method).iloc[:, -1].mean():.{digits}f}"


def timed(results: Results, dataset: str, n: int) -> str:
    """Seconds of each method; on MNIST with the published ones in brackets."""
    cells = ""
    for method in PAPER_METHODS:
        mine = results.runtime[(results.runtime.dataset == dataset) & (results.runtime.method == method)]
        line = published.runtime(dataset, method)
        assert line is not None
        theirs = f" ({dict(zip(line.at, line.values, strict=True))[n]:,.0f})" if dataset == "mnist" else ""
        cells += f" {float(mine[mine.providers == n].seconds.iloc[0]):.1f}{theirs} |"
    return cells


def rows_of(dataset: str) -> list[str]:
    return [row for row in SAID.splitlines() if row.startswith(f"| {dataset} |")]


def test_the_documentation_has_the_numbers_of_the_parts(measured: dict[str, Results]) -> None:
    figures, text = measured["h200"], measured["h200-text"]
    for dataset in figures.datasets:
        rows = rows_of(DATASET_NAMES[dataset])
        osmd, uniform = (final(figures, dataset, method) for method in ("osmd", "uniform"))
        assert any(row.split(" | ")[1] == osmd and uniform in row for row in rows), osmd
        by_group = " | ".join(pay(figures, dataset, method) for method in PAPER_METHODS)
        assert any(by_group in row for row in rows), by_group
        drawn = f"{pay(figures, dataset, 'osmd')} | {spread(figures, dataset, 'osmd')} | {osmd} |"
        assert f"| {DATASET_NAMES[dataset]}, without replacement | {drawn}" in SAID, drawn
        as_told = f"{final(text, dataset, 'osmd')} | {final(text, dataset, 'uniform')} | {pay(text, dataset, 'osmd')}"
        assert any(as_told in row for row in rows), as_told
        for n in (50, 100, 200, 400) if dataset == "mnist" else (400,):
            head = "" if dataset == "mnist" and n > 50 else f"{DATASET_NAMES[dataset]} "
            line = f"| {head}| {n} |{timed(figures, dataset, n)}"
            assert line in SAID, line
    assert f"| **all of it** | | **{sum(run.seconds for run in figures.wall_times):.1f}** |" in SAID
    mixture = [row for row in SAID.splitlines() if row.startswith(("| revenue, groups", "| final estimation"))]
    assert all(pay(figures, "mixture", method) in mixture[0] for method in PAPER_METHODS)
    assert all(final(figures, "mixture", method, 3) in mixture[1] for method in ("osmd", "uniform"))
