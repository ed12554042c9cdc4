"""What each provider brought, in a real browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from browsing import DESK, NEEDS_CHROMIUM, PHONE, assert_fits, laid_out, scripted, visit
from databazaar.money import Currency
from databazaar.reports.run_page import render
from databazaar.runs.report import Report
from known_gains import SIX, played

pytestmark = NEEDS_CHROMIUM


@pytest.fixture(scope="module")
def report() -> Report:
    return played(SIX, most_per_access=20, currency=Currency("EUR", 2))


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_it_can_be_read_on_a_desk_and_on_a_phone(report: Report, tmp_path: Path, width: int) -> None:
    shown = laid_out(render(report, title="A run"), width, tmp_path)
    assert_fits(shown, width)
    assert "What each brought, and why it was asked" in shown["text"]
    heads = shown["heads"]["What each provider brought"]
    assert [name.split("\n")[0] for name, _, _ in heads][:3] == [
        "Provider",
        "Why it was asked as often as it was",
        "Gain per coin",
    ]
    if width == DESK:
        assert all(left >= 0 and right <= width for _, left, right in heads), "a desk shows the whole table"
    for one in report.brought:
        assert str(one.why) in shown["text"]


def test_the_table_sorts_by_gain_per_coin_and_the_page_stays_silent(report: Report, tmp_path: Path) -> None:
    click = """
        const table = document.querySelector("[aria-label='What each provider brought'] table");
        table.querySelector("thead th:nth-child(3) button").click();
        const cells = [...table.querySelectorAll("tbody td:nth-child(3)")];
        document.title = JSON.stringify(cells.map((cell) => +cell.dataset.value));"""
    page = tmp_path / "report.html"
    page.write_text(scripted(render(report, title="A run"), click), encoding="utf-8")
    seen = visit(page)
    told = re.search(r"<title>(.*?)</title>", seen.dom)
    assert told is not None and seen.console == [] and seen.requests == []
    values = json.loads(told[1])
    assert values == sorted(values, reverse=True) and len(set(values)) > 2
