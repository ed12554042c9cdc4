"""The report's section on the tables: complete, escaped, sortable, and readable on a desk and on a phone."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from html_pages import Page
from matplotlib.figure import Figure
from profile_samples import sample_profile
from report_samples import sample_report

from browsing import DESK, NEEDS_CHROMIUM, PHONE, assert_fits, laid_out, visit
from databazaar.data.profile_record import MarketProfile
from databazaar.reports.figures import draw_all
from databazaar.reports.run_page import render

REPORT = sample_report()
HOSTILE = "<script>alert(1)</script>\u202e\x00"


@cache
def drawn() -> dict[str, Figure]:
    return draw_all(REPORT)


def page_with(profile: MarketProfile | None) -> str:
    return render(REPORT, title="A run", profile=profile, drawn=drawn())


def test_the_section_says_all_that_is_known() -> None:
    page = Page(page_with(sample_profile()))
    for wanted in (
        "The tables before the purchase",
        "no 75.0 %, yes 25.0 %",
        "12.5 %",
        "north is odd: ask.",
        "north, south",
        "left out (different in every row)",
        "$12.30",
        "How 2 columns were read, to predict churn",
    ):
        assert wanted in page.words, wanted
    assert page.words.count("shared") == 1
    assert "hold-out" in page.row_heads


def test_without_a_profile_there_is_no_section() -> None:
    assert "The tables before" not in page_with(None)


def test_a_regression_has_no_classes_and_a_clean_market_nothing_odd() -> None:
    clean = sample_profile(names=[], task="regression")
    words = Page(page_with(clean)).words
    assert "Classes" not in words and "What was odd" not in words and "1,200" in words


def test_hostile_words_stay_words() -> None:
    page = Page(page_with(sample_profile([HOSTILE])))
    assert "<script>alert(1)</script>" in page.words and "\u202e" not in page.words
    assert not any("<script>" in loose for loose in page.loose)


@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.browser
@NEEDS_CHROMIUM[1]
def test_it_fits_the_screen(tmp_path: Path, width: int) -> None:
    shown = laid_out(page_with(sample_profile(["n" * 90, HOSTILE])), width, tmp_path)
    assert "The tables before the purchase" in shown["text"]
    assert_fits(shown, width)


@pytest.mark.browser
@NEEDS_CHROMIUM[1]
def test_it_is_silent(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page_with(sample_profile()), encoding="utf-8")
    seen = visit(path)
    assert seen.console == [] and seen.requests == []
