"""The market beside LightGBM on twelve real tables with natural providers (real_tables.py), with defaults only.

    python benchmarks/bench_real_tables.py                                  # three seeds of all tables and variants
    python benchmarks/bench_real_tables.py --tables shops,credit --variants dirty --seeds 1
    python benchmarks/bench_real_tables.py --set model.kind=trees --set defence.kind=none --json all.json

Needs `pip install -e '.[bench]'`. A seed has its own division of a table. Measured on rows that nobody else has, by log
loss (classes) or the root of the mean square error (numbers):

    market     the market.toml that `bazaar init` writes, played to its end in a folder; the delivered model
    uniform    the same market, where everybody is asked alike
    LightGBM   on the rows of the buyer and of all providers; rounds chosen by half of the buyer's rows
    … inputs   the same rows, encoded as the market's trees see them: what the learner loses, without the encoding
    … clean    LightGBM without the providers that have wrong labels
    … own      LightGBM on the buyer's rows alone (on one half of them, then grown again on both)
    linear     logistic or ridge regression on the buyer's rows, as the market's networks see them
    words      of a table with text: logistic regression of all rows on TF-IDF weights of words and pairs of words and
               on the other columns, as the market's networks see them; the penalty is chosen by the buyer's rows

and of the market: the share of the pay that went to providers with wrong labels, accesses bought, rounds, seconds.
Ratios and differences are taken seed by seed; after ± is the standard error over the seeds. The bars:

    as-is      market / LightGBM <= 1.03; market - uniform <= its standard error
    dirty      market / LightGBM < 1; market / clean <= 1.04; at most 8 % of the pay to wrong labels
    slices     market / LightGBM <= 1.05; market - uniform <= its standard error
    text       as-is: market / words <= 1.05, instead of LightGBM, which takes a text for a category
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import lightgbm
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack, vstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss

from databazaar import Uniform, load_run
from databazaar.config.jobs import Job, job_of
from databazaar.config.market_file import parse_market, read_settings
from databazaar.config.play import begun
from databazaar.data.tables import Schema
from databazaar.data.tree_features import TreeFeatures
from databazaar.learning.metrics import metrics
from real_tables import TABLES, VARIANTS, Tables, division

Numbers = NDArray[np.float64]
Inputs = Callable[[pd.DataFrame], pd.DataFrame]
LIGHTGBM = {"learning_rate": 0.05, "num_leaves": 31, "min_data_in_leaf": 20, "num_threads": 1, "verbose": -1}
MOST_ROUNDS, PATIENCE = 2_000, 50
FIRST_DAY = pd.Timestamp("2000-01-01", tz="UTC")
PENALTIES = (1.0, 10.0, 100.0)
LOSSES = ("market", "uniform", "pooled", "clean", "inputs", "own", "linear", "words")
OTHERS = ("dirty_pay", "accesses", "rounds", "best_round", "market_seconds", "pooled_seconds")


@dataclass(frozen=True)
class Figures:
    """What is measured in a case."""

    table: str
    variant: str
    seed: int
    market: float
    uniform: float
    pooled: float
    inputs: float
    clean: float
    own: float
    linear: float
    words: float
    """NaN where there is no text."""
    dirty_pay: float
    """Share of the pay; NaN where nobody has wrong labels."""
    accesses: int
    rounds: int
    best_round: int
    ended: str
    uniform_accesses: int
    market_seconds: float
    pooled_seconds: float
    pooled_rounds: int


@dataclass(frozen=True)
class Played:
    loss: float
    pay: dict[str, int]
    accesses: int
    rounds: int
    best_round: int
    ended: str
    seconds: float


def figures(case: tuple[str, str, int], changes: Sequence[str]) -> Figures:
    name, variant, seed = case
    tables = division(name, variant, seed)
    with tempfile.TemporaryDirectory() as folder:
        market = tables.write(Path(folder))
        job = changed_job(market, [f"market.seed={seed}", *changes])
        bought = played(job, Path(folder) / "run", tables.test)
        uniform = played(replace(job, sampler=Uniform()), Path(folder) / "uniform", tables.test)
    peers = Peers(tables, Schema.from_dict(job.recipe["schema"]))
    parts = tables.providers
    pooled, pooled_seconds, pooled_rounds = peers.boosted(list(parts.values()))
    clean = [rows for name, rows in parts.items() if name not in tables.wrong]
    dirty_pay = sum(bought.pay[name] for name in tables.wrong) / max(1, sum(bought.pay.values()))
    return Figures(
        name,
        variant,
        seed,
        market=bought.loss,
        uniform=uniform.loss,
        pooled=pooled,
        inputs=peers.boosted(list(parts.values()), peers.encoded)[0],
        clean=peers.boosted(clean)[0] if tables.wrong else pooled,
        own=peers.boosted_alone(),
        linear=peers.linear(),
        words=peers.words(list(parts.values())),
        dirty_pay=dirty_pay if tables.wrong else float("nan"),
        accesses=bought.accesses,
        rounds=bought.rounds,
        best_round=bought.best_round,
        ended=bought.ended,
        uniform_accesses=uniform.accesses,
        market_seconds=bought.seconds,
        pooled_seconds=pooled_seconds,
        pooled_rounds=pooled_rounds,
    )


def changed_job(path: Path, changes: Sequence[str]) -> Job:
    """The job of a market.toml where some settings are others: `section.name=value`, or `section=value`."""
    settings = read_settings(path)
    for change in changes:
        key, value = change.split("=", 1)
        *sections, last = key.split(".")
        place = settings
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = toml_of(value)
    return job_of(parse_market(settings), path.parent)


def toml_of(value: str) -> object:
    """
    >>> toml_of("0.1"), toml_of("trees"), toml_of("[]")
    (0.1, 'trees', [])
    """
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return value


def played(job: Job, folder: Path, test: pd.DataFrame) -> Played:
    """A market to its end, as `bazaar run` plays it, and its model on the test rows."""
    began = time.perf_counter()
    with begun(job, folder) as playing:
        playing.settle()
    seconds = time.perf_counter() - began
    run = load_run(folder)
    report, judged = run.report, run.evaluate(test)
    best = -1 if report.best is None else int(report.best.round)
    pay = {payout.provider: payout.pay for payout in report.payouts}
    loss = judged["log_loss" if job.recipe["schema"]["task"] == "classification" else "rmse"]
    accesses = sum(len(round.accesses) for round in report.rounds)
    return Played(loss, pay, accesses, len(report.rounds), best, str(report.stopped_by), seconds)


class Peers:
    """What others make of the same rows."""

    def __init__(self, tables: Tables, schema: Schema) -> None:
        self.tables, self.schema, self.target = tables, schema, tables.target
        self.classes = sorted(tables.own[self.target].unique()) if schema.task == "classification" else []
        half = len(tables.own) // 2
        self.halves = tables.own[:half], tables.own[half:]

    def boosted(self, parts: Sequence[pd.DataFrame], inputs: Inputs | None = None) -> tuple[float, float, int]:
        """LightGBM's loss with half of the own rows to train on and half to stop by; seconds, and rounds."""
        began = time.perf_counter()
        fit = self._lightgbm(pd.concat([self.halves[0], *parts]), self.halves[1], MOST_ROUNDS, inputs or self.plain)
        return fit[0], time.perf_counter() - began, fit[1]

    def boosted_alone(self) -> float:
        rounds = self._lightgbm(*self.halves, MOST_ROUNDS, self.plain)[1]
        return self._lightgbm(self.tables.own, None, rounds, self.plain)[0]

    def linear(self) -> float:
        x, y = self.schema.encode(self.tables.own, "own")
        test = self.schema.encode_features(self.tables.test, "test")
        if not self.classes:
            return self._loss(self.schema.in_units(Ridge().fit(x, y).predict(test)))
        return self._loss(LogisticRegression(max_iter=500).fit(x, y).predict_proba(test))

    def words(self, parts: Sequence[pd.DataFrame]) -> float:
        texts = [column.name for column in self.schema.texts]
        if not texts:
            return float("nan")
        rest = self.schema.model_copy(update={"texts": ()})
        own, test, bought = self.tables.own, self.tables.test, pd.concat(parts)
        vectors = [TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2) for _ in texts]
        for name, vector in zip(texts, vectors, strict=True):
            vector.fit(pd.concat([own, bought])[name].fillna(""))

        def inputs(frame: pd.DataFrame) -> csr_matrix:
            found = [vector.transform(frame[name].fillna("")) for name, vector in zip(texts, vectors, strict=True)]
            return hstack([rest.encode_features(frame, "rows"), *found]).tocsr()

        own_x, test_x, bought_x = map(inputs, (own, test, bought))
        own_y, bought_y = self._y(own), self._y(bought)
        fits = [LogisticRegression(C=penalty, max_iter=300).fit(bought_x, bought_y) for penalty in PENALTIES]
        best = int(np.argmin([log_loss(own_y, fit.predict_proba(own_x)) for fit in fits]))
        fit = LogisticRegression(C=PENALTIES[best], max_iter=300)
        return self._loss(fit.fit(vstack([own_x, bought_x]), np.concatenate([own_y, bought_y])).predict_proba(test_x))

    def plain(self, frame: pd.DataFrame) -> pd.DataFrame:
        """A table as people give it to LightGBM: dates as the day, the weekday, the month and the hour."""
        columns: dict[str, pd.Series] = {}
        for name in frame.columns.drop(self.target):
            given = frame[name]
            if not (pd.api.types.is_string_dtype(given) or given.dtype == object):
                columns[name] = given
            elif (date := pd.to_datetime(given, format="ISO8601", errors="coerce", utc=True)).notna().mean() > 0.5:
                columns[name] = (date - FIRST_DAY) / pd.Timedelta(days=1)
                columns[f"{name} hour"] = date.dt.hour + date.dt.minute / 60
                columns |= {f"{name} {part}": getattr(date.dt, part) for part in ("dayofweek", "month")}
            else:
                columns[name] = given.astype("category")
        return pd.DataFrame(columns).rename(columns=lambda name: "".join(c if c.isalnum() else "_" for c in name))

    def encoded(self, frame: pd.DataFrame) -> pd.DataFrame:
        """A table as the market's trees see it."""
        encoding = TreeFeatures(self.schema)
        found = pd.DataFrame(encoding.encode_features(frame, "rows"), index=frame.index).rename(columns="f{}".format)
        return found.astype({f"f{place}": "category" for place in encoding.categorical})

    def _lightgbm(
        self, rows: pd.DataFrame, judge: pd.DataFrame | None, rounds: int, inputs: Inputs
    ) -> tuple[float, int]:
        """The loss on the test rows, and the rounds; those that the judging rows like best, where there are such."""
        kind = "regression" if not self.classes else "binary" if len(self.classes) == 2 else "multiclass"
        settings = {**LIGHTGBM, "objective": kind, "num_class": len(self.classes) if kind == "multiclass" else 1}
        x = inputs(rows)
        data = lightgbm.Dataset(x, self._y(rows))
        stopping: dict[str, Any] = {}
        if judge is not None:
            judged = lightgbm.Dataset(alike(inputs(judge), x), self._y(judge), reference=data)
            stopping = {"valid_sets": [judged], "callbacks": [lightgbm.early_stopping(PATIENCE, verbose=False)]}
        booster = lightgbm.train(settings, data, rounds, **stopping)
        answers = np.asarray(booster.predict(alike(inputs(self.tables.test), x)))
        if kind == "binary":
            answers = np.column_stack([1 - answers, answers])
        return self._loss(answers), booster.best_iteration

    def _y(self, rows: pd.DataFrame) -> Numbers:
        given = rows[self.target]
        if not self.classes:
            return given.to_numpy(dtype=np.float64)
        return given.map({label: place for place, label in enumerate(self.classes)}).to_numpy(dtype=np.float64)

    def _loss(self, answers: Numbers) -> float:
        y = self._y(self.tables.test)
        return metrics(self.schema.task, answers, y.astype(np.int64) if self.classes else y)[
            "log_loss" if self.classes else "rmse"
        ]


