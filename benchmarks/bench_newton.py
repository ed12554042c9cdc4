"""Linear models by Newton's method beside learner averaging, in-run, and scikit-learn on all rows without an error:
python benchmarks/bench_newton.py --seeds 5

A quarter of a table's rows judges in the end. Of the others an eighth is the hold-out and an eighth the buyer's own
training rows; twelve providers share the rest, and of every third one 40 % of the targets are wrong: another class, or
the target of another row. "clean" is LogisticRegression or Ridge on all of those rows with their right targets, its
strength by cross validation. It prints the loss on rows that nobody has seen (log loss, or mean square in units of the
variance) with the standard deviation over seeds, what the four dirty providers earn in parts of what all twelve do (a
third where nobody minds), and seconds of the market.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.linear_model import LogisticRegressionCV, RidgeCV

from databazaar import Arbiter, Consumer, Provider
from databazaar.learners import Averaging, InRun, Learner, Newton

Numbers = NDArray[np.float64]
Table = tuple[NDArray[np.float32], NDArray[Any]]
PROVIDERS, PER_ROUND, WRONG = 12, 4, 0.4
LEARNERS: dict[str, Learner] = {
    "newton": Newton(),
    "decay 1": Newton(decay=1.0),
    "averaging": Averaging(),
    "in-run": InRun(),
}


def of(load: Callable[..., tuple[Numbers, Numbers]]) -> Callable[[int], tuple[Numbers, Numbers]]:
    def table(seed: int) -> tuple[Numbers, Numbers]:
        x, y = load(return_X_y=True)
        order = np.random.default_rng(seed).permutation(len(x))
        return x[order], y[order]

    return table


def made_up(classes: int, rows: int = 4000, features: int = 20) -> Callable[[int], tuple[Numbers, Numbers]]:
    """Rows of a true linear model, half of whose features matter; numbers where there are no classes."""

    def table(seed: int) -> tuple[Numbers, Numbers]:
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(rows, features)) @ (np.eye(features) + 0.3 * rng.normal(size=(features, features)))
        way = rng.normal(size=(features, max(1, classes))) * (np.arange(features) < features / 2)[:, None]
        scores = x @ way / features**0.5
        if not classes:
            return x, scores[:, 0] + rng.normal(size=rows)
        return x, (2 * scores + rng.gumbel(size=(rows, classes))).argmax(1)

    return table


TABLES = {
    "made up, numbers": made_up(0),
    "made up, 2 classes": made_up(2),
    "made up, 6 classes": made_up(6),
    "diabetes": of(datasets.load_diabetes),
    "breast cancer": of(datasets.load_breast_cancer),
    "digits": of(datasets.load_digits),
}


@dataclass(frozen=True)
class Setting:
    """One table of one seed, in parts."""

    providers: list[Table]
    clean: Table
    holdout: Table
    train: Table
    test: Table

    @classmethod
    def of(cls, x: Numbers, y: NDArray[Any], seed: int) -> Setting:
        classes = y.dtype.kind in "iu"
        y = y.astype(np.int64) if classes else ((y - y.mean()) / y.std()).astype(np.float32)
        rows = ((x - x.mean(0)) / np.maximum(x.std(0), 1e-9)).astype(np.float32)
        rng, (test, rest) = np.random.default_rng(100 + seed), np.split(np.arange(len(y)), [len(y) // 4])
        holdout, train, sold = np.split(rest, [len(rest) // 8, len(rest) // 4])
        providers = []
        for place, part in enumerate(np.array_split(sold, PROVIDERS)):
            told = y[part].copy()
            bad = rng.permutation(len(part))[: int(WRONG * len(part))] if place % 3 == 2 else np.empty(0, np.int64)
            other = rng.integers(1, max(2, y.max() + 1), len(bad)) if classes else y[rng.choice(sold, len(bad))]
            told[bad] = (told[bad] + other) % (y.max() + 1) if classes else other
            providers.append((rows[part], told))
        return cls(providers, *((rows[part], y[part]) for part in (rest, holdout, train, test)))


def loss(outputs: Numbers, y: NDArray[Any]) -> float:
    """Log loss of logits, or mean square."""
    if y.dtype.kind == "f":
        return float(np.mean((outputs[:, 0] - y) ** 2))
    log_odds = outputs - outputs.max(1, keepdims=True)
    chances = log_odds - np.log(np.exp(log_odds).sum(1, keepdims=True))
    return float(-chances[np.arange(len(y)), y].mean())


def clean(setting: Setting) -> float:
    (x, y), (fresh, wanted) = setting.clean, setting.test
    if y.dtype.kind == "f":
        ridge = RidgeCV(alphas=np.logspace(-3, 4, 15)).fit(x, y)
        return loss(ridge.predict(fresh)[:, None], wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = LogisticRegressionCV(Cs=np.logspace(-4, 3, 8), cv=3, max_iter=2000, scoring="neg_log_loss").fit(x, y)
    outputs = fit.decision_function(fresh)
    return loss(outputs if outputs.ndim == 2 else np.stack([0 * outputs, outputs], 1), wanted)


def bought(setting: Setting, learner: Learner, rounds: int, seed: int) -> tuple[float, float, float, float]:
    """The loss of the model bought, what the dirty earn, seconds, and the loss of the buyer's own rows alone."""
    kind = "linear" if setting.test[1].dtype.kind == "f" else "logistic"
    begun, budget = time.perf_counter(), PER_ROUND * rounds
    consumer = Consumer(kind, budget, setting.holdout, per_round=PER_ROUND, train=setting.train)
    arbiter = Arbiter(
        consumer, [Provider(f"p{i}", t) for i, t in enumerate(setting.providers)], learner=learner, seed=seed
    )
    report = arbiter.run()
    seconds = time.perf_counter() - begun
    training, x = arbiter.training(), torch.from_numpy(setting.test[0])
    models = (arbiter.reached, training.own_rows_alone())
    found, alone = (loss(training.outputs(model, x), setting.test[1]) for model in models)
    pay = np.array([one.pay for one in report.payouts], dtype=float)
    return found, float(pay[2::3].sum() / pay.sum()), seconds, alone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--tables", nargs="+", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--learners", nargs="+", choices=list(LEARNERS), default=list(LEARNERS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'':20}{'':12}{'loss':>8}{'±':>8}{'dirty earn':>12}{'seconds':>9}")
    for name in given.tables:
        settings = [Setting.of(*TABLES[name](seed), seed) for seed in range(given.seeds)]
        best = [clean(setting) for setting in settings]
        print(f"{name:20}{'clean':12}{np.mean(best):8.4f}{np.std(best):8.4f}", flush=True)
        for kind in given.learners:
            found = np.array([bought(s, LEARNERS[kind], given.rounds, seed) for seed, s in enumerate(settings)])
            mean = found.mean(0)
            print(f"{'':20}{kind:12}{mean[0]:8.4f}{found[:, 0].std():8.4f}{mean[1]:12.1%}{mean[2]:9.2f}", flush=True)
            print(f"{'':20}{'  own rows':12}{mean[3]:8.4f}{found[:, 3].std():8.4f}", flush=True)


if __name__ == "__main__":
    main()
