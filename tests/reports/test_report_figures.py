"""The figures as PNG: written, legible in size, and with something on them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import pytest
from matplotlib.figure import Figure
from PIL import Image
from report_samples import sample_report

from databazaar.reports.figures import FIGURES, draw_all, save_png
from databazaar.reports.run_page import render
from databazaar.reports.style import label


@pytest.mark.parametrize(("providers", "rounds"), [(1, 1), (120, 5)])
def test_png_files(tmp_path: Path, providers: int, rounds: int) -> None:
    report = sample_report([f"p{i}" for i in range(providers)], rounds=rounds, owners=["acme"] * providers)
    assert_legible(save_png(draw_all(report), tmp_path / "new" / "figures"))


def assert_legible(paths: Sequence[Path]) -> None:
    assert [path.stem for path in paths] == list(FIGURES)
    for path in paths:
        with Image.open(path) as image:
            assert image.format == "PNG"
            assert image.width >= 800 and image.height >= 500
            colours = image.convert("RGB").getcolors(maxcolors=1 << 24)
            assert colours is not None and len(colours) > 20


def test_one_drawing_serves_both_files_and_bytes_repeat(tmp_path: Path) -> None:
    """Whatever is written first, the other is as if it were alone and drawn anew."""
    report = sample_report()
    drawn, again = draw_all(report), draw_all(report)
    assert_legible(first := save_png(drawn, tmp_path / "before"))
    before = [path.read_bytes() for path in first]
    assert render(report, title="A run", drawn=drawn) == render(report, title="A run")
    for name, figures in (("after", drawn), ("again", again)):
        assert [path.read_bytes() for path in save_png(figures, tmp_path / name)] == before


def test_the_page_shows_the_very_figures_it_is_given() -> None:
    given = Figure()
    given.add_axes((0.0, 0.0, 1.0, 1.0)).set_gid("drawn-before")
    page = render(sample_report(), title="A run", drawn=dict.fromkeys(FIGURES, given))
    assert all(f'id="fig-{name}-drawn-before"' in page for name in FIGURES)


def test_global_state_is_left_alone() -> None:
    before, had_pyplot = dict(matplotlib.rcParams), "matplotlib.pyplot" in sys.modules
    for draw in FIGURES.values():
        assert isinstance(draw(sample_report()), Figure)
    assert dict(matplotlib.rcParams) == before
    assert ("matplotlib.pyplot" in sys.modules) == had_pyplot


def test_long_names_keep_both_ends() -> None:
    shown = label("north-bank-" + "x" * 200 + "-branch-17", 20)
    assert shown.startswith("north-ba") and shown.endswith("ch-17") and "…" in shown
    assert len(shown) == 20
    assert label("short") == "short"


def test_glyphs_that_the_font_lacks_become_boxes() -> None:
    assert label("a🦊b\x00c\ud800d\u202ee") == "a□b□c□d□e"
    assert label("two\nlines\t tab") == "two lines tab"
