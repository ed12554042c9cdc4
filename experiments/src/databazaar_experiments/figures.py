"""The paper's four figures, redrawn: filled marks and lines are measured here, hollow marks are published."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from databazaar.reports import style
from databazaar_experiments import published
from databazaar_experiments.methods import PAPER_METHODS
from databazaar_experiments.published import DATASET_NAMES, METHOD_NAMES
from databazaar_experiments.results import Results, group_names

COLOURS = {"osmd": style.BLUE, "uniform": style.MUTED, "g-shapley": style.VERMILLION, "fedsv": style.GREEN}
TRAINED = ("osmd", "uniform")
WIDTH = 10.0
RING = {"marker": "o", "linestyle": "none", "markerfacecolor": "none", "color": style.INK, "markeredgewidth": 0.7}


@style.styled
def revenue(results: Results, datasets: Sequence[str]) -> Figure:
    """Pay of every provider, mean ± standard deviation over the seeds: a row a dataset, a column a method."""
    methods = [method for method in PAPER_METHODS if method in results.plan.methods]
    figure = Figure(figsize=(WIDTH, 0.55 + 2.05 * len(datasets)), layout="constrained", facecolor="white")
    panels = figure.subplots(len(datasets), len(methods), sharey="row", squeeze=False)
    for dataset, row in zip(datasets, panels, strict=True):
        for method, axes in zip(methods, row, strict=True):
            _pay(axes, results, dataset, method)
        row[0].set_ylabel(f"{DATASET_NAMES[dataset]}\npay")
        _name_groups(row[0], results, dataset)
    for axes in panels[-1]:
        axes.set_xlabel("provider")
    _legend(figure, any(published.revenue(d, "osmd") for d in datasets if results.comparable(d)), "o", "none")
    return figure


def _pay(axes: Axes, results: Results, dataset: str, method: str) -> None:
    """Providers sorted by group, as the paper has them; bands mark the groups."""
    groups = np.array(results.groups(dataset))
    pay = results.pay(dataset, method)
    paper = published.revenue(dataset, method) if results.comparable(dataset) else None
    order, published_order = np.argsort(groups, kind="stable"), np.arange(len(groups))
    if dataset == "mixture":  # the authors' order inside a group is not known, so both are sorted by pay there
        order = np.lexsort((-pay.mean().to_numpy(), groups)) if len(pay) else order
        published_order = (
            np.lexsort((-np.array(paper.mean), np.array(published.mixture_groups()))) if paper else published_order
        )
    place = np.arange(1, len(groups) + 1)
    for group in range(0, int(groups.max()) + 1, 2):
        inside = place[groups[order] == group]
        if len(inside):
            axes.axvspan(inside[0] - 0.5, inside[-1] + 0.5, color="#F1F4F7", linewidth=0, zorder=0)
    colour = COLOURS[method]
    done, wanted = results.seeds(dataset, method)
    axes.set_title(METHOD_NAMES[method], loc="left", color=colour)
    axes.set_title(_seeds(done, wanted), loc="right", size=style.SMALL, fontweight="normal", color=style.MUTED)
    if not pay.empty:
        mean, deviation = pay.mean().to_numpy()[order], pay.std(ddof=0).to_numpy()[order]
        axes.vlines(place, mean - deviation, mean + deviation, color=colour, linewidth=0.8, alpha=0.45)
        axes.plot(place, mean, "o", color=colour, markersize=2.4, markeredgewidth=0)
    else:
        axes.text(0.5, 0.5, "not computed", transform=axes.transAxes, ha="center", color=style.MUTED)
    if paper is not None:
        axes.plot(place, np.array(paper.mean)[published_order], markersize=3.4, **RING)  # type: ignore[arg-type]
    axes.set_xlim(0, len(groups) + 1)
    axes.grid(False, axis="x")
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))


def _seeds(done: int, wanted: int) -> str:
    return f"{done} seed{'' if done == 1 else 's'}" + ("" if done == wanted else f" of {wanted}")


def _name_groups(axes: Axes, results: Results, dataset: str) -> None:
    """The groups' names in the first panel, each at the top of its band."""
    groups = sorted(results.groups(dataset))
    for group, name in enumerate(group_names(results.settings[dataset])):
        inside = [place for place, mine in enumerate(groups, 1) if mine == group]
        if inside:
            text = name.removeprefix("group ").removeprefix("β = ")
            text = text.removesuffix(" %") if len(inside) < 15 and len(groups) > 50 else text
            middle = (inside[0] + inside[-1]) / 2
            top = axes.get_xaxis_transform()
            axes.text(middle, 0.985, text, transform=top, ha="center", va="top", size=6.5, color=style.MUTED)
    axes.set_ylim(0, axes.get_ylim()[1] * 1.07)  # for all panels of the row


