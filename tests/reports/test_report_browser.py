"""The report in a real browser: silent console, silent network, and readable on a desk and on a phone."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from report_samples import sample_report, sample_worth

from browsing import DESK, NEEDS_CHROMIUM, PHONE, assert_fits, laid_out, scripted, visit
from databazaar.ledger import Audit
from databazaar.money import Currency
from databazaar.reports.run_page import render

pytestmark = NEEDS_CHROMIUM


@cache
def report_page() -> str:
    report = sample_report(["north", "<script>alert(1)</script>", "n" * 200], rounds=40)
    report = replace(report, worth=sample_worth(f"{'n' * 200}, of the 3 paid most"))
    return render(report, title="Browser test", audit=Audit(5))


def test_the_report_asks_for_nothing_and_complains_of_nothing(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(report_page(), encoding="utf-8")
    seen = visit(page)
    assert seen.console == []
    assert seen.requests == []
    assert "<button" in seen.dom, "the sorting script did not run"


def test_the_watch_itself_sees_requests_and_errors(tmp_path: Path) -> None:
    page = tmp_path / "noisy.html"
    page.write_text('<img src="http://market.invalid/pixel.png"><script>console.error("oops")</script>')
    seen = visit(page)
    assert any("oops" in line for line in seen.console)
    assert "http://market.invalid/pixel.png" in seen.requests


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_headline_numbers_are_visible_and_nothing_overflows(tmp_path: Path, width: int) -> None:
    shown = laid_out(report_page(), width, tmp_path)
    report = sample_report(["north", "<script>alert(1)</script>", "n" * 200], rounds=40)
    for minor in (report.budget, report.spent, report.refunded):
        assert report.currency.amount(minor) in shown["text"]
    assert f"{report.final_utility:.4g}" in shown["text"]
    assert "<script>alert(1)</script>" in shown["text"]
    assert_fits(shown, width)


MANY = [f"origin-{i:02d}-of-month-{i % 12 + 1:02d}" for i in range(36)]


def test_on_a_phone_who_was_paid_shows_accesses_and_pay_without_scrolling(tmp_path: Path) -> None:
    report = sample_report(MANY, rounds=20, prices=[12_345] * 36, currency=Currency("credits", 2))
    shown = laid_out(render(report, title="Many"), PHONE, tmp_path)
    provider, accesses, pay, *_ = shown["heads"]["Payouts"]
    assert (provider[0].split()[0], accesses[0].split()[0], pay[0].split()[0]) == ("Provider", "Accesses", "Pay")
    for name, left, right in (provider, accesses, pay):
        assert left >= 0 and right <= PHONE, name
    assert shown["hidden"]["Payouts"] <= 0, "the box scrolls inside the page"
    assert_fits(shown, PHONE)


@pytest.mark.parametrize(("providers", "all_shown"), [(50, True), (120, False)])
def test_on_a_desk_all_rows_are_shown_up_to_fifty(tmp_path: Path, providers: int, all_shown: bool) -> None:
    report = sample_report([f"p{i}" for i in range(providers)], rounds=10)
    shown = laid_out(render(report, title="Many"), 1280, tmp_path)
    assert (shown["hidden"]["Payouts"] <= 0) == all_shown
    assert_fits(shown, 1280)


def test_the_table_sorts_by_value(tmp_path: Path) -> None:
    """A click on "Accesses" puts the largest first, a second one last."""
    click = """
        const table = document.querySelector("[aria-label=Payouts] table");
        const head = table.querySelector("thead th:nth-child(2) button");
        const cells = () => [...table.querySelectorAll("tbody td:nth-child(2)")];
        const values = () => cells().map((cell) => +cell.dataset.value);
        head.click(); const down = values(); head.click();
        document.title = JSON.stringify([down, values()]);"""
    page = tmp_path / "report.html"
    page.write_text(scripted(report_page(), click), encoding="utf-8")
    told = re.search(r"<title>(.*?)</title>", visit(page).dom)
    assert told is not None
    down, up = json.loads(told[1])
    assert down == sorted(down, reverse=True) and up == sorted(up) and len(set(down)) > 1


@pytest.mark.parametrize("width", [PHONE, 1280])
def test_whether_it_was_worth_it_can_be_read(tmp_path: Path, width: int) -> None:
    """The verdict, and every model beside the bought one; the table scrolls in its own box where it is too wide."""
    shown = laid_out(report_page(), width, tmp_path)
    assert "It was worth it: the bought model beats your own rows alone by 0.05 ± 0.01" in shown["text"]
    heads = shown["heads"]["The bought model and its alternatives"]
    assert [name.split("\n")[0] for name, _, _ in heads] == [
        "ahead in log loss",
        "accuracy",
        "log loss",
        "auc",
        "brier",
    ]
    for title in ("the bought model", "your own rows alone", "everybody asked alike", "the best single provider"):
        assert title in shown["text"]
    assert_fits(shown, width)
