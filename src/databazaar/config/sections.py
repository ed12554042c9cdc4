"""The sections of market.toml that choose no rule: names, types, bounds and defaults. `chosen_rules` has the others,
and `MarketFile` says what each is for."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from databazaar.config.limits import LONGEST_WAIT, MOST_PER_ROUND
from databazaar.data.formats import TableFormat
from databazaar.data.schema_message import TaskKind
from databazaar.defence import Defence
from databazaar.registry import ENGINES
from databazaar.roster import PriceChange
from databazaar.settings import one_of, setting

MOST = 10**9
DEVICE = re.compile(r"(auto|cpu|mps|cuda(:\d{1,3})?)")
TRAIN, AUDIT = 0.5, 0.2
"""The shares of the hold-out to start from and to audit by where nothing is said."""


def _amount(value: object) -> str | None:
    whole = isinstance(value, int | str) and not isinstance(value, bool)
    return None if whole else 'must be a whole number or text such as "12.50"'


def _visible(value: object, longest: int = 200) -> str | None:
    if isinstance(value, str) and (not value.strip() or value != value.strip() or not value.isprintable()):
        return "must be visible text without control characters or spaces around it"
    return f"is longer than {longest} characters" if isinstance(value, str) and len(value) > longest else None


def _visible_or_empty(value: object) -> str | None:
    return None if value == "" else _visible(value)


def _all_visible(value: object) -> str | None:
    return next(filter(None, map(_visible, value)), None) if isinstance(value, list | tuple) else None


def _id(value: object) -> str | None:
    if isinstance(value, str) and (value in {".", ".."} or "/" in value or "\\" in value):
        return "must not hold a path separator (it becomes a file's name)"
    return _visible(value, 100)


def _file(value: object) -> str | None:
    text = value.as_posix() if isinstance(value, Path) else value
    if isinstance(text, str) and any(len(part.encode(errors="surrogatepass")) > 255 for part in text.split("/")):
        return "is longer than a file's name can be"
    return _visible(text, 1000)


def _share_or_file(value: object) -> str | None:
    if isinstance(value, str | Path):
        return _file(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        return "must be a share of the hold-out below 1, such as 0.5, or a file in quotes"
    return None


def _character(value: object) -> str | None:
    return "must be one character" if isinstance(value, str) and len(value) != 1 else None


def _device(value: object) -> str | None:
    return "is not understood" if isinstance(value, str) and not DEVICE.fullmatch(value) else None


def _engine(value: object) -> str | None:
    return None if value in (kinds := ENGINES.kinds()) else one_of(kinds)


def _own_rows(help: str, share: float) -> Any:
    """A share of the hold-out, or a file of rows."""
    return setting(
        None,
        f"{help}: a share of the hold-out, or a file; 0 is none",
        check=_share_or_file,
        example=share,
        without=f"{share:g}",
    )


def _columns(help: str, example: tuple[str, ...], without: str) -> Any:
    return setting(None, help, check=_all_visible, entries=(1, MOST), example=example, without=without)


def _found_out(help: str, example: str, check: Callable[[object], str | None] | None = None) -> Any:
    return setting(None, help, check=check, example=example, without="found out")


def _database(value: object) -> str | None:
    """Only what SQLAlchemy can read; the address itself is never repeated, as it may hold a password."""
    if not isinstance(value, str):
        return None
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        kind = make_url(value).get_backend_name()
    except (ArgumentError, ValueError):
        return "is no address of a database, or its port is no number"
    return "is for a database server, and an SQLite file needs no setting" if kind == "sqlite" else None


@dataclass(frozen=True)
class MarketSettings:
    budget: int | str = setting(help="what may be spent in all", check=_amount, example=1000)
    name: str = setting("market", "the title of reports, statements and the ledger", check=_visible)
    per_round: int = setting(10, "accesses that a round buys, the paper's K", at_least=1, at_most=MOST_PER_ROUND)
    seed: int = setting(
        0, "the same seed gives the same run: draws, shuffles and the model's start", at_least=0, below=2**63
    )
    currency: str = setting("credits", "how amounts are named", check=_visible)
    decimals: int = setting(0, "digits after the decimal point: 2 for euros and cents", at_least=0, at_most=9)
    most_per_access: int | str | None = setting(
        None, "a provider that costs more is not asked", check=_amount, example=5
    )
    most_per_round: int | str | None = setting(None, "the pace: no round costs more", check=_amount, example=40)
    values_rows: bool = setting(
        False, "keeps what each row has brought, for its provider's own statement; not with learner averaging"
    )


@dataclass(frozen=True)
class ConsumerSettings:
    name: str = setting(
        "", "who buys, as statements, reports and the ledger say it", check=_visible_or_empty, example="Harbour Bank"
    )
    train: float | Path | None = _own_rows("your own rows to start from", TRAIN)


@dataclass(frozen=True)
class DataSettings:
    """The consumer's rows, and how tables are read. What is not set about files is found out for each."""

    holdout: Path = setting(
        help="your own CSV or Parquet file; it never reaches a provider", check=_file, example="holdout.csv"
    )
    target: str = setting(help="the column to predict; rows without it are left out", check=_visible, example="target")
    task: TaskKind = setting("classification", "what is predicted: classes or numbers")
    audit: float | Path | None = _own_rows("rows that only judge the purchase in the end", AUDIT)
    features: tuple[str, ...] | None = _columns(
        "a list of columns; files may have others besides", ("amount", "hour", "channel"), "all columns but the target"
    )
    categorical: tuple[str, ...] | None = _columns(
        "a list of columns to take as categories", ("channel",), "the columns of names"
    )
    text: tuple[str, ...] | None = _columns(
        "a list of columns to take as free text", ("comment",), "the columns of many different texts of several words"
    )
    separator: str | None = _found_out("of text files", ";", _character)
    decimal: Literal[".", ","] | None = _found_out("of text files", ",")
    encoding: str | None = _found_out("of text files", "cp1252", _visible)
    missing: tuple[str, ...] = setting(
        (), "texts that stand for a missing value, beside the usual ones", check=_all_visible, example=("-", "n/a")
    )
    dates: Literal["day-first", "month-first"] | None = _found_out("how to read 03/04/2024", "day-first")

    @property
    def format(self) -> TableFormat:
        """How the market's text files are written, as far as it is said."""
        return TableFormat(self.separator, self.decimal, self.encoding, self.missing)