def alike(frame: pd.DataFrame, learned: pd.DataFrame) -> pd.DataFrame:
    """The same columns with the categories that are `learned`; any other is missing."""
    return frame.astype({name: learned[name].dtype for name in learned.select_dtypes("category")})


def told(variant: str, found: list[Figures]) -> Iterator[str]:
    """The table of a variant."""
    heads = ("market", "uniform", "LightGBM", "… clean", "… inputs", "… own", "linear", "words")
    yield (
        f"\n{variant:10} {' '.join(f'{head:>9}' for head in heads)}   "
        f"{'market/LightGBM':>16} {'market/clean':>16} {'market - uniform':>18}  dirty pay  accesses  rounds (best)  "
        f"seconds (LightGBM)  missed"
    )
    for name in TABLES:
        cases = [one for one in found if (one.table, one.variant) == (name, variant)]
        if not cases:
            continue
        mean = {key: float(np.mean(column(cases, key))) for key in (*LOSSES, *OTHERS)}
        market, uniform, pooled, clean = (np.array(column(cases, key)) for key in LOSSES[:4])
        ahead, ratio, to_clean = market - uniform, market / pooled, market / clean
        losses = " ".join(f"{mean[key]:9.5g}" for key in LOSSES)
        yield (
            f"{name:10} {losses}   {with_error(ratio, '.3f'):>16} {with_error(to_clean, '.3f'):>16} "
            f"{with_error(ahead, '+.3g'):>18}  {mean['dirty_pay']:9.1%}  {mean['accesses']:8.0f}  "
            f"{mean['rounds']:6.0f} ({mean['best_round']:4.0f})  "
            f"{mean['market_seconds']:7.1f} ({mean['pooled_seconds']:8.1f})  "
            f"{missed(variant, ratio, to_clean, ahead, mean)}"
        )


