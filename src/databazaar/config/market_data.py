"""Every file of a market read, checked and encoded before anything is spent."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from databazaar.config.market_file import MarketFile
from databazaar.config.sections import CNNSettings
from databazaar.data.tables import Array, Schema, read_table
from databazaar.errors import BazaarError


class EncodedTable(NamedTuple):
    """x float32 [rows, width]; y int64 class places or float32 standardised targets."""

    x: npt.NDArray[np.float32]
    y: Array


@dataclass(frozen=True)
class MarketData:
    """A market's tables; `providers` has them by id, in the market's order, without those that are remote.

    `digests` maps each file, as market.toml writes it, to its SHA-256.
    """

    schema: Schema
    holdout: EncodedTable
    providers: dict[str, EncodedTable]
    digests: dict[str, str]


def load_data(market: MarketFile, folder: Path) -> MarketData:
    """Read what `market` names, relative to `folder`; a provider without a file is remote and left out."""
    holdout_path = folder / market.data.holdout
    frame = read_table(holdout_path)
    schema = Schema.fit(
        frame,
        target=market.data.target,
        task=market.data.task,
        features=market.data.features,
        categorical=market.data.categorical,
        where=str(holdout_path),
    )
    if isinstance(market.model, CNNSettings):
        try:
            market.model.image_shape(schema.width)
        except BazaarError as error:
            raise BazaarError(f"{holdout_path}: {error}") from None
    holdout = EncodedTable(*schema.encode(frame, str(holdout_path)))
    digests = {market.data.holdout.as_posix(): _digest(holdout_path)}
    providers = {}
    for provider in market.providers:
        if provider.file is None or market.engine.kind == "federated":
            continue
        path = folder / provider.file
        try:
            providers[provider.id] = EncodedTable(*schema.encode(read_table(path), str(path)))
        except BazaarError as error:
            raise BazaarError(f"provider {provider.id!r}: {error}") from None
        digests[provider.file.as_posix()] = _digest(path)
    return MarketData(schema, holdout, providers, digests)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
