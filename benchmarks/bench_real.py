"""What a buyer gets on real tables that nobody prepared, with defaults only: `bazaar init`, then the market it writes.

    python benchmarks/bench_real.py bars            # five seeds a table: the market, own rows alone, pooled, uniform
    python benchmarks/bench_real.py pay             # correlation of pay over five seeds, 36 providers of flights
    python benchmarks/bench_real.py flights         # all rows and columns: time and memory of `init` and `run`

Needs `pip install -e '.[bench]'`: scikit-learn's built-in tables, and flights as real_tables.py gets them.
Every seed has its own division into test rows, own rows and providers' rows; `pay` has one division and five seeds of
the market. "Dirty" providers have a share of their labels replaced by wrong ones.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn import datasets
from sklearn.linear_model import LinearRegression, LogisticRegression

from databazaar import Arbiter, Uniform
from databazaar.config.jobs import market_job
from databazaar.data.tables import Schema
from databazaar.data.tree_features import encoding_of
from databazaar.learning.metrics import metrics, softmax
from real_tables import Tables, flights, with_wrong_labels

OWN_ROWS, TEST_ROWS, FLIGHTS = 2_000, 10_000, 60_000


def by_carrier(frame: pd.DataFrame) -> pd.Series:
    return frame["carrier"]


def by_origin_and_month(frame: pd.DataFrame) -> pd.Series:
    return frame["origin"] + frame["month"].map("-{:02d}".format)


def flight_market(by: Callable[[pd.DataFrame], pd.Series], dirty: int = 0) -> Callable[[int], Tables]:
    """Flights with a provider for each group, of which `dirty` have half of their labels wrong."""
    every = flights()

    def make(seed: int) -> Tables:
        rng = np.random.default_rng(seed)
        frame = every.iloc[rng.permutation(len(every))[:FLIGHTS]].reset_index(drop=True)
        own, test, rest = np.split(frame.index, [OWN_ROWS, OWN_ROWS + TEST_ROWS])
        sold = frame.loc[rest]
        groups = {str(name): group for name, group in sold.groupby(by(sold))}
        wrong = tuple(rng.choice(sorted(groups), dirty, replace=False).tolist())
        for name in wrong:
            groups[name] = with_wrong_labels(groups[name], "late", ["no", "yes"], 0.5, rng)
        return Tables(frame.loc[own], frame.loc[test], groups, "late", wrong)

    return make


def toy_market(
    load: Callable[..., object], own: int, test: int, providers: int, dirty: bool
) -> Callable[[int], Tables]:
    """One of scikit-learn's tables; the dirty providers' shares of wrong labels go from 0 to 90 %."""

    def make(seed: int) -> Tables:
        data = load(as_frame=True)
        frame = pd.DataFrame(data.data).copy()  # type: ignore[attr-defined]
        target, names = data.target, getattr(data, "target_names", ())  # type: ignore[attr-defined]
        frame["answer"] = [str(names[value]) for value in target] if target.dtype.kind == "i" else target
        rng = np.random.default_rng(seed)
        frame = frame.iloc[rng.permutation(len(frame))].reset_index(drop=True)
        parts = np.array_split(frame.index[own + test :], providers)
        groups = {f"provider-{i}": frame.loc[part] for i, part in enumerate(parts)}
        if dirty:
            labels, shares = sorted(frame["answer"].unique()), np.linspace(0, 0.9, providers)
            groups = {
                name: with_wrong_labels(group, "answer", labels, share, rng)
                for (name, group), share in zip(groups.items(), shares, strict=True)
            }
        return Tables(frame[:own], frame[own : own + test], groups, "answer")

    return make


MARKETS: dict[str, Callable[[], Callable[[int], Tables]]] = {
    "flights, 16 carriers": lambda: flight_market(by_carrier),
    "flights, 36 origin x month": lambda: flight_market(by_origin_and_month),
    "flights, 6 of 16 half wrong": lambda: flight_market(by_carrier, dirty=6),
    "digits": lambda: toy_market(datasets.load_digits, 300, 500, 9, dirty=False),
    "digits, 0-90 % wrong": lambda: toy_market(datasets.load_digits, 300, 500, 9, dirty=True),
    "breast cancer": lambda: toy_market(datasets.load_breast_cancer, 120, 150, 9, dirty=False),
    "breast cancer, 0-90 % wrong": lambda: toy_market(datasets.load_breast_cancer, 120, 150, 9, dirty=True),
    "wine": lambda: toy_market(datasets.load_wine, 40, 40, 6, dirty=False),
    "wine, 0-90 % wrong": lambda: toy_market(datasets.load_wine, 40, 40, 6, dirty=True),
    "diabetes": lambda: toy_market(datasets.load_diabetes, 100, 100, 8, dirty=False),
}


def bars(seeds: int, only: str) -> None:
    """Loss on the test rows (log loss; diabetes: 1 − R²), mean over the seeds, and differences seed by seed."""
    print(f"{'':28} {'market':>8} {'own LR':>8} {'own mlp':>8} {'pooled LR':>9} {'uniform':>8}   market − own LR")
    for name, market in MARKETS.items():
        if only not in name:
            continue
        make = market()
        found = np.array([one_market(make(seed), seed) for seed in range(seeds)])
        market_loss, own, same, pooled, uniform, accuracy, own_accuracy, rounds = found.mean(0)
        ahead = found[:, 0] - found[:, 1]
        error = ahead.std(ddof=1) / len(ahead) ** 0.5 if len(ahead) > 1 else float("nan")
        print(
            f"{name:28} {market_loss:8.4f} {own:8.4f} {same:8.4f} {pooled:9.4f} {uniform:8.4f}   "
            f"{ahead.mean():+.4f} ± {error:.4f}   accuracy {accuracy:.4f}, own {own_accuracy:.4f}; {rounds:.0f} rounds",
            flush=True,
        )


def one_market(tables: Tables, seed: int) -> list[float]:
    """Test losses of the market, own rows alone (by scikit-learn, and by the same model), all pooled, and uniform."""
    with tempfile.TemporaryDirectory() as folder:
        job = market_job(tables.write(Path(folder)), {"market": {"seed": seed}})
        schema = Schema.from_dict(job.recipe["schema"])
        judge = _Judge(schema, *schema.encode(tables.test, "test"))
        test = torch.from_numpy(
            encoding_of(schema, job.recipe["market"]["model"]["kind"]).encode_features(tables.test, "test")
        )
        arbiter = job.arbiter()
        report = arbiter.run()
        own = schema.encode(tables.own, "own")
        parts = [schema.encode(frame, name) for name, frame in tables.providers.items()]
        everything = np.concatenate([part[0] for part in [own, *parts]]), np.concatenate([p[1] for p in [own, *parts]])
        uniform = Arbiter(job.consumer, job.providers, Uniform(), seed=seed, stops=job.stops, engine=arbiter.engine)
        uniform.run()
        training = arbiter.training()
        market = judge.model(training.outputs(arbiter.reached, test))
        alone = judge.peer(*own)
        return [
            market[0],
            alone[0],
            judge.model(training.outputs(training.own_rows_alone(), test))[0],
            judge.peer(*everything)[0],
            judge.model(training.outputs(uniform.reached, test))[0],
            market[1],
            alone[1],
            len(report.rounds),
        ]


@dataclass(frozen=True)
class _Judge:
    """The test rows, as the peer takes them."""

    schema: Schema
    x: np.ndarray
    y: np.ndarray

    def model(self, outputs: np.ndarray) -> tuple[float, float]:
        """Loss and accuracy (or R²) of a model of ours, by its outputs for the test rows."""
        if self.schema.task != "classification":
            return self._loss(outputs.reshape(-1))
        return self._loss(softmax(outputs if outputs.shape[1] > 1 else np.column_stack([0 * outputs, outputs])))

    def peer(self, x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
        """The same of scikit-learn's linear model fitted to these rows."""
        if self.schema.task == "classification":
            fitted = LogisticRegression(max_iter=500).fit(x, y)
            p = np.full((len(self.x), self.schema.outputs), 1e-9)
            p[:, fitted.classes_] = fitted.predict_proba(self.x)
            return self._loss(p / p.sum(1, keepdims=True))
        return self._loss(LinearRegression().fit(x, y).predict(self.x))

    def _loss(self, answers: np.ndarray) -> tuple[float, float]:
        found = metrics(self.schema.task, answers, self.y)
        if self.schema.task == "classification":
            return found["log_loss"], found["accuracy"]
        return 1 - found["r2"], found["r2"]


