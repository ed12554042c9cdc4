"""Every file of a market read, checked and encoded before anything is spent."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from databazaar.config.market_file import AUDIT, TRAIN, MarketFile, too_much_kept
from databazaar.config.sections import CNNSettings
from databazaar.data.tables import Array, Schema, labelled, notes_of, read_table
from databazaar.errors import BazaarError
from databazaar.learning.split import split_rows


class EncodedTable(NamedTuple):
    """x float32 [rows, width]; y int64 class places or float32 standardised targets."""

    x: npt.NDArray[np.float32]
    y: Array


class Note(NamedTuple):
    """What was assumed of a file, or left out of it; `rows` says of how many rows, where that is known."""

    file: str
    text: str
    rows: str = ""


@dataclass(frozen=True)
class MarketData:
    """A market's tables; `providers` has them by id, in the market's order, without those that are remote.

    The consumer's rows have three purposes: `train` is where the market starts from, `holdout` judges updates, and
    `audit` says in the end what it was worth.
    `digests` maps each file, as market.toml writes it, to its SHA-256. `notes` say what was assumed or left out.
    """

    schema: Schema
    holdout: EncodedTable
    providers: dict[str, EncodedTable]
    digests: dict[str, str]
    notes: tuple[Note, ...] = ()
    train: EncodedTable | None = None
    audit: EncodedTable | None = None

    @property
    def remarks(self) -> tuple[str, ...]:
        """The notes as sentences, each said once with all the files that it is about."""
        about: dict[str, list[str]] = {}
        for note in self.notes:
            about.setdefault(note.text, []).append(f"{note.file} ({note.rows})" if note.rows else note.file)
        return tuple(f"{', '.join(files)}: {text}" for text, files in about.items())


FEWEST = 20
"""From so many rows on, a hold-out of which nothing is said is divided."""


def load_data(market: MarketFile, folder: Path) -> MarketData:
    """Read what `market` names, relative to `folder`; a provider without a file is remote and left out."""
    holdout_path = folder / market.data.holdout
    frame, notes = labelled_table(market, folder, market.data.holdout)
    schema = fit_schema(market, frame, str(holdout_path))
    if isinstance(market.model, CNNSettings):
        try:
            market.model.image_shape(schema.width)
        except BazaarError as error:
            raise BazaarError(f"{holdout_path}: {error}") from None
    holdout = EncodedTable(*schema.encode(frame, str(holdout_path)))
    parts = divided(market, holdout, str(holdout_path))
    digests = {market.data.holdout.as_posix(): _digest(holdout_path)}
    providers = {}
    for provider in market.providers:
        if provider.file is None or market.engine.kind == "federated":
            continue
        path = folder / provider.file
        try:
            table, more = labelled_table(market, folder, provider.file)
            providers[provider.id] = EncodedTable(*schema.encode(table, str(path)))
        except BazaarError as error:
            raise BazaarError(f"provider {provider.id!r}: {error}") from None
        notes += more
        digests[provider.file.as_posix()] = _digest(path)
    for role, file in (("train", market.consumer.train), ("audit", market.data.audit)):
        if isinstance(file, Path):
            table, more = labelled_table(market, folder, file)
            try:
                parts[role] = EncodedTable(*schema.encode(table, str(folder / file)))
            except BazaarError as error:
                raise BazaarError(f"{'consumer.train' if role == 'train' else 'data.audit'}: {error}") from None
            notes += more
            digest = _digest(folder / file)
            _refuse_the_same(role, file, digest, market, digests)
            digests[file.as_posix()] = digest
    return MarketData(schema, parts["holdout"], providers, digests, notes, parts.get("train"), parts.get("audit"))


def divided(market: MarketFile, holdout: EncodedTable, where: str) -> dict[str, EncodedTable]:
    """The hold-out by purposes, where shares of it are kept for others than to judge by."""
    shares = {
        role: TRAIN if given is None and role == "train" else AUDIT if given is None else given
        for role, given in (("train", market.consumer.train), ("audit", market.data.audit))
        if not isinstance(given, Path) and (given is not None or len(holdout.y) >= FEWEST)
    }
    kept = {role: share for role, share in shares.items() if isinstance(share, float) and share > 0}
    if not kept:
        return {"holdout": holdout}
    fault = too_much_kept(*kept.values())
    if fault:
        raise BazaarError(f"{where}: {fault}")
    parts = split_rows(holdout.y, (*kept.values(), 1 - sum(kept.values())), where)
    tables = [EncodedTable(holdout.x[part], holdout.y[part]) for part in parts]
    return dict(zip((*kept, "holdout"), tables, strict=True))


def _refuse_the_same(role: str, file: Path, digest: str, market: MarketFile, digests: dict[str, str]) -> None:
    """Rows that are learned from cannot judge: an audit file is nobody else's, and a train file not the hold-out."""
    others = digests if role == "audit" else {name: digests[name] for name in [market.data.holdout.as_posix()]}
    same = next((name for name, known in others.items() if known == digest), None)
    if same is None:
        return
    raise BazaarError(
        f"{'consumer.train' if role == 'train' else 'data.audit'} = {file.as_posix()!r} is the same file as {same!r}, "
        "and rows that are learned from cannot judge too: name another file, or a share of the hold-out such as 0.2"
    )


def labelled_table(market: MarketFile, folder: Path, file: Path) -> tuple[pd.DataFrame, tuple[Note, ...]]:
    """The rows of a file whose target is known, and what there is to say of the file."""
    path, name = folder / file, file.as_posix()
    frame = read_table(path, market.data.format)
    known = labelled(frame, market.data.target, market.data.task, str(path))
    notes = tuple(Note(name, note) for note in notes_of(frame))
    if len(known) < len(frame):
        left = f"{len(frame) - len(known):,} of {len(frame):,} rows"
        notes += (Note(name, f"rows without {market.data.target!r} are left out", left),)
    return known, notes


def fit_schema(market: MarketFile, frame: pd.DataFrame, where: str) -> Schema:
    """The encoding that the hold-out gives by the market's settings."""
    return Schema.fit(
        frame,
        target=market.data.target,
        task=market.data.task,
        features=market.data.features,
        categorical=market.data.categorical,
        day_first=None if market.data.dates is None else market.data.dates == "day-first",
        where=where,
    )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
