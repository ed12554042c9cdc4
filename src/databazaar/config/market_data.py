"""The tables of a market: each file is opened once, and its one read is encoded, attested by its digest, and profiled.

The same code reads them for a run, which ends at the first fault, and for a check, which collects all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from databazaar.config.market_file import MarketFile, too_much_kept
from databazaar.config.sections import AUDIT, TRAIN, DataSettings, ProviderSettings
from databazaar.data.images import Size
from databazaar.data.profile_record import MarketProfile, TableProfile
from databazaar.data.profiler import Profiler, column_uses
from databazaar.data.schema import FirstFault, TableFaults
from databazaar.data.tables import Array, Schema, TableFile, read_table
from databazaar.data.tree_features import Encoding, encoding_of
from databazaar.errors import BazaarError
from databazaar.learning.split import split_rows

FEWEST = 20
"""From so many rows on, a hold-out of which nothing is said is divided."""


class EncodedTable(NamedTuple):
    """x float32 [rows, width]; y int64 class places or float32 standardised targets."""

    x: npt.NDArray[np.float32]
    y: Array


class Note(NamedTuple):
    """What was assumed of a file, or left out of it; `rows` says of how many rows, where that is known."""

    file: str
    text: str
    rows: str = ""


class Use(NamedTuple):
    """What a table is used as: its name in the profile, and how sentences about its faults begin."""

    id: str
    who: str = ""
    provider: bool = False


HOLDOUT, AUDIT_ROWS = Use("hold-out"), Use("audit rows", "data.audit: ")


def uses_of(
    data: DataSettings, train: object, engine: str, providers: Iterable[ProviderSettings]
) -> list[tuple[Use, Path]]:
    """All that tables are used as, the hold-out first. In a federation the providers' stay with their owners."""
    own = ((HOLDOUT, data.holdout), (Use("training rows", "consumer.train: "), train), (AUDIT_ROWS, data.audit))
    theirs = ((Use(p.id, f"provider {p.id!r}: ", provider=True), p.file) for p in providers if engine != "federated")
    return [(use, file) for use, file in (*own, *theirs) if isinstance(file, Path)]


def uses_in(market: MarketFile) -> list[tuple[Use, Path]]:
    return uses_of(market.data, market.consumer.train, market.engine.kind, market.providers)


def read_labelled(data: DataSettings, path: Path) -> TableFile:
    """The rows of a file whose target is known."""
    return read_table(path, data.format).labelled(data.target, data.task)


def fit_schema(
    data: DataSettings, holdout: TableFile, faults: TableFaults | None = None, image: Size | None = None
) -> Schema:
    """The encoding that the hold-out gives by the settings of [data], with images of a size."""
    return Schema.fit(
        holdout.frame,
        target=data.target,
        task=data.task,
        features=data.features,
        categorical=data.categorical,
        text=data.text,
        day_first=None if data.dates is None else data.dates == "day-first",
        image=image,
        where=str(holdout.path),
        faults=faults,
    )


class Tables:
    """What was read of a market's tables, by the file as market.toml names it, relative to `folder`. They are read one
    after the other; only the hold-out's frame is kept to the end. They are encoded for a kind of `model`, images in the
    size `image`. Where the hold-out is at fault there is no `schema`, and the tables are encoded by its columns that
    are not."""

    def __init__(
        self,
        data: DataSettings,
        uses: Sequence[tuple[Use, Path]],
        folder: Path,
        faults: TableFaults,
        profiled: bool,
        model: str,
        image: Size | None = None,
    ) -> None:
        self.schema: Schema | None = None
        self.encoded: dict[Path, EncodedTable] = {}
        self.digests: dict[str, str] = {}
        self.notes: list[Note] = []
        self.profile: MarketProfile | None = None
        self._data, self._faults, self._model, self._image = data, faults, model, image
        self._encoding: Encoding | None = None
        self._profiles: dict[tuple[Use, Path], TableProfile] = {}
        holdout = faults.caught(lambda: read_labelled(data, folder / data.holdout))
        self._profiler = None if holdout is None else self._learned(holdout, profiled)
        by_file: dict[Path, list[Use]] = {}
        for use, file in uses:
            by_file.setdefault(file, []).append(use)
        for file, purposes in by_file.items():
            table = holdout
            if file != data.holdout:
                who = [use.who for use in purposes]
                table = faults.caught(partial(read_labelled, data, folder / file), who)
            if table is not None:
                self._take(file, table, purposes)
        if self._profiler is not None:
            profiles = [(use, self._profiles[use, file]) for use, file in uses if (use, file) in self._profiles]
            own, theirs = (tuple(one for use, one in profiles if use.provider == whose) for whose in (False, True))
            columns = self._profiler.columns
            self.profile = MarketProfile(target=data.target, task=data.task, columns=columns, own=own, providers=theirs)

    def _learned(self, holdout: TableFile, profiled: bool) -> Profiler | None:
        """Learns the encoding; gives what compares tables with the hold-out, where they are `profiled`."""
        data, before = self._data, self._faults.found
        schema = self._faults.caught(lambda: fit_schema(data, holdout, self._faults, self._image))
        self._encoding = None if schema is None else encoding_of(schema, self._model)
        self.schema = schema if self._faults.found == before else None
        if not profiled or schema is None or not schema.columns:
            return None  # there is nothing to compare others with
        return Profiler(holdout.frame, data.target, data.task, column_uses(schema, holdout.frame, data.features))

    def _take(self, file: Path, table: TableFile, uses: list[Use]) -> None:
        name, notes = file.as_posix(), table.notes
        self.digests[name] = table.digest
        self.notes += [Note(name, note) for note in notes]
        if left := table.unlabelled:
            rows = f"{left:,} of {left + len(table.frame):,} rows"
            self.notes.append(Note(name, f"rows without {self._data.target!r} are left out", rows))
            notes += (f"{left:,} of its rows have no {self._data.target!r} and are left out: fill it in",)
        if self._encoding is not None:
            faults = TableFaults()
            encoded = self._encoding.encode(table.frame, str(table.path), faults)
            self._faults.add(f"{use.who}{fault}" for fault in faults.found for use in uses)
            if self.schema is not None and not faults.found:
                self.encoded[file] = EncodedTable(*encoded)
        if self._profiler is not None:
            measured = None
            for use in uses:
                if use is HOLDOUT:
                    profile = self._profiler.holdout
                else:
                    profile = measured = measured or self._profiler.table(table.frame)
                about = {"id": use.id, "file": name, "warnings": (*notes, *profile.warnings)}
                self._profiles[use, file] = profile.model_copy(update=about)


