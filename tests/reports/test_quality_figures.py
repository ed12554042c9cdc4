"""The figures of an evaluation show what was measured, for any classes, any names and any number of rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, roc_curve

from databazaar.learning.metrics import softmax
from databazaar.reports.figures import save_png
from databazaar.reports.quality_figures import confusion, draw_quality, predicted, roc
from databazaar.runs.trained import Evaluation

HOSTILE = ("_hidden", "$x^2$", "\u202eleft", "", "x" * 500)


def classified(rows: int, classes: int, seed: int = 0) -> Evaluation:
    rng = np.random.default_rng(seed)
    outputs = rng.normal(size=(rows, classes)).round(1)
    y = np.where(rng.random(rows) < 0.6, outputs.argmax(1), rng.integers(0, classes, rows))
    names = tuple(HOSTILE[place] if place < len(HOSTILE) else str(place) for place in range(classes))
    return Evaluation("classification", softmax(outputs), y, names)


@pytest.mark.parametrize(("rows", "classes"), [(300, 2), (60, 30), (1, 2), (3, 3)])
def test_every_figure_is_drawn(rows: int, classes: int, tmp_path: Path) -> None:
    drawn = draw_quality(classified(rows, classes))
    assert list(drawn) == ["calibration", "roc", "confusion"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in save_png(drawn, tmp_path))


def test_the_roc_curve_is_scikit_learns() -> None:
    evaluation = classified(200, 2)
    line = roc(evaluation).axes[0].lines[1]
    false, right, _ = roc_curve(evaluation.y, evaluation.answers[:, 1], drop_intermediate=False)
    np.testing.assert_allclose(np.asarray(line.get_xdata(), dtype=float), false)
    np.testing.assert_allclose(np.asarray(line.get_ydata(), dtype=float), right)


def test_the_table_of_confusion_is_scikit_learns() -> None:
    evaluation = classified(100, 4)
    shown = [int(text.get_text()) for text in confusion(evaluation).axes[0].texts]
    assert shown == confusion_matrix(evaluation.y, evaluation.answers.argmax(1)).ravel().tolist()


def test_many_numbers_are_thinned_and_a_constant_is_drawn(tmp_path: Path) -> None:
    y = np.linspace(0, 1, 20_001)
    points = predicted(Evaluation("regression", y + 0.1, y, ())).axes[0].lines[1]
    assert 4000 <= len(np.asarray(points.get_xdata())) <= 5000
    save_png(draw_quality(Evaluation("regression", np.ones(3), np.ones(3), ())), tmp_path)


def test_answers_that_are_not_finite_are_not_drawn() -> None:
    assert draw_quality(Evaluation("regression", np.array([np.nan]), np.ones(1), ())) == {}