@dataclass(frozen=True)
class TrainingSettings:
    step: float = setting(1.0, "γ, how far the model moves along the average update", above=0)
    halve_every: int | None = setting(
        None, "the rounds after which this step and that of local-sgd halve", at_least=1, at_most=MOST, example=50
    )


@dataclass(frozen=True)
class DefenceSettings:
    """Rules against those who play for the money, by the name of their set."""

    kind: Literal["none", "standard", "strict"] = setting(
        help='the rules, such as "standard"; "none" is the paper\'s market', example="standard"
    )
    alike: bool = setting(
        True, "false pays two providers with the same data both, where the kind would pay them as one"
    )

    @property
    def chosen(self) -> Defence:
        named = Defence.named(self.kind)
        return named if self.alike else replace(named, alike=None)


@dataclass(frozen=True)
class EngineSettings:
    kind: str = setting("vectorized", "all providers of a round at once", check=_engine)
    device: str = setting("auto", '"auto", "cpu", "cuda", "cuda:0" or "mps"', check=_device)


@dataclass(frozen=True)
class FederationSettings:
    folder: Path = setting(help="the folder that `bazaar federation init` made", check=_file, example="federation")
    deadline: float = setting(
        30.0,
        "seconds that a provider has for an answer, or for the next piece of a large one",
        above=0,
        at_most=LONGEST_WAIT,
    )
    wait: float = setting(60.0, "seconds that a run waits for providers to connect", above=0, at_most=LONGEST_WAIT)
    consumer: str = setting(
        "", "for whom providers are asked", check=_visible_or_empty, example="north-bank", without="consumer.name"
    )
    contract: str = setting(
        "", "by which contract they are asked; a hub writes its own", check=_visible_or_empty, example="job-1"
    )


@dataclass(frozen=True)
class LedgerSettings:
    url: str | None = setting(
        None,
        'an SQLAlchemy URL such as "postgresql+psycopg://host/name"',
        check=_database,
        secret=True,
        example="postgresql+psycopg://host/name",
        without="an SQLite file in the run's folder",
    )


@dataclass(frozen=True)
class PriceChangeSettings:
    """A price from a later round on."""

    from_round: int = setting(
        help="the first round at this price; rounds are counted from 1", at_least=2, at_most=MOST, example=20
    )
    price: int | str = setting(help="of one access, from that round on", check=_amount, example="3.00")


@dataclass(frozen=True)
class ProviderSettings:
    """One who sells."""

    id: str = setting(help="a name of its own; becomes part of file names", check=_id, example="north")
    file: Path | None = setting(
        None,
        "its CSV or Parquet file, with the hold-out's columns",
        check=_file,
        example="north.csv",
        without="required unless federated",
    )
    owner: str = setting(
        "",
        "who is paid; one owner may run several providers",
        check=_visible_or_empty,
        example="north",
        without="the id",
    )
    price: int | str = setting("1", "of one access, in the currency; above zero", check=_amount)
    most_accesses: int | None = setting(None, "how often a run may draw it", at_least=1, at_most=MOST, example=30)
    price_changes: tuple[PriceChangeSettings, ...] = setting(
        (), "what an access costs from a round on, announced", example=({"from_round": 20, "price": "3.00"},)
    )
    price_minor: int = field(init=False, default=0)
    """The price per access in minor units of the market's currency."""
    changes_minor: tuple[PriceChange, ...] = field(init=False, default=())
    """The announced prices in minor units, with rounds as the ledger counts them, from 0."""

    def __post_init__(self) -> None:
        if not self.owner:
            object.__setattr__(self, "owner", self.id)
