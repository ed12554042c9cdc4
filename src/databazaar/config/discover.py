"""From a folder of files to what a market.toml must say: whose each table is, what is predicted, and from what."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from databazaar.config.guesses import (
    Ask,
    guess_target,
    guess_task,
    provider_ids,
    stem_of,
    table_suffix,
    unused_columns,
    writable,
)
from databazaar.data.columns import listed, suggestion
from databazaar.data.schema_message import TaskKind
from databazaar.data.tables import read_table
from databazaar.errors import BazaarError

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


@dataclass(frozen=True)
class Wishes:
    """What a user says instead of leaving it to be guessed. `ask` is there where a person can be asked."""

    own: Path | None = None
    target: str | None = None
    task: TaskKind | None = None
    ask: Ask | None = None


def tables_at(places: Iterable[Path]) -> list[Path]:
    """The tables in folders, those that a glob matches, and files that are named; each once, by name."""
    found: dict[Path, Path] = {}
    for place in places:
        if place.is_dir():
            named = [path for path in place.iterdir() if table_suffix(path) and not path.name.startswith(".")]
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
    market = _market(frame, holdout, tables, wishes)
    if not market.providers:
        raise BazaarError(
            f"{folder}: no provider's table is found beside {holdout.name}; "
            + ("; ".join([*unread, *market.notes]) or "there is no other table")
            + ": add one file for each provider, or name the files"
        )
    ids = provider_ids(market.providers)
    return Found(
        folder=folder,
        holdout=_relative(holdout, folder),
        rows=len(frame),
        for_sale=sum(sizes[path] for path in market.providers),
        train=None if train is None else _relative(train, folder),
        target=market.target,
        task=wishes.task or guess_task(frame[market.target]),
        features=market.features,
        providers=tuple((id, _relative(path, folder)) for id, path in zip(ids, market.providers, strict=True)),
        notes=(*notes, *unread, *market.notes),
    )


def is_test(path: Path) -> bool:
    """Whether the name says that a file is for testing.

    >>> [is_test(Path(name)) for name in ("test.csv", "test_2024.csv", "bank_test.csv", "latest.csv", "testament.csv")]
    [True, True, True, False, False]
    """
    return any(re.fullmatch(r"tests?(?:set|ing|data)?", word) for word in _words(path))


def consumer_files(files: Sequence[Path], wishes: Wishes) -> tuple[Path, Path | None]:
    """The consumer's hold-out, and the file to start training from if that is another one."""
    ranked = _ranked(files)
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


class _Market(NamedTuple):
    target: str
    features: tuple[str, ...] | None
    providers: list[Path]
    notes: list[str]


def _market(frame: pd.DataFrame, holdout: Path, tables: dict[Path, list[str]], wishes: Wishes) -> _Market:
    """The target, who has it, and the features that most of them have."""
    names = [str(name) for name in frame.columns]
    if wishes.target is not None and wishes.target not in names:
        raise BazaarError(
            f"{holdout}: the target column {wishes.target!r} is missing; {suggestion(wishes.target, names)}: "
            "correct `--target`"
        )
    target = wishes.target or guess_target(frame, list(tables.values()), holdout.name, wishes.ask)
    if not writable(target):
        raise BazaarError(f"{holdout}: market.toml cannot hold the name of the target column {target!r}: rename it")
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
    features = tuple(shared) if unused else None
    return _Market(target, features, providers, notes)


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


def _ranked(files: Iterable[Path]) -> list[tuple[int, Path]]:
    """The files whose names say that they are the consumer's, with the kind of name; the latest kind first."""
    found = [(_rank(path), path) for path in files]
    return sorted(((rank, path) for rank, path in found if rank >= 0), key=lambda pair: -pair[0])


def _rank(path: Path) -> int:
    words = _words(path)
    told = {*words[:1], *(set(words[1:]) - _FIRST_WORD), *(a + b for a, b in itertools.pairwise(words))}
    return max((rank for rank, known in enumerate(_CONSUMERS) if known & told), default=-1)


def _words(path: Path) -> list[str]:
    return re.findall(r"[^\W\d_]+", stem_of(path).casefold())
