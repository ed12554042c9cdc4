"""From a folder of files to what a market.toml must say: whose each table is, what is predicted, and from what."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from pandas.api import types

from databazaar.data.columns import (
    Column,
    distinct,
    holds_written_numbers,
    is_identifier,
    kind_of,
    listed,
    plain,
    suggestion,
)
from databazaar.data.encoders import ImageColumn, TextColumn
from databazaar.data.holdout import fit_column
from databazaar.data.images import Size, holds_bytes, usual_size
from databazaar.data.schema_message import LeftOut, TaskKind
from databazaar.data.tables import holds_images, read_table, table_suffix
from databazaar.errors import BazaarError

Ask = Callable[[str, Sequence[str]], str]
"""Asks a person one question that has these answers."""
LONGEST_ID, LONGEST_NAME = 60, 200
FEW = 20
"""So many different values, at most, are classes."""
_SAYS_SO = {"target", "label", "labels", "class", "y", "outcome", "response"}
_USUALLY_IS = {
    *("fraud", "fraudulent", "default", "defaulted", "churn", "churned", "survived", "diagnosis", "disease"),
    *("late", "delayed", "cancelled", "converted", "conversion", "clicked", "bought", "purchased", "approved"),
    *("attrition", "readmitted", "quality", "species", "spam"),
}
_CONSUMERS = (
    {"train", "training"},
    {"own", "ours", "mine", "consumer", "buyer", "our", "my"},
    {"holdout", "validation", "valid", "val"},
)
"""Words in the name of a consumer's file. Of two such files, the later kind judges and the other one trains."""
_FIRST_WORD = {"our", "my"}
"""Such a word tells nothing later in a name: MY is a country too."""


@dataclass(frozen=True)
class Found:
    """What a market.toml is written from. Paths are relative to `folder`, `rows` are those of the hold-out, `for_sale`
    those of all providers, and `notes` say what was left out, and why."""

    folder: Path
    holdout: Path
    rows: int
    for_sale: int
    train: Path | None
    target: str
    task: TaskKind
    features: tuple[str, ...] | None
    providers: tuple[tuple[str, Path], ...]
    notes: tuple[str, ...]
    image: Size | None = None
    """How large images become, where there are such."""


@dataclass(frozen=True)
class Wishes:
    """What a user says instead of leaving it to be guessed. `ask` is there where a person can be asked."""

    own: Path | None = None
    target: str | None = None
    task: TaskKind | None = None
    ask: Ask | None = None


def tables_at(places: Iterable[Path]) -> list[Path]:
    """The tables and the folders of images in folders, those that a glob matches, and files that are named; each once,
    by name."""
    found: dict[Path, Path] = {}
    for place in places:
        if place.is_dir():
            seen = [path for path in place.iterdir() if not path.name.startswith(".")]
            named = [path for path in seen if table_suffix(path) or holds_images(path)]
        elif place.exists() or not re.search(r"[*?[]", str(place)):
            named = [place] if place.exists() or table_suffix(place) else []
        else:
            named = [path for path in Path(place.anchor).glob(str(place.relative_to(place.anchor))) if path.is_file()]
        for path in sorted(named):
            found.setdefault(path.resolve(), path)
    return list(found.values())


def discover(files: Sequence[Path], folder: Path, wishes: Wishes) -> Found:
    """What the tables tell of a market whose market.toml lies in `folder`."""
    own = wishes.own
    others = [path for path in files if own is None or path.resolve() != own.resolve()]
    tests = [path for path in others if is_test(path)]
    others = [path for path in others if path not in tests]
    holdout, train = consumer_files(others, wishes)
    frame = read_table(holdout).frame
    theirs = [path for path in others if path not in (holdout, train)]
    notes = [f"{path.name} is left to you: judge the model with it by `bazaar evaluate`" for path in tests]
    sizes, tables, unread = _tables(theirs, folder)
    target = _target(frame, holdout, tables, wishes)
    providers, features, said = _providers(frame, target, tables)
    if not providers:
        raise BazaarError(
            f"{folder}: no provider's table is found beside {holdout.name}; "
            + ("; ".join([*unread, *said]) or "there is no other table")
            + ": add one file for each provider, or name the files"
        )
    ids = provider_ids(providers)
    return Found(
        folder=folder,
        holdout=_relative(holdout, folder),
        rows=len(frame),
        for_sale=sum(sizes[path] for path in providers),
        train=None if train is None else _relative(train, folder),
        target=target,
        task=wishes.task or guess_task(frame[target]),
        features=features,
        providers=tuple((id, _relative(path, folder)) for id, path in zip(ids, providers, strict=True)),
        notes=(*notes, *unread, *said),
        image=next((usual_size(frame[name]) for name in frame.columns if holds_bytes(frame[name])), None),
    )