@style.styled
def accuracy(results: Results, datasets: Sequence[str]) -> Figure:
    """Test accuracy along training, mean ± standard deviation over the seeds."""
    columns = min(2, len(datasets))
    rows = -(-len(datasets) // columns)
    figure = Figure(figsize=(WIDTH, 0.5 + 2.7 * rows), layout="constrained", facecolor="white")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for dataset, axes in zip(datasets, panels, strict=False):
        shown = results.comparable(dataset)
        _curves(axes, results, dataset, {m: published.accuracy(dataset, m) if shown else None for m in TRAINED})
        axes.set_ylabel("test accuracy")
        axes.set_title(DATASET_NAMES[dataset], loc="left")
    for axes in panels[len(datasets) :]:
        axes.set_visible(False)
    rings = any(published.accuracy(d, "osmd") for d in datasets if results.comparable(d))
    _legend(figure, rings, "", "-", TRAINED)
    return figure


def _curves(axes: Axes, results: Results, dataset: str, paper: dict[str, published.Line | None]) -> None:
    last, finals = 1, []
    for method in TRAINED:
        curve, line = results.curve(dataset, method), paper[method]
        if line is not None:
            axes.plot(line.at, line.values, markersize=4.2, zorder=4, **RING)  # type: ignore[arg-type]
        if curve.empty:
            continue
        rounds, mean = curve.columns.to_numpy(), curve.mean().to_numpy()
        deviation = curve.std(ddof=0).to_numpy()
        axes.fill_between(rounds, mean - deviation, mean + deviation, color=COLOURS[method], alpha=0.2, linewidth=0)
        axes.plot(rounds, mean, color=COLOURS[method], linestyle="-" if method == "osmd" else (0, (4, 1.6)))
        last = max(last, int(rounds[-1]))
        finals.append(f"{METHOD_NAMES[method]} {mean[-1]:.{2 if dataset == 'mixture' else 4}f}")
    style.rounds_axis(axes, last)
    axes.set_title("    ".join(finals) or "not computed", loc="right", size=style.SMALL, fontweight="normal")


@style.styled
def runtime(results: Results, datasets: Sequence[str]) -> Figure:
    """Seconds against the number of providers, both on logarithmic axes; the published ones dashed."""
    columns = min(4, max(len(datasets), 1))
    rows = -(-len(datasets) // columns)
    figure = Figure(figsize=(WIDTH, 0.8 + 2.7 * rows), layout="constrained", facecolor="white")
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for dataset, axes in zip(datasets, panels, strict=False):
        mine, counts = results.runtime[results.runtime.dataset == dataset], set[int]()
        for method in (m for m in PAPER_METHODS if m in results.plan.methods):
            paper = published.runtime(dataset, method)
            if paper is not None:
                axes.plot(paper.at, paper.values, color=COLOURS[method], linewidth=0.9, linestyle=(0, (3, 2)))
                axes.plot(paper.at, paper.values, **(RING | {"color": COLOURS[method], "markersize": 4.5}))
                counts.update(paper.at)
            ours = mine[mine.method == method].sort_values("providers")
            if len(ours):
                axes.plot(ours.providers, ours.seconds, "o-", color=COLOURS[method], markersize=4)
                counts.update(int(n) for n in ours.providers)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(FixedLocator(sorted(counts)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(lambda value, _position: f"{value:.0f}")
        axes.yaxis.set_major_formatter(lambda value, _position: f"{value:,.10g}")
        axes.set_xlabel("providers")
        axes.set_title(DATASET_NAMES[dataset], loc="left")
        if mine.empty:
            axes.set_title("not measured here", loc="right", size=style.SMALL, fontweight="normal")
    panels[0].set_ylabel("seconds")
    for axes in panels[len(datasets) :]:
        axes.set_visible(False)
    _legend(figure, any(published.runtime(d, "osmd") for d in datasets), "o", "-", results.plan.methods)
    return figure


@style.styled
def mixture(results: Results) -> Figure:
    """Both panels: pay by provider, sorted by group, for every method; and the estimation error along training."""
    methods = [method for method in PAPER_METHODS if method in results.plan.methods]
    figure = Figure(figsize=(WIDTH, 5.4), layout="constrained", facecolor="white")
    above, below = figure.subfigures(2, 1, height_ratios=(1, 1.15), squeeze=False)[:, 0]
    panels = above.subplots(1, len(methods), sharey=True, squeeze=False)[0]
    for method, axes in zip(methods, panels, strict=True):
        _pay(axes, results, "mixture", method)
        axes.set_xlabel("provider, sorted by group")
    panels[0].set_ylabel("pay")
    _name_groups(panels[0], results, "mixture")
    axes = below.subplots()
    shown = results.comparable("mixture")
    _curves(axes, results, "mixture", {m: published.mixture_error(m) if shown else None for m in TRAINED})
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(FixedLocator([0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 40]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda value, _position: f"{value:g}")
    axes.set_ylabel("estimation error ‖w − w₁‖")
    axes.set_title("Estimation error along training", loc="left")
    _legend(below, shown, "", "-", TRAINED)
    return figure


def _legend(
    figure: Figure | SubFigure, rings: bool, marker: str, line: str, methods: Sequence[str] = PAPER_METHODS
) -> None:
    dashes: dict[str, Any] = {"uniform": (0, (4, 1.6))} if methods == TRAINED else {}
    handles = [
        Line2D([], [], color=COLOURS[m], marker=marker, linestyle=dashes.get(m, line), markersize=4)
        for m in PAPER_METHODS
        if m in methods
    ]
    names = [METHOD_NAMES[m] for m in PAPER_METHODS if m in methods]
    if rings:
        handles.append(Line2D([], [], markersize=4.2, **RING))  # type: ignore[arg-type]
        names.append("published")
    figure.legend(handles, names, loc="outside lower center", ncols=len(handles), handlelength=2.0)


def draw_all(results: Results) -> dict[str, Figure]:
    """The figures that the plan asks for, by the name of their files."""
    plan, drawn = results.plan, {}
    if "revenue" in plan.whats:
        drawn["revenue"] = revenue(results, plan.datasets)
    if {"revenue", "accuracy"} & set(plan.whats):
        drawn["accuracy"] = accuracy(results, plan.datasets)
    if "runtime" in plan.whats:
        drawn["runtime"] = runtime(results, plan.datasets)
    if "mixture" in plan.whats:
        drawn["mixture"] = mixture(results)
    return drawn


def write_figures(results: Results, folder: Path) -> list[Path]:
    """Every figure as PNG and SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in draw_all(results).items():
        for kind, about in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
            path = folder / f"{name}.{kind}"
            with style.look():
                figure.savefig(path, format=kind, dpi=130, metadata=about)
            paths.append(path)
    return paths
