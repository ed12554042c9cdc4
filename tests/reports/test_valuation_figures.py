"""The figures and the page of a comparison: drawn for few and for many, with and without intervals."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from comparison_samples import FIVE, sample_comparison
from html_pages import Page
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from databazaar.money import Currency
from databazaar.reports import valuation_figures
from databazaar.reports.valuation_page import (
    CSV_HEADS,
    agreement_pairs,
    comparison_csv,
    favourites,
    mean_amount,
    render_comparison,
    survivors,
)
from databazaar.valuation import METHODS

EUR = Currency("EUR", 2)


def texts(figure: Figure) -> list[str]:
    return [artist.get_text() for artist in figure.findobj() if isinstance(artist, Text)]


def test_every_method_has_a_look_of_its_own() -> None:
    marks = valuation_figures.MARKS
    assert marks.keys() == set(METHODS)
    assert len({colour for colour, _ in marks.values()}) == len({shape for _, shape in marks.values()}) == len(marks)


def test_a_method_that_nobody_here_knows_gets_a_look_too(tmp_path: Path) -> None:
    others = [f"_method {i} \u202e🦊" for i in range(12)]
    looks = valuation_figures.marks([*others, *METHODS])
    assert {method: looks[method] for method in METHODS} == valuation_figures.MARKS
    assert len(set(looks.values())) == len(looks) and looks == valuation_figures.marks([*METHODS, *others])
    for providers in (3, 100):
        comparison = sample_comparison([f"p{i}" for i in range(providers)], (*others, "osmd"))
        valuation_figures.save_overview(comparison, EUR, tmp_path / "sheet.png")
        page = render_comparison(comparison, title="A market", currency=EUR)
        assert page.count("<svg ") == 3 and "_method 11" in page
    shown = (
        valuation_figures.figure("payouts", sample_comparison(methods=("_acme", "osmd")), EUR).legends[0].get_texts()
    )
    assert [text.get_text() for text in shown] == ["_acme", "osmd"]


@pytest.mark.parametrize(("providers", "methods", "seeds"), [(1, ("osmd",), 1), (9, tuple(METHODS), 3), (100, FIVE, 3)])
def test_the_sheet_as_png(tmp_path: Path, providers: int, methods: tuple[str, ...], seeds: int) -> None:
    comparison = sample_comparison([f"p{i}" for i in range(providers)], methods, seeds=seeds)
    path = tmp_path / "comparison.png"
    valuation_figures.save_overview(comparison, EUR, path)
    with Image.open(path) as image:
        assert image.format == "PNG" and image.width == 1700 and 800 <= image.height <= 2000
        colours = image.convert("RGB").getcolors(maxcolors=1 << 24)
        assert colours is not None and len(colours) > 20


def test_few_providers_are_named_and_many_get_a_strip_a_method() -> None:
    few = texts(valuation_figures.figure("payouts", sample_comparison(["harbour", "meadow"]), EUR))
    assert {"harbour", "meadow", *FIVE} <= set(few)
    many = valuation_figures.figure("payouts", sample_comparison([f"p{i}" for i in range(100)], seeds=2), EUR)
    assert len(many.axes) == len(FIVE)
    assert "100 providers, best paid by osmd first" in texts(many)


def test_dots_lie_where_the_payouts_are() -> None:
    comparison = sample_comparison(["a", "b", "c"], ("osmd", "loo"))
    axes = valuation_figures.figure("payouts", comparison, EUR).axes[0]
    order = valuation_figures.ranked(comparison)
    drawn = [np.asarray(line.get_xdata()).tolist() for line in axes.lines]
    assert drawn == [outcome.payouts[0][order].tolist() for outcome in comparison.outcomes]
    assert drawn[0] == sorted(drawn[0], reverse=True)
    low, high = axes.get_xlim()
    assert low == 0 and high > max(map(max, drawn))


def test_a_method_that_pays_all_alike_has_no_correlation() -> None:
    shown = texts(
        valuation_figures.figure("correlations", sample_comparison(methods=("osmd", "uniform"), budget=99_999), EUR)
    )
    assert shown.count("–") == 3 and "1.00" in shown


def test_costs_are_written_beside_logarithmic_bars() -> None:
    figure = valuation_figures.figure("costs", sample_comparison(), EUR)
    assert [axes.get_xscale() for axes in figure.axes] == ["log", "log"]
    assert {"0.02", "12", "10", "24,010"} <= set(texts(figure))


def test_the_page_holds_everything_escaped_and_loads_nothing() -> None:
    comparison = sample_comparison(["north", "<script>alert(1)</script>", "n" * 100], seeds=3)
    page = render_comparison(comparison, title="A <b>bold</b> market", currency=EUR)
    assert "<script>alert(1)" not in page and "<b>bold" not in page
    assert not re.search(r'(src|href)="(?!#)', page)
    assert page.count("<svg ") == 3
    for head in ("Who is paid what", "Would it stand?", "Rank correlations", "What it cost", "Settings"):
        assert f"<h2>{head}</h2>" in page
    assert {"1,000.00 EUR", "0 to 2"} <= {value for values in Page(page).pairs.values() for value in values}
    assert "the cap of 500 permutations" in page


def test_csv_tells_payouts_and_intervals() -> None:
    comparison = sample_comparison(["north", 'so"uth, ltd'], ("osmd", "loo"), seeds=3)
    rows = list(csv.DictReader(io.StringIO(comparison_csv(comparison, EUR))))
    assert tuple(rows[0]) == CSV_HEADS
    assert [(row["provider"], row["method"]) for row in rows[2:]] == [('so"uth, ltd', "osmd"), ('so"uth, ltd', "loo")]
    for row in rows:
        assert float(row["low"]) <= float(row["pay"]) <= float(row["high"])
        outcome = comparison[row["method"]]
        assert (row["rank_survives"] == "yes") == (row["provider"] in survivors(comparison, outcome))
    single = list(csv.DictReader(io.StringIO(comparison_csv(sample_comparison(), EUR))))
    assert sum(round(float(row["pay"]) * 100) for row in single if row["method"] == "loo") == 100_000
    assert {row["low"] for row in single} == {""}


def test_a_spreadsheet_sees_no_formula_and_every_number() -> None:
    names = ["=cmd", "+49", "-x", "@sum", "\t=2", "\r=3", "plain"]
    comparison = sample_comparison(names, ("osmd", "=loo"), seeds=3, budget=1_000)
    rows = list(csv.DictReader(io.StringIO(comparison_csv(comparison, EUR), newline="")))
    assert [row["provider"] for row in rows[::2]] == ["'=cmd", "'+49", "'-x", "'@sum", "'\t=2", "'\n=3", "plain"]
    assert {row["method"] for row in rows} == {"osmd", "'=loo"}
    assert all(0 <= float(row["low"]) <= float(row["high"]) for row in rows)


def test_mean_amounts_keep_one_digit_more() -> None:
    assert mean_amount(Currency(), np.float64(219), 1) == "219"
    assert mean_amount(Currency(), np.float64(219.04), 3) == "219.0"
    assert mean_amount(EUR, 0.0, 3) == "0.000"


def test_the_page_opens_with_who_is_paid_and_who_agrees() -> None:
    page = Page(render_comparison(sample_comparison(seeds=3), title="t", currency=EUR)).words
    lead = page.split("At a glance")[0]
    assert "is paid most by osmd, g-shapley, fedsv, loo." in lead and "uniform pays everybody alike" in lead
    assert "their rank correlation is" in lead and "fastest" not in lead
    assert "The fastest was" in page.split("What it cost")[1]


def test_methods_that_pay_alike_have_no_favourite_and_no_agreement() -> None:
    even = sample_comparison(["a", "b"], ("x", "y"), budget=10)
    flat = [replace(outcome, payouts=np.full((1, 2), 5)) for outcome in even.outcomes]
    alike = replace(even, outcomes=tuple(flat), rank_correlation=np.full((2, 2), np.nan))
    assert favourites(alike) == [] and agreement_pairs(alike) == []
    assert "is paid most" not in render_comparison(alike, title="t", currency=EUR)
