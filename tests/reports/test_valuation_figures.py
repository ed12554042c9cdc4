"""The figures and the page of a comparison: drawn for few and for many, with and without intervals."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest
from comparison_samples import FIVE, sample_comparison
from html_pages import Page
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from PIL import Image

from databazaar.money import Currency
from databazaar.reports.figures import save_png
from databazaar.reports.valuation_page import (
    CSV_HEADS,
    comparison_csv,
    mean_amount,
    payouts,
    render_comparison,
)
from databazaar.valuation import METHODS

EUR = Currency("EUR", 2)


def texts(figure: Figure) -> list[str]:
    return [artist.get_text() for artist in figure.findobj() if isinstance(artist, Text)]


def test_methods_are_drawn_whatever_they_are_called(tmp_path: Path) -> None:
    others = [f"_method {i} \u202e🦊" for i in range(4)]
    for providers in (3, 100):
        comparison = sample_comparison([f"p{i}" for i in range(providers)], (*others, *METHODS))
        figure = payouts(comparison, EUR)
        save_png({"comparison": figure}, tmp_path)
        page = render_comparison(comparison, title="A market", currency=EUR, figure=figure)
        assert page.count("<svg ") == 1 and "_method 3" in page
        assert len(figure.axes) == len(comparison.outcomes)
    shown = payouts(sample_comparison(methods=("_acme", "osmd")), EUR).axes
    assert [axes.get_title("left") for axes in shown] == ["_acme", "osmd"]


@pytest.mark.parametrize(("providers", "methods", "seeds"), [(1, ("osmd",), 1), (9, tuple(METHODS), 3), (100, FIVE, 3)])
def test_the_figure_as_png(tmp_path: Path, providers: int, methods: tuple[str, ...], seeds: int) -> None:
    comparison = sample_comparison([f"p{i}" for i in range(providers)], methods, seeds=seeds)
    (path,) = save_png({"comparison": payouts(comparison, EUR)}, tmp_path)
    with Image.open(path) as image:
        assert image.format == "PNG" and image.width == 850 and 500 <= image.height <= 2500
        colours = image.convert("RGB").getcolors(maxcolors=1 << 24)
        assert colours is not None and len(colours) > 20


def test_few_providers_are_named_and_many_are_counted() -> None:
    few = texts(payouts(sample_comparison(["harbour", "meadow"]), EUR))
    assert {"harbour", "meadow", *FIVE} <= set(few)
    many = payouts(sample_comparison([f"p{i}" for i in range(100)], seeds=2), EUR)
    assert len(many.axes) == len(FIVE)
    assert "100 providers, best paid by osmd first" in texts(many)


def test_bars_are_as_high_as_the_payouts() -> None:
    comparison = sample_comparison(["a", "b", "c"], ("osmd", "loo"))
    panels, order = payouts(comparison, EUR).axes, comparison.ranked
    drawn = [[bar.get_height() for bar in axes.patches if isinstance(bar, Rectangle)] for axes in panels]
    assert drawn == [outcome.payouts[0][order].tolist() for outcome in comparison.outcomes]
    assert drawn[0] == sorted(drawn[0], reverse=True)
    low, high = panels[0].get_ylim()
    assert low == 0 and high > max(map(max, drawn))


def test_the_page_holds_everything_escaped_and_loads_nothing() -> None:
    comparison = sample_comparison(["north", "<script>alert(1)</script>", "n" * 100], seeds=3)
    page = render_comparison(comparison, title="A <b>bold</b> market", currency=EUR)
    assert "<script>alert(1)" not in page and "<b>bold" not in page
    assert not re.search(r'(src|href)="(?!#)', page)
    assert page.count("<svg ") == 1
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
        assert outcome.stability is not None
        place = comparison.providers.index(row["provider"])
        assert (row["rank_survives"] == "yes") == bool(outcome.stability.survives[place])
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


def test_a_method_that_pays_all_alike_has_no_correlation() -> None:
    page = render_comparison(sample_comparison(methods=("osmd", "uniform"), budget=99_999), title="t", currency=EUR)
    table = page.split("<h2>Rank correlations</h2>")[1].split("</table>")[0]
    assert table.count("<td>–</td>") == 3 and table.count("<td>1.00</td>") == 1
