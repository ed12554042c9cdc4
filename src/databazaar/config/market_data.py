"""Every file of a market read, checked and encoded before anything is spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from databazaar.config.chosen_rules import model_of
from databazaar.config.faults import FirstFault
from databazaar.config.market_file import AUDIT, TRAIN, MarketFile, too_much_kept
from databazaar.config.market_tables import AUDIT_ROWS, EncodedTable, Note, Tables, read_tables, uses_in
from databazaar.data.profile_record import MarketProfile
from databazaar.data.schema import Schema
from databazaar.errors import BazaarError
from databazaar.learning.split import split_rows


@dataclass(frozen=True)
class MarketData:
    """A market's tables; `providers` has them by id, in the market's order, without those that are remote.

    The consumer's rows have three purposes: `train` is where the market starts from, `holdout` judges updates, and
    `audit` says in the end what it was worth.
    `digests` maps each file, as market.toml writes it, to the SHA-256 of what was read. `notes` say what was assumed or
    left out. There is a profile where it was asked for.
    """

    schema: Schema
    holdout: EncodedTable
    providers: dict[str, EncodedTable]
    digests: dict[str, str]
    notes: tuple[Note, ...] = ()
    train: EncodedTable | None = None
    audit: EncodedTable | None = None
    profile: MarketProfile | None = None

    @property
    def remarks(self) -> tuple[str, ...]:
        """The notes as sentences, each said once with all the files that it is about."""
        about: dict[str, list[str]] = {}
        for note in self.notes:
            about.setdefault(note.text, []).append(f"{note.file} ({note.rows})" if note.rows else note.file)
        return tuple(f"{', '.join(files)}: {text}" for text, files in about.items())


FEWEST = 20
"""From so many rows on, a hold-out of which nothing is said is divided."""


def load_data(market: MarketFile, folder: Path, profiled: bool = False) -> MarketData:
    """Read what `market` names, relative to `folder`; a provider without a file is remote and left out."""
    return data_of(market, folder, read_tables(market.data, uses_in(market), folder, FirstFault(), profiled))


def data_of(market: MarketFile, folder: Path, tables: Tables) -> MarketData:
    """The tables of a market, of which none is at fault, by what they are for."""
    schema, where = tables.schema, str(folder / market.data.holdout)
    assert schema is not None  # a hold-out without one is at fault
    try:
        model_of(market).shape(schema.width)
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
    own = {"train": parts.get("train"), "audit": parts.get("audit")}
    notes = tuple(tables.notes)
    return MarketData(schema, parts["holdout"], providers, tables.digests, notes, profile=tables.profile, **own)


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
