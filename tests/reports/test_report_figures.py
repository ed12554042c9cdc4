"""The figures as PNG: written, legible in size, and with something on them."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib
import pytest
from matplotlib.figure import Figure
from PIL import Image
from report_samples import sample_report

from databazaar.reports import FIGURES, save_png
from databazaar.reports.style import label, text_width


@pytest.mark.parametrize(("providers", "rounds"), [(1, 1), (9, 40), (120, 5)])
def test_png_files(tmp_path: Path, providers: int, rounds: int) -> None:
    report = sample_report([f"p{i}" for i in range(providers)], rounds=rounds, owners=["acme"] * providers)
    paths = save_png(report, tmp_path / "new" / "figures")
    assert [path.stem for path in paths] == list(FIGURES)
    for path in paths:
        with Image.open(path) as image:
            assert image.format == "PNG"
            assert image.width >= 800 and image.height >= 500
            colours = image.convert("RGB").getcolors(maxcolors=1 << 24)
            assert colours is not None and len(colours) > 20


def test_png_bytes_repeat(tmp_path: Path) -> None:
    first, second = (save_png(sample_report(), tmp_path / name) for name in "ab")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


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