def column(cases: Sequence[Figures], key: str) -> list[float]:
    return [float(getattr(one, key)) for one in cases]


def missed(variant: str, ratio: Numbers, to_clean: Numbers, ahead: Numbers, mean: dict[str, float]) -> str:
    """Which bars are not met."""
    error = standard_error(ahead) if len(ahead) > 1 else 0.0
    if variant == "dirty":
        bars = {
            "LightGBM": ratio.mean() >= 1,
            "clean": to_clean.mean() > 1.04,
            "pay": mean["dirty_pay"] > 0.08,
        }
    else:
        text = np.isfinite(mean["words"])
        to_words = mean["market"] / mean["words"] > 1.05
        bars = {
            "words": text and to_words,
            "LightGBM": not text and ratio.mean() > (1.03 if variant == "as-is" else 1.05),
            "uniform": ahead.mean() > error,
        }
    return ", ".join(name for name, is_missed in bars.items() if is_missed) or "none"


def standard_error(values: Numbers) -> float:
    return float(values.std(ddof=1)) / len(values) ** 0.5 if len(values) > 1 else float("nan")


def with_error(values: Numbers, form: str) -> str:
    return f"{values.mean():{form}} ± {standard_error(values):{form.lstrip('+')}}"


def chosen(text: str, of: Sequence[str]) -> list[str]:
    names = text.split(",") if text else list(of)
    if unknown := set(names) - set(of):
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: there are {', '.join(of)}")
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=partial(chosen, of=list(TABLES)), default=list(TABLES), help="a,b")
    parser.add_argument("--variants", type=partial(chosen, of=VARIANTS), default=list(VARIANTS), help="a,b")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--set", action="append", default=[], help="another setting: section.name=value", metavar="S")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path, help="where to write all figures")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    cases = [(name, variant, seed) for seed in seeds for name in given.tables for variant in given.variants]
    found: list[Figures] = []
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        for one in pool.map(partial(figures, changes=given.set), cases):
            found.append(one)
            if given.json:
                given.json.write_text(json.dumps([asdict(each) for each in found], indent=1))
            print(".", end="", flush=True)
    for variant in given.variants:
        print(*told(variant, found), sep="\n")


if __name__ == "__main__":
    main()
