"""The figures as PNG: written, legible in size, and with something on them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import matplotlib
import pytest
from matplotlib.figure import Figure
from PIL import Image
from report_samples import sample_report

from databazaar.reports.figures import FIGURES, draw_all, save_png
from databazaar.reports.run_page import render
from databazaar.reports.style import label, text_width


@pytest.mark.parametrize(("providers", "rounds"), [(1, 1), (9, 40), (120, 5)])
def test_png_files(tmp_path: Path, providers: int, rounds: int) -> None:
    report = sample_report([f"p{i}" for i in range(providers)], rounds=rounds, owners=["acme"] * providers)
    paths = save_png(draw_all(report), tmp_path / "new" / "figures")
    assert [path.stem for path in paths] == list(FIGURES)
    for path in paths:
        with Image.open(path) as image:
            assert image.format == "PNG"
            assert image.width >= 800 and image.height >= 500
            colours = image.convert("RGB").getcolors(maxcolors=1 << 24)
            assert colours is not None and len(colours) > 20


def test_png_bytes_repeat(tmp_path: Path) -> None:
    first, second = (save_png(draw_all(sample_report()), tmp_path / name) for name in "ab")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_one_drawing_serves_both_files(tmp_path: Path) -> None:
    """Whatever is written first, the other is as if it were alone; and the page shows the very figures it is given."""
    report = sample_report()
    drawn = draw_all(report)
    before = [path.read_bytes() for path in save_png(drawn, tmp_path / "before")]
    assert render(report, title="A run", drawn=drawn) == render(report, title="A run")
    assert [path.read_bytes() for path in save_png(drawn, tmp_path / "after")] == before
    drawn["spend"].axes[0].set_gid("drawn-before")
    assert 'id="fig-spend-drawn-before"' in render(report, title="A run", drawn=drawn)


def test_money_of_an_open_run_is_held_and_not_refunded() -> None:
    report = sample_report(rounds=4)
    legends = [
        {text.get_text() for text in FIGURES["spend"](run).legends[0].get_texts()}
        for run in (report, replace(report, status="open", refunded=0, held=250))
    ]
    refunded = f"Refunded {report.currency.amount(report.refunded)}"
    assert refunded in legends[0] and "Held 2.50" in legends[1]
    assert not any("Refunded" in text for text in legends[1])


def test_global_state_is_left_alone() -> None:
    before, had_pyplot = dict(matplotlib.rcParams), "matplotlib.pyplot" in sys.modules
    for draw in FIGURES.values():
        assert isinstance(draw(sample_report()), Figure)
    assert dict(matplotlib.rcParams) == before
    assert ("matplotlib.pyplot" in sys.modules) == had_pyplot


def test_long_names_keep_both_ends() -> None:
    shown = label("north-bank-" + "x" * 200 + "-branch-17", 100)
    assert shown.startswith("north-ba") and shown.endswith("ch-17") and "…" in shown
    assert text_width(shown) <= 100
    assert label("short") == "short"


def test_glyphs_that_the_font_lacks_become_boxes() -> None:
    assert label("a🦊b\x00c\ud800d\u202ee") == "a□b□c□d□e"
    assert label("two\nlines\t tab") == "two lines tab"
