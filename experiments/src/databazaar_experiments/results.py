"""Finished parts gathered into tidy tables: a row a seed and provider, a row a seed and round."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pandas as pd

from databazaar_experiments import images, mixture
from databazaar_experiments.parts import Case, Found, Settings, find
from databazaar_experiments.plan import ReproductionPlan
from databazaar_experiments.protocol_figures import FIGURES
from databazaar_experiments.settings import ImageSettings, MixtureSettings
from databazaar_experiments.wall_times import WallTime
from databazaar_experiments.wall_times import read as read_wall_times
from databazaar_experiments.workers import is_gpu

COLUMNS = {
    "revenue": ("dataset", "method", "seed", "provider", "group", "pay"),
    "accuracy": ("dataset", "method", "seed", "round", "accuracy"),
    "error": ("dataset", "method", "seed", "round", "error"),
    "runtime": ("dataset", "method", "providers", "seconds", "machine"),
    "cases": (
        *("experiment", "dataset", "method", "providers", "wanted", "done", "seconds", "machine"),
        *("gpu", "jobs", "permutations"),
    ),
}


@dataclass(frozen=True)
class Results:
    """Providers count from 1, groups from 0; `cases` says what was wanted, what is there, and what it took.

    `parts` are the names of the files that all this is from, and `wall_times` the runs that were recorded with them.
    """

    plan: ReproductionPlan
    settings: dict[str, Settings]
    revenue: pd.DataFrame
    accuracy: pd.DataFrame
    error: pd.DataFrame
    runtime: pd.DataFrame
    cases: pd.DataFrame
    parts: frozenset[str] = frozenset()
    wall_times: tuple[WallTime, ...] = ()

    @property
    def datasets(self) -> list[str]:
        """The image datasets of the plan, in its order."""
        return [dataset for dataset in self.plan.datasets if dataset in self.settings]

    def pay(self, dataset: str, method: str) -> pd.DataFrame:
        """Seeds × providers."""
        chosen = self.revenue[(self.revenue.dataset == dataset) & (self.revenue.method == method)]
        return chosen.pivot(index="seed", columns="provider", values="pay")

    def groups(self, dataset: str) -> list[int]:
        """The group of each provider."""
        return groups_of(self.settings[dataset])

    def group_means(self, dataset: str, method: str) -> list[float]:
        """Mean pay of each group over its providers and all seeds; empty where nothing is computed."""
        pay = self.pay(dataset, method)
        if pay.empty:
            return []
        mean, groups = pay.mean().to_numpy(), np.array(self.groups(dataset))
        return [float(mean[groups == group].mean()) for group in range(max(groups) + 1) if (groups == group).any()]

    def curve(self, dataset: str, method: str) -> pd.DataFrame:
        """Seeds × rounds: test accuracy, or for the mixture the estimation error."""
        table, value = (self.error, "error") if dataset == "mixture" else (self.accuracy, "accuracy")
        chosen = table[(table.dataset == dataset) & (table.method == method)]
        return chosen.pivot(index="seed", columns="round", values=value)

    def seeds(self, dataset: str, method: str) -> tuple[int, int]:
        """How many seeds are done, and how many were asked for."""
        rows = self.cases[(self.cases.experiment != "runtime") & (self.cases.dataset == dataset)]
        rows = rows[rows.method == method]
        return (int(rows.done.iloc[0]), int(rows.wanted.iloc[0])) if len(rows) else (0, 0)

    def comparable(self, dataset: str) -> bool:
        """Whether the published numbers are of a market of this size and budget."""
        paper = FIGURES.mixture if dataset == "mixture" else FIGURES.images.get(dataset)
        ours = self.settings.get(dataset)
        return paper is not None and ours is not None and _size(ours) == _size(paper)


def _size(settings: Settings) -> tuple[int, int, int]:
    return settings.providers, settings.per_round, settings.rounds


def groups_of(settings: Settings) -> list[int]:
    if isinstance(settings, MixtureSettings):
        return mixture.provider_groups(settings)
    return images.provider_groups(settings)


def group_names(settings: Settings) -> list[str]:
    if isinstance(settings, ImageSettings):
        return [f"β = {round(100 * share)} %" for share in settings.wrong_labels]
    return [f"group {group + 1}" for group in range(mixture.GROUPS)]


def gather(plan: ReproductionPlan, folder: Path) -> Results:
    """Everything of the plan that is finished in the folder."""
    rows: dict[str, list[pd.DataFrame]] = {name: [] for name in COLUMNS}
    settings: dict[str, Settings] = {}
    parts: set[str] = set()
    for case, wanted in plan.cases():
        found = find(folder, case, range(wanted))
        rows["cases"].append(pd.DataFrame([_about(case, wanted, found)]))
        if case.experiment != "runtime":
            settings[case.dataset] = case.settings
        if found is None:
            continue
        parts.update(found.parts)
        if case.experiment == "runtime":
            rows["runtime"].append(_runtime(case, found))
            continue
        rows["revenue"].append(_revenue(case, found))
        if found.curve.size:
            name = "error" if case.experiment == "mixture" else "accuracy"
            rows[name].append(_curve(case, found, name))
    tables = {
        name: pd.concat(rows[name], ignore_index=True) if rows[name] else pd.DataFrame(columns=list(columns))
        for name, columns in COLUMNS.items()
    }
    return Results(plan, settings, **tables, parts=frozenset(parts), wall_times=read_wall_times(folder))


def _about(case: Case, wanted: int, found: Found | None) -> dict[str, object]:
    return {
        "experiment": case.experiment,
        "dataset": case.dataset,
        "method": case.method,
        "providers": case.settings.providers,
        "wanted": wanted,
        "done": len(found.seeds) if found else 0,
        "seconds": found.seconds if found else 0.0,
        "machine": ", ".join(found.machines) if found else "",
        "gpu": found is not None and all(is_gpu(name) for name in found.machines),
        "jobs": found.jobs if found else 0,
        "permutations": float(found.permutations.mean()) if found and found.permutations.size else 0.0,
    }


def _revenue(case: Case, found: Found) -> pd.DataFrame:
    seeds, providers = found.pay.shape
    return pd.DataFrame(
        {
            "dataset": case.dataset,
            "method": case.method,
            "seed": np.repeat(found.seeds, providers),
            "provider": np.tile(np.arange(1, providers + 1), seeds),
            "group": np.tile(groups_of(case.settings), seeds),
            "pay": found.pay.ravel(),
        }
    )


def _curve(case: Case, found: Found, name: str) -> pd.DataFrame:
    seeds, points = found.curve.shape
    return pd.DataFrame(
        {
            "dataset": case.dataset,
            "method": case.method,
            "seed": np.repeat(found.seeds, points),
            "round": np.tile(found.rounds, seeds),
            name: found.curve.ravel(),
        }
    )


def _runtime(case: Case, found: Found) -> pd.DataFrame:
    about = {"dataset": case.dataset, "method": case.method, "providers": case.settings.providers}
    return pd.DataFrame([{**about, "seconds": found.seconds, "machine": ", ".join(found.machines)}])


def write_raw(results: Results, folder: Path) -> list[Path]:
    """One Parquet file a table; each appears only when it is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for field in fields(results):
        table = getattr(results, field.name)
        if isinstance(table, pd.DataFrame):
            path = folder / f"{'mixture_error' if field.name == 'error' else field.name}.parquet"
            draft = path.with_suffix(".partial")
            table.to_parquet(draft, index=False)
            draft.replace(path)
            paths.append(path)
    return paths