def pay(seeds: int) -> None:
    """Correlation of pay between every two seeds of one market, and what six half-wrong carriers are paid."""
    for name, make in (
        ("36 origin x month", flight_market(by_origin_and_month)),
        ("16 carriers", flight_market(by_carrier)),
        ("16 carriers, 6 half wrong", flight_market(by_carrier, dirty=6)),
    ):
        for division in range(2):
            with tempfile.TemporaryDirectory() as folder:
                market = make(division).write(Path(folder))
                paid = pays_of(market, seeds)
            between = np.corrcoef(paid)[np.triu_indices(seeds, 1)]
            print(
                f"{name:28} division {division}: correlation of pay {between.mean():.2f} (least {between.min():.2f}); "
                f"mean pay {paid.mean(0).min():.0f} to {paid.mean(0).max():.0f} of {paid.sum(1).mean():.0f}",
                flush=True,
            )


def pays_of(market: Path, seeds: int) -> np.ndarray:
    """What every provider is paid [seeds, providers] when one market is played with several seeds."""
    jobs = (market_job(market, {"market": {"seed": seed}}) for seed in range(seeds))
    return np.array([[payout.pay for payout in job.arbiter().run().payouts] for job in jobs])


def whole_flights() -> None:
    """All flights by carrier as CSV, then `bazaar init` and `bazaar run`, in processes of their own."""
    every = flights()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        order = np.random.default_rng(0).permutation(len(every))
        every.iloc[order[:OWN_ROWS]].to_csv(folder / "own.csv", index=False)
        rest = every.iloc[order[OWN_ROWS:]]
        for carrier, group in rest.groupby("carrier"):
            group.to_csv(folder / f"{carrier}.csv", index=False)
        print(f"{len(rest):,} rows of {rest['carrier'].nunique()} carriers, {len(every.columns) - 1} columns")
        for command in (["init", str(folder)], ["run", str(folder / "market.toml"), "--out", str(folder / "run")]):
            began = time.perf_counter()
            done = subprocess.run([sys.executable, "-m", "databazaar", *command], capture_output=True, text=True)
            took, memory = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
            print(f"bazaar {command[0]}: exit {done.returncode}, {took:.0f} s, at most {memory:.2f} GiB so far")
            if done.returncode:
                sys.exit(done.stderr)
        print(done.stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["bars", "pay", "flights"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="", help="bars: markets whose name holds this")
    given = parser.parse_args()
    if given.what in (None, "bars"):
        bars(given.seeds, given.only)
    if given.what in (None, "pay"):
        pay(given.seeds)
    if given.what in (None, "flights"):
        whole_flights()
