"""What each provider brought: on the page, in the figures, in statements and in a terminal."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from html_pages import Page
from report_samples import sample_report
from rich.console import Console

from databazaar import OSMD
from databazaar.cli import statements
from databazaar.cli.play import payout_table
from databazaar.money import Currency
from databazaar.reports.run_page import render
from databazaar.reports.statement import statement_csv, statement_dict
from databazaar.reports.words import PerCoin
from databazaar.runs.report import Report
from databazaar.runs.trajectory import Trajectory
from known_gains import SIX, Seller, played


@pytest.fixture(scope="module")
def report() -> Report:
    return played(SIX, most_per_access=20, currency=Currency("EUR", 2))


def test_the_page_shows_gains_shares_and_the_whole_sentence(report: Report) -> None:
    page = Page(render(report, title="A run"))
    text, per_coin = " ".join(" ".join(page.text).split()), PerCoin.of(report)
    for one in report.brought:
        assert str(one.why) in text
        assert per_coin.plain(one.gain_per_coin, one.gain_per_coin_error) in text
        assert f"{100 * one.share_at_start:.1f} → {100 * one.share_at_end:.1f} %" in text
    assert f"{per_coin.coins:,} EUR" in text and per_coin.plain(report.gain_per_coin) in text
    assert "the provider’s share of what the round added to the utility" in text
    assert page.elements["b"] == 0, "a name stays text"
    alone = " ".join(Page(render(played(SIX, OSMD(1.0, 0.1)), title="A run")).text)
    assert "what the provider’s update alone would add to the utility" in alone


@pytest.mark.parametrize("case", ["nobody paid", "no round", "one provider", "zero gains"])
def test_the_page_holds_where_there_is_little_to_show(case: str) -> None:
    made = {
        "nobody paid": lambda: sample_report(failure_rate=1.0),
        "no round": lambda: sample_report(rounds=0),
        "one provider": lambda: sample_report(["alone"]),
        "zero gains": lambda: played({"a": Seller(0.0, noise=0.0), "b": Seller(0.0, noise=0.0)}),
    }[case]()
    page = Page(render(made, title="A run"))
    assert page.elements["figure"] == 3
    assert {str(one.why) for one in made.brought} <= {" ".join(words.split()) for words in page.text}


def test_the_first_column_of_shares_is_the_share_at_the_start(report: Report) -> None:
    shares = Trajectory(report).shares
    assert np.allclose(shares[0], [one.share_at_start for one in report.brought])
    assert shares.shape == report.distributions.shape


def test_statements_tell_the_consumer_all_and_each_provider_its_reason(report: Report) -> None:
    whole = json.loads(json.dumps(statement_dict(report)))
    assert whole["gain_per_coin"] == report.gain_per_coin
    lines = {line["provider"]: line for line in csv.DictReader(io.StringIO(statement_csv(report)))}
    for one, stated in (
        (one, next(s for s in whole["providers"] if s["provider"] == one.provider)) for one in report.brought
    ):
        assert (stated["reason"], stated["why"]) == (one.why.kind, str(one.why))
        assert stated["gain_per_coin"] == one.gain_per_coin and stated["share_at_end"] == one.share_at_end
        written = lines[one.provider]
        assert written["why"] == str(one.why)
        assert written["gain_per_coin"] == ("" if one.gain_per_coin is None else str(one.gain_per_coin))
        own = statements.provider_dict(report, one.provider)
        assert own["why"] == str(one.why) and not {"gain_per_coin", "ahead", "share_at_end"} & own.keys()
        for item in csv.DictReader(io.StringIO(statements.one(report, one.provider, as_csv=True))):
            assert item["why"] == str(one.why)


@pytest.mark.parametrize("notes", [None, {"good": "what is true of it"}])
def test_a_terminal_of_80_columns_holds_the_closing_table(report: Report, notes: dict[str, str] | None) -> None:
    named = {f"bank-of-somewhere-{i}": line for i, line in enumerate(report.payouts)}
    lines = tuple(replace(line, provider=name) for name, line in named.items())
    shown = replace(report, payouts=lines)
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(payout_table(shown, notes))
    text = console.export_text()
    rows = [line for line in text.splitlines() if "bank-of-somewhere" in line]
    assert len(rows) == len(lines) and max(map(len, text.splitlines())) <= 80
    if notes is not None:
        assert "what it sells" in text and "gain per" not in text, "there is no room for both"
        return
    for words in ("more for its money", "too dear", "replies failed", "used up"):
        assert any(row.rstrip().endswith(words) for row in rows), words
    assert "gain per" in text and f"{PerCoin.of(shown).coins:,} EUR" in text


@pytest.mark.parametrize("scale", [1e6, 1.0, 1e-3, 1e-30, 0.0])
def test_the_unit_leaves_few_zeros_to_count(scale: float) -> None:
    sellers = {name: Seller(scale * brings, noise=scale) for name, brings in (("a", 3.0), ("b", 1.0))}
    report = played(sellers, OSMD(1e-7, 0.5))
    coins = PerCoin.of(report).coins
    usual = sum(one.share * abs(one.gain_per_coin or 0.0) for one in report.brought)
    assert usual * coins >= 0.01 or coins == (10**9 if usual else 1)
    assert coins == 1 or usual * coins / 10 < 0.01
    assert PerCoin(1, "EUR").plain(123456.0, 12.0) == "123,456 ± 12"
