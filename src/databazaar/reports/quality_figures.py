"""How good a model's answers are, drawn: one function each from an Evaluation to a matplotlib Figure."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from databazaar.learning.metrics import intervals
from databazaar.reports import style
from databazaar.reports.words import count, number, percent
from databazaar.runs.trained import Evaluation

BINS = 10
MOST_CLASSES = 20
MOST_POINTS = 5000


@style.styled
def calibration(evaluation: Evaluation) -> Figure:
    """What the model says beside what is so: of rows that it calls 80 % likely, 80 % should be right. With two classes
    it is the second one's chance; with more, that of the class which the model takes."""
    p, y = evaluation.answers, evaluation.y
    two = p.shape[1] == 2
    said = p[:, 1] if two else p.max(1)
    right = (y == 1) if two else (p.argmax(1) == y)
    figure, axes = style.chart("Calibration", f"Brier score {number(evaluation.metrics['brier'])}")
    _diagonal(axes, 0.0, 1.0)
    for rows in np.array_split(np.argsort(said, kind="stable"), min(BINS, len(said))):
        share = float(right[rows].mean())
        hits = np.column_stack([~right[rows], right[rows]]).astype(float)
        low, high = intervals("classification", hits, np.ones(len(rows), dtype=int))["accuracy"]
        x = float(said[rows].mean())
        axes.plot([x, x], [low, high], color=style.BLUE, linewidth=1.2, alpha=0.5)
        axes.plot(x, share, "o", color=style.BLUE, markersize=5)
    _unit_square(axes)
    axes.set_xlabel(f"chance of {style.label(evaluation.names[1])} that the model gives" if two else "chance it gives")
    axes.set_ylabel("share that is so" if two else "share that is right")
    return figure


@style.styled
def roc(evaluation: Evaluation) -> Figure:
    """How well classes are told apart: right alarms against false ones, for every threshold."""
    p, y = evaluation.answers, evaluation.y
    places = [1] if p.shape[1] == 2 else list(range(p.shape[1]))
    known = [place for place in places if 0 < int((y == place).sum()) < len(y)]
    figure, axes = style.chart("ROC", f"AUC {number(evaluation.metrics['auc'])}")
    _diagonal(axes, 0.0, 1.0)
    lines, names = [], []
    for i, place in enumerate(known):
        coloured = i < len(style.OWNER_COLOURS)
        colour = style.OWNER_COLOURS[i] if coloured else style.GREY
        (line,) = axes.plot(*_roc_curve(p[:, place], y == place), color=colour, linewidth=1.9 if coloured else 0.8)
        if coloured:
            lines.append(line)
            names.append(evaluation.names[place])
    _unit_square(axes)
    axes.set_xlabel("share of the others that is called so")
    axes.set_ylabel("share that is found")
    if lines:
        style.legend(figure, lines, names, ncols=3, handlelength=1.0)
    return figure


@style.styled
def confusion(evaluation: Evaluation) -> Figure:
    """What the rows of each class were taken for."""
    p, y = evaluation.answers, evaluation.y
    classes = p.shape[1]
    table = np.bincount(y * classes + p.argmax(1), minlength=classes * classes).reshape(classes, classes)
    right = f"{percent(int(np.trace(table)), len(y))} of {count(len(y), 'row')} right"
    figure, axes = style.chart("Confusion", right, style.height_for(classes))
    shares = table / np.maximum(table.sum(1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1.2, aspect="auto")
    step = -(-classes // MOST_CLASSES)
    shown = range(0, classes, step)
    width = 20 if classes <= 3 else 8
    axes.set_xticks(list(shown), [style.label(evaluation.names[c], width) for c in shown])
    axes.set_yticks(list(shown), [style.label(evaluation.names[c]) for c in shown])
    if classes > 5:
        axes.tick_params(axis="x", rotation=90)
    if classes <= 12:
        for (row, column), rows in np.ndenumerate(table):
            colour = "white" if shares[row, column] > 0.6 else style.INK
            axes.text(column, row, f"{rows:,}", ha="center", va="center", fontsize=style.SMALL, color=colour)
    axes.grid(False)
    axes.set_xlabel("taken for")
    axes.set_ylabel("is")
    return figure


@style.styled
def predicted(evaluation: Evaluation) -> Figure:
    """Every row's prediction against what is so; of many rows, an even choice."""
    p, y = evaluation.answers, evaluation.y
    chosen = slice(None, None, -(-len(y) // MOST_POINTS))
    figure, axes = style.chart("Predicted and actual", f"R² {number(evaluation.metrics['r2'])}")
    low, high = float(min(p.min(), y.min())), float(max(p.max(), y.max()))
    _diagonal(axes, low, high)
    axes.plot(y[chosen], p[chosen], "o", color=style.BLUE, markersize=3, alpha=0.35, markeredgewidth=0)
    axes.set_xlabel("what is so")
    axes.set_ylabel("prediction")
    return figure


QUALITY_FIGURES: dict[str, dict[str, Callable[[Evaluation], Figure]]] = {
    "classification": {"calibration": calibration, "roc": roc, "confusion": confusion},
    "regression": {"predicted": predicted},
}


def draw_quality(evaluation: Evaluation) -> dict[str, Figure]:
    """Every figure of an evaluation by its name; none where the answers are not finite."""
    if not np.isfinite(evaluation.answers).all():
        return {}
    return {name: style.laid_out(draw(evaluation)) for name, draw in QUALITY_FIGURES[evaluation.task].items()}


def _roc_curve(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> tuple[NDArray[np.float64], ...]:
    """False and right alarms, as the threshold falls past each score that there is."""
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    right, false = np.cumsum(positive[order])[ends], np.cumsum(~positive[order])[ends]
    return np.append(0.0, false / false[-1]), np.append(0.0, right / right[-1])


def _diagonal(axes: Axes, low: float, high: float) -> None:
    axes.plot([low, high], [low, high], color=style.GREY, linestyle=style.DASHED, linewidth=1.2)


def _unit_square(axes: Axes) -> None:
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)
