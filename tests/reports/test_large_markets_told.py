"""What is told of markets of many providers: the best paid by name, all others together, and sums of the whole."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from html_pages import Page
from hypothesis import given
from hypothesis import strategies as st
from report_samples import sample_report
from rich.console import Console

from databazaar.cli.play import MOST_LINES, payout_table
from databazaar.cli.statements import everyone, provider_dict
from databazaar.reports.figures import distribution
from databazaar.reports.run_page import render, who_was_paid
from databazaar.reports.statement import statement_csv, statement_dict
from databazaar.runs.payouts import MOST_LISTED, MOST_NAMED, Payout, Payouts
from databazaar.runs.report import Report

COUNTS = st.integers(0, 3)
LINES = st.lists(st.tuples(st.integers(1, 9), COUNTS, COUNTS, COUNTS), min_size=1, max_size=40).map(
    lambda lines: [
        Payout(f"p{i}", f"o{i % 3}", price, accesses, accesses * pay, failures)
        for i, (price, accesses, pay, failures) in enumerate(lines)
    ]
)


@pytest.fixture(scope="module")
def large() -> Report:
    """Four hundred providers, of whom a third were never asked."""
    names = [f"provider {i}" for i in range(400)]
    return sample_report(names, owners=[f"owner {i // 3}" for i in range(400)], rounds=50, per_round=10)


@given(LINES)
def test_columns_are_what_the_lines_come_to(lines: list[Payout]) -> None:
    columns = Payouts(lines)
    assert columns == tuple(lines) and columns[-1] == lines[-1] and columns[1:3] == tuple(lines[1:3])
    asked = [place for place, line in enumerate(lines) if line.accesses or line.failures]
    assert columns.asked.tolist() == asked
    obvious = sorted(range(len(lines)), key=lambda place: (-lines[place].pay, lines[place].provider))
    assert columns.best_paid(everybody=True) == obvious
    assert columns.best_paid(3) == [place for place in obvious if place in asked][:3]
    for name in ("accesses", "failures", "pay"):
        whole = sum(getattr(line, name) for line in lines)
        assert getattr(columns.whole, name) == whole
    assert columns.listed(3) == (obvious, None), "so few have a line each"
    assert columns.whole.providers == len(lines)


@pytest.mark.usefixtures("no_figures")
def test_a_page_names_the_best_paid_and_adds_up(large: Report) -> None:
    page = Page(render(large, title="A run"))
    told = who_was_paid(large)
    best = [large.lines.ids[place] for place in large.lines.best_paid(everybody=True)]
    assert {name for name in page.row_heads if name.startswith("provider ")} == set(best[:MOST_NAMED])
    for name in ("accesses", "pay", "failures"):
        shown = sum(getattr(line, name) for line in told["payouts"]) + getattr(told["others"], name)
        assert shown == sum(getattr(line, name) for line in large.payouts)
    assert f"{400 - MOST_NAMED} others" in page.row_heads
    assert len(told["owners"]) == MOST_NAMED
    assert f"The {MOST_NAMED} best paid of {told['all_owners']} owners." in page.words
    assert "bazaar show RUN statement --csv" in page.words


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("providers", [MOST_LISTED, MOST_LISTED + 1])
def test_up_to_two_hundred_have_a_line_each(providers: int) -> None:
    names = [f"provider {i}" for i in range(providers)]
    heads = set(Page(render(sample_report(names, rounds=9, per_round=20), title="A run")).row_heads)
    assert len(heads & set(names)) == (providers if providers <= MOST_LISTED else MOST_NAMED)
    assert any(head.endswith(" others") for head in heads) == (providers > MOST_LISTED)


def test_the_figure_of_chances_has_a_row_for_all_others(large: Report) -> None:
    axes = distribution(large).axes[0]
    drawn = np.asarray(axes.images[0].get_array())
    best = np.argsort(-large.lines.pay, kind="stable")[: len(drawn) - 1]
    np.testing.assert_allclose(drawn[:-1], large.distributions.T[best])
    np.testing.assert_allclose(drawn[-1] * (400 - len(best)) + drawn[:-1].sum(axis=0), 1.0)
    assert "361 others" in axes.get_ylabel()


def test_a_screen_shows_twenty_lines_and_the_others(large: Report) -> None:
    screen = Console(file=io.StringIO(), width=80)
    screen.print(payout_table(large, None))
    assert isinstance(screen.file, io.StringIO)
    lines = screen.file.getvalue().splitlines()
    assert sum(re.search(r"provider \d", line) is not None for line in lines) == MOST_LINES
    assert any("380 others" in line for line in lines)


def test_statements_have_everybody(large: Report) -> None:
    lines = list(csv.DictReader(io.StringIO(statement_csv(large))))
    assert len(lines) == 400 and sum(int(line["pay"]) for line in lines) == large.spent
    stated = statement_dict(large)
    assert len(stated["providers"]) == 400
    assert sum(owner["pay"] for owner in stated["owners"]) == large.spent


def test_of_many_the_best_paid_have_a_line_and_all_others_one(large: Report) -> None:
    named, others = large.lines.listed(50)
    assert (
        others is not None
        and named == large.lines.best_paid(50)
        and (others.title, others.providers)
        == (
            "350 others",
            350,
        )
    )
    for name in ("accesses", "failures", "pay"):
        told = sum(getattr(large.lines[place], name) for place in named)
        assert told + getattr(others, name) == getattr(large.lines.whole, name)


def test_a_statement_in_words_names_the_best_paid_and_says_who_is_where(large: Report) -> None:
    told = everyone(large, as_json=False, as_csv=False)
    assert sum(line.startswith("provider ") for line in told.splitlines()) == MOST_NAMED
    assert "350 others" in told and "--csv has everybody" in told
    assert len(json.loads(everyone(large, as_json=True, as_csv=False))["providers"]) == 400


def test_one_providers_statement_is_found_by_its_rounds(large: Report) -> None:
    place = large.lines.best_paid(1)[0]
    items = provider_dict(large, large.lines.ids[place])["items"]
    obvious = [(one.number, a.draw) for one in large.rounds for a in one.accesses if a.provider == place]
    assert [(item["round"], item["draw"]) for item in items] == obvious


def test_a_notebook_shows_ten_of_them(large: Report) -> None:
    assert "… and 390 more" in repr(large) and "… and 390 more" in large._repr_html_()
    assert repr(replace(large, payouts=large.payouts[:])) == repr(large)
