"""The reproduction as one HTML page: the verdicts first, then each figure beside the published numbers."""

from __future__ import annotations

from dataclasses import dataclass

from databazaar.reports.pages import page
from databazaar.reports.style import Drawing, inline_svg
from databazaar_experiments import figures, tables
from databazaar_experiments.published import DATASET_NAMES
from databazaar_experiments.results import Results
from databazaar_experiments.settings_tables import compared_with, settings_tables
from databazaar_experiments.tables import Table
from databazaar_experiments.verdicts import about, judge

PROTOCOLS_SAY = {
    "figures": "the settings behind the paper’s published figures, which its text does not all give.",
    "text": "what the paper’s text says. The published figures were made with other settings, so their numbers "
    "are shown beside these for orientation.",
    "quick": "a reduced version on small synthetic data. It shows that everything runs; the paper’s numbers "
    "do not apply to it.",
}


@dataclass(frozen=True)
class Section:
    """One figure of the paper, or one dataset's part of it: what to say first, the drawing, and the tables below."""

    name: str
    drawing: Drawing
    tables: tuple[Table, ...]
    hints: tuple[str, ...] = ()


def render(results: Results) -> str:
    """The whole page. The same results give the same bytes."""
    verdicts, plan = judge(results), results.plan
    settings = settings_tables(results)
    return page(
        "databazaar_experiments/reproduction.html.jinja",
        title="The paper, reproduced",
        protocol=plan.protocol,
        protocol_says=PROTOCOLS_SAY[plan.protocol],
        changes=[f"{name} = {value}" for name, value in (plan.changes or {}).items()],
        machines=sorted({machine for machine in results.cases.machine if machine}),
        standings=[sum(verdict.holds is state for verdict in verdicts) for state in (True, False, None)],
        targets=tables.by_target(verdicts),
        about=about,
        missing=tables.missing(results),
        revenue=_revenue(results),
        without_replacement=plan.protocol == "figures" and _never_repeats(results),
        accuracy=_accuracy(results),
        runtime=_runtime(results),
        runtime_measured=len(results.runtime) > 0,
        mixture=_mixture(results),
        settings=settings,
        differing=sum(row.marked for table in settings for row in table.rows),
        other=compared_with(results).name,
        costs=tables.costs(results),
        wall_clock=tables.wall_clock(results),
    )


def _never_repeats(results: Results) -> bool:
    """Whether OSMD's draws of a round are of different providers on the image markets."""
    markets = [results.settings[dataset] for dataset in results.datasets]
    return "osmd" in results.plan.methods and any(settings.repeats == "never" for settings in markets)


def _revenue(results: Results) -> list[Section]:
    if "revenue" not in results.plan.whats:
        return []
    return [
        Section(
            DATASET_NAMES[dataset],
            inline_svg(figures.revenue(results, [dataset]), f"fig-revenue-{dataset}"),
            (tables.group_table(results, dataset),),
            tables.unpublished(results, [dataset]),
        )
        for dataset in results.datasets
    ]


def _accuracy(results: Results) -> Section | None:
    if not {"revenue", "accuracy"} & set(results.plan.whats):
        return None
    drawing = inline_svg(figures.accuracy(results, results.datasets), "fig-accuracy")
    hints = tables.unpublished(results, results.datasets)
    return Section("accuracy", drawing, (tables.accuracy_table(results),), hints)


def _runtime(results: Results) -> Section | None:
    if "runtime" not in results.plan.whats:
        return None
    drawing = inline_svg(figures.runtime(results, results.datasets), "fig-runtime")
    return Section("runtime", drawing, (tables.runtime_table(results),))


def _mixture(results: Results) -> Section | None:
    if "mixture" not in results.plan.whats:
        return None
    shown = (tables.group_table(results, "mixture"), tables.error_table(results))
    return Section("mixture", inline_svg(figures.mixture(results), "fig-mixture"), shown)
