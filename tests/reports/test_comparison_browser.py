"""The page of `bazaar compare` in a real browser: silent, and readable on a desk and on a phone."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from comparison_samples import FIVE, sample_comparison

from browsing import DESK, NEEDS_CHROMIUM, PHONE, assert_fits, laid_out, visit
from databazaar.money import Currency
from databazaar.reports.valuation_page import render_comparison

pytestmark = NEEDS_CHROMIUM
NAMES = ("north", "<script>alert(1)</script>", "n" * 120, *(f"provider {i}" for i in range(20)))


@cache
def comparison_page() -> str:
    return render_comparison(sample_comparison(NAMES, seeds=3), title="Who is worth what", currency=Currency("EUR", 2))


def test_the_comparison_asks_for_nothing_and_complains_of_nothing(tmp_path: Path) -> None:
    page = tmp_path / "comparison.html"
    page.write_text(comparison_page(), encoding="utf-8")
    seen = visit(page)
    assert seen.console == [] and seen.requests == []
    assert "<button" in seen.dom, "the sorting script did not run"


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_the_comparison_fits(tmp_path: Path, width: int) -> None:
    shown = laid_out(comparison_page(), width, tmp_path)
    assert_fits(shown, width)
    assert "<script>alert(1)</script>" in shown["text"]
    assert max(rows for _, rows, _, _ in shown["tables"]) >= len(NAMES)
    assert max(rows for _, rows, _, _ in shown["tables"] if rows < len(NAMES)) >= len(FIVE)