@dataclass(frozen=True)
class MarketData:
    """A market's tables; `providers` has them by id, in the market's order, without those that are remote. The market
    starts from the rows of `train`, `holdout` scores updates, and `audit` evaluates the purchase. `digests` maps each
    file, as market.toml writes it, to the SHA-256 of what was read."""

    schema: Schema
    providers: dict[str, EncodedTable]
    digests: dict[str, str]
    notes: tuple[Note, ...]
    profile: MarketProfile | None
    holdout: EncodedTable
    train: EncodedTable | None = None
    audit: EncodedTable | None = None

    @property
    def remarks(self) -> tuple[str, ...]:
        """The notes as sentences, each said once with all the files that it is about."""
        about: dict[str, list[str]] = {}
        for note in self.notes:
            about.setdefault(note.text, []).append(f"{note.file} ({note.rows})" if note.rows else note.file)
        return tuple(f"{', '.join(files)}: {text}" for text, files in about.items())


def load_data(market: MarketFile, folder: Path, profiled: bool = False) -> MarketData:
    """Read what `market` names, relative to `folder`; a provider without a file is remote and left out."""
    tables = Tables(market.data, uses_in(market), folder, FirstFault(), profiled, market.model.kind, image_of(market))
    return data_of(market, folder, tables)


def image_of(market: MarketFile) -> Size | None:
    """The size that images become, where the model says one."""
    return getattr(market.built("model"), "image", None)


def data_of(market: MarketFile, folder: Path, tables: Tables) -> MarketData:
    """The tables of a market, of which none is at fault, by what they are for."""
    schema, where = tables.schema, str(folder / market.data.holdout)
    assert schema is not None  # a hold-out without one is at fault
    try:
        market.built("model").shape(encoding_of(schema, market.model.kind).width)
    except BazaarError as error:
        raise BazaarError(f"{where}: {error}") from None
    parts = divided(market, tables.encoded[market.data.holdout], where)
    for role, file in (("train", market.consumer.train), ("audit", market.data.audit)):
        if isinstance(file, Path):
            _refuse_the_same(role, file, market, tables.digests)
            parts[role] = tables.encoded[file]
    providers = {
        provider.id: tables.encoded[provider.file]
        for provider in market.providers
        if provider.file is not None and market.engine.kind != "federated"
    }
    return MarketData(schema, providers, tables.digests, tuple(tables.notes), tables.profile, **parts)


def divided(market: MarketFile, holdout: EncodedTable, where: str) -> dict[str, EncodedTable]:
    """The hold-out by purposes, where shares of it are kept for others than to judge by."""
    usual = (TRAIN, AUDIT) if len(holdout.y) >= FEWEST else (None, None)
    said = (("train", market.consumer.train, usual[0]), ("audit", market.data.audit, usual[1]))
    shares = {role: default if given is None else given for role, given, default in said}
    kept = {role: share for role, share in shares.items() if isinstance(share, float) and share > 0}
    if not kept:
        return {"holdout": holdout}
    fault = too_much_kept(*kept.values())
    if fault:
        raise BazaarError(f"{where}: {fault}")
    parts = split_rows(holdout.y, (*kept.values(), 1 - sum(kept.values())), where)
    tables = [EncodedTable(holdout.x[part], holdout.y[part]) for part in parts]
    return dict(zip((*kept, "holdout"), tables, strict=True))


def _refuse_the_same(role: str, file: Path, market: MarketFile, digests: Mapping[str, str]) -> None:
    """Rows that are learned from cannot judge: an audit file is nobody else's, and a train file not the hold-out."""
    setting = "consumer.train" if role == "train" else "data.audit"
    others = [file for use, file in uses_in(market) if use is not AUDIT_ROWS]
    others = others if role == "audit" else [market.data.holdout]
    same = next((other for other in others if digests[other.as_posix()] == digests[file.as_posix()]), None)
    if same is not None:
        raise BazaarError(
            f"{setting} = {file.as_posix()!r} is the same file as {same.as_posix()!r}, and rows that are learned from "
            "cannot judge too: name another file, or a share of the hold-out such as 0.2"
        )