def is_test(path: Path) -> bool:
    """Whether the name says that a file is for testing.

    >>> [is_test(Path(name)) for name in ("test.csv", "test_2024.csv", "bank_test.csv", "latest.csv", "testament.csv")]
    [True, True, True, False, False]
    """
    return any(re.fullmatch(r"tests?(?:set|ing|data)?", word) for word in _words(path))


def consumer_files(files: Sequence[Path], wishes: Wishes) -> tuple[Path, Path | None]:
    """The consumer's hold-out, and the file to start training from if that is another one."""
    known = [(rank, path) for path in files if (rank := _rank(path)) >= 0]
    ranked = sorted(known, key=lambda pair: -pair[0])
    if wishes.own is not None:
        judges = [path for rank, path in ranked if rank > max(1, _rank(wishes.own))]
        return (judges[0], wishes.own) if len(judges) == 1 else (wishes.own, None)
    for sure in (ranked, [(rank, path) for rank, path in ranked if len(_words(path)) == 1]):
        if len(sure) == 1:
            return sure[0][1], None
        if len(sure) == 2 and sure[0][0] > sure[1][0]:
            return sure[0][1], sure[1][1]
    candidates = [path for _, path in ranked] or list(files)
    names = [str(path) for path in candidates]
    if wishes.ask is not None and names:
        return Path(wishes.ask("Which file is your own?", names)), None
    problem = "more than one file looks like your own" if ranked else "no file is named as your own (own.csv)"
    raise BazaarError(f"{problem}, of {listed(names)}: say which with `--own FILE`")


def _target(frame: pd.DataFrame, holdout: Path, tables: dict[Path, list[str]], wishes: Wishes) -> str:
    names = [str(name) for name in frame.columns]
    if wishes.target is not None and wishes.target not in names:
        raise BazaarError(
            f"{holdout}: the target column {wishes.target!r} is missing; {suggestion(wishes.target, names)}: "
            "correct `--target`"
        )
    target = wishes.target or guess_target(frame, list(tables.values()), holdout.name, wishes.ask)
    if not writable(target):
        raise BazaarError(f"{holdout}: market.toml cannot hold the name of the target column {target!r}: rename it")
    return target


def _providers(
    frame: pd.DataFrame, target: str, tables: dict[Path, list[str]]
) -> tuple[list[Path], tuple[str, ...] | None, list[str]]:
    """The tables that have the target and the features that most of them have; those features, where some columns are
    left out; and notes on what is left out."""
    names = [str(name) for name in frame.columns]
    notes, sellers = [], {}
    for path, columns in tables.items():
        if target in columns:
            sellers[path] = columns
        elif set(names) - {target} <= set(columns):
            notes.append(f"{path.name} has all columns but {target!r}: predict that with `bazaar predict`")
        else:
            notes.append(f"{path.name} is left out: it has no column {target!r} ({suggestion(target, columns)})")
    unused = unused_columns(frame, target)
    wanted = [name for name in names if name != target and name not in unused]
    shared = [name for name in wanted if 2 * sum(name in columns for columns in sellers.values()) >= len(sellers)]
    for name in wanted:
        if name not in shared:
            unused[name] = "most providers do not have it"
    providers = []
    for path, columns in sellers.items():
        lacking = [name for name in shared if name not in columns]
        if lacking:
            notes.append(
                f"{path.name} is left out: it has no column {listed(lacking, 4)} ({suggestion(lacking[0], columns)})"
            )
        else:
            providers.append(path)
    notes += [f"the column {name!r} is left out of `features`: {why}" for name, why in unused.items()]
    return providers, tuple(shared) if unused else None, notes


def _tables(files: Iterable[Path], folder: Path) -> tuple[dict[Path, int], dict[Path, list[str]], list[str]]:
    """The rows and the columns of each table that can be read and named, and a sentence for each that cannot."""
    sizes, tables, notes = {}, {}, []
    for path in files:
        try:
            if not writable(_relative(path, folder).as_posix()):
                raise BazaarError(f"{path.name!r}: market.toml cannot hold such a name: rename the file")
            frame = read_table(path).frame
            sizes[path], tables[path] = len(frame), [str(name) for name in frame.columns]
        except BazaarError as reason:
            notes.append(f"{path.name!r} is left out ({reason})")
    return sizes, tables, notes


def _relative(path: Path, folder: Path) -> Path:
    path, folder = path.resolve(), folder.resolve()
    return path.relative_to(folder) if path.is_relative_to(folder) else path


