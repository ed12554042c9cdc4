"""The page of a quick reproduction in a real browser: figures and verdicts to be seen, on a desk and on a phone."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_markets import bazaar

from browsing import DESK, NEEDS_CHROMIUM, PHONE, assert_fits, laid_out, visit
from databazaar_experiments.page import render
from databazaar_experiments.plan import ReproductionPlan
from small_runs import SETS, pretended

pytestmark = NEEDS_CHROMIUM


@pytest.fixture(scope="module")
def quick_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reproduced")
    done = bazaar("reproduce", "all", "--quick", "--device", "cpu", *SETS, "--out", "here", cwd=folder)
    assert done.code == 0, done
    return folder / "here" / "index.html"


def test_the_page_asks_for_nothing_and_complains_of_nothing(quick_page: Path, tmp_path: Path) -> None:
    seen = visit(quick_page, tmp_path / "visit")
    assert seen.console == [] and seen.requests == []


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_figures_and_verdicts_can_be_seen(quick_page: Path, tmp_path: Path, width: int) -> None:
    shown = laid_out(quick_page.read_text(encoding="utf-8"), width, tmp_path / "frame")
    assert_fits(shown, width)
    assert len(shown["figures"]) == 4
    rows = {name: count for name, count, _, _ in shown["tables"]}
    assert rows["Verdicts"] >= 7 and rows["Image markets"] > 20
    assert "OSMD" in shown["text"] and "Computing took" in shown["text"]


def test_a_page_with_long_reasons_fits_a_phone(tmp_path: Path) -> None:
    made = {("mnist", "osmd"): ([100.0, 90.0, 80.0, 70.0], 0.7), ("mnist", "fedsv"): ([168.8, 135.3, 87.7, 20.0], 0.5)}
    page = render(pretended(tmp_path / "parts", made, ReproductionPlan()))
    shown = laid_out(page, PHONE, tmp_path / "frame")
    assert_fits(shown, PHONE)
    assert "Why: Off by 4.5 units" in shown["text"] and "Why: The cause is not known." in shown["text"]