def _rank(path: Path) -> int:
    """The kind of name that says that a file is the consumer's, by its place in `_CONSUMERS`; -1 for any other."""
    words = _words(path)
    told = {*words[:1], *(set(words[1:]) - _FIRST_WORD), *(a + b for a, b in itertools.pairwise(words))}
    return max((rank for rank, known in enumerate(_CONSUMERS) if known & told), default=-1)


def _words(path: Path) -> list[str]:
    return re.findall(r"[^\W\d_]+", stem_of(path).casefold())


def guess_target(frame: pd.DataFrame, others: Sequence[Sequence[str]], where: str, ask: Ask | None = None) -> str:
    """The column to predict: by its name, as the only one that a table of `others` lacks, or the last of few values.

    >>> guess_target(pd.DataFrame({"amount": [1.5, 2.5], "is_fraud": [0, 1]}), [["amount", "is_fraud"]], "own.csv")
    'is_fraud'
    """
    names = [str(name) for name in frame.columns]
    shared = [name for name in names if not others or any(name in columns for columns in others)]
    for candidates in _hints(shared, others):
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            return _chosen(candidates, where, ask)
    few = [name for name in shared if 2 <= distinct(frame[name]) <= FEW]
    if few and few[-1] == names[-1]:
        return names[-1]
    return _chosen([*few, *(name for name in shared[-1:] if name not in few)], where, ask)


def _hints(names: list[str], others: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    """Columns that may be the target, the surest hint first."""
    for known in (_SAYS_SO, _USUALLY_IS):
        yield [name for name in names if name.casefold() in known]
        yield [name for name in names if known & set(re.findall(r"[^\W\d_]+", name.casefold()))]
    lacking = ([name for name in names if name not in columns] for columns in others)
    yield sorted({absent[0] for absent in lacking if len(absent) == 1})


def _chosen(candidates: list[str], where: str, ask: Ask | None) -> str:
    if ask is not None and candidates:
        return ask("Which column is to be predicted?", candidates)
    likely = f"; it may be {listed(candidates)}" if candidates else ""
    raise BazaarError(f"{where}: no column is surely the one to predict{likely}: say which with `--target NAME`")


def guess_task(target: Column) -> TaskKind:
    """Text and few whole numbers are classes; any other numbers are to be estimated.

    >>> guess_task(pd.Series(["yes", "no"])), guess_task(pd.Series([0, 1])), guess_task(pd.Series([0.5, 1.5]))
    ('classification', 'classification', 'regression')
    """
    values = plain(target.dropna())
    if kind_of(values) != "number" or types.is_bool_dtype(values.dtype):
        many_numbers = distinct(values) > FEW and holds_written_numbers(values)
        return "regression" if many_numbers else "classification"
    whole = bool((values == values.round()).all())
    return "classification" if whole and distinct(values) <= FEW else "regression"


def unused_columns(frame: pd.DataFrame, target: str) -> dict[str, str]:
    """The columns that would be taken for features and are none, each with the reason."""
    unused = {}
    for name in (str(name) for name in frame.columns if name != target):
        try:
            fitted = fit_column(frame[name], said=None, wanted=False, day_first=None, where="")
        except BazaarError as reason:
            unused[name] = str(reason).removeprefix(": ")
            continue
        if not isinstance(fitted, LeftOut | TextColumn | ImageColumn) and is_identifier(frame[name]):
            unused[name] = "it is different in every row, as an identifier is"
    if unused:
        unused |= {name: "market.toml cannot hold its name" for name in map(str, frame.columns) if not writable(name)}
    return unused


def stem_of(path: Path) -> str:
    """The name without what says that it is a table.

    >>> stem_of(Path("data/north.2024.csv.gz"))
    'north.2024'
    """
    return path.name[: -len(suffix)] if (suffix := table_suffix(path)) else path.stem


def provider_ids(paths: Iterable[Path]) -> list[str]:
    """An id for each file: its name in small letters, with a number where two would be alike.

    >>> provider_ids([Path("Bank North.csv"), Path("bank-north.parquet"), Path("?.csv")])
    ['bank-north', 'bank-north-2', 'provider']
    """
    ids: list[str] = []
    taken: set[str] = set()
    for path in paths:
        plain = unicodedata.normalize("NFKC", stem_of(path)).casefold()
        plain = re.sub(r"[^\w.-]+", "-", plain)[:LONGEST_ID].strip("-._") or "provider"
        choices = itertools.chain([plain], (f"{plain}-{number}" for number in itertools.count(2)))
        ids.append(next(choice for choice in choices if choice not in taken))
        taken.add(ids[-1])
    return ids


def writable(name: str) -> bool:
    """Whether market.toml can hold a name: visible, without spaces around it, not too long."""
    return name == name.strip() and bool(name) and name.isprintable() and len(name) <= LONGEST_NAME
