"""Schemas that a provider was asked by and has refused, kept so that it can look at them: of each consumer the latest.

They come from the market, so only so many are kept, and each is read as what a stranger wrote.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from databazaar.data.schema_message import SchemaMessage
from databazaar.errors import BazaarError
from databazaar.federation.private_files import PRIVATE, make_folder
from databazaar.files import write_whole

OFFERS = "schema-offers"
MOST_OFFERS = 16
LARGEST_SCHEMA = 2**20


class Asker(NamedTuple):
    """Who asks by a schema, by the market's word."""

    consumer: str = ""
    contract: str = ""


class Refused(BaseModel):
    """A schema that was refused, and who asked by it."""

    model_config = ConfigDict(frozen=True)

    consumer: str
    contract: str
    schema_: SchemaMessage


@dataclass(frozen=True)
class SchemaOffers:
    """In a folder of the kit, a file for each consumer; where there are too many, the oldest makes room."""

    folder: Path

    def keep(self, schema: SchemaMessage, by: Asker) -> None:
        refused = Refused(consumer=by.consumer, contract=by.contract, schema_=schema).model_dump_json().encode()
        if len(refused) > LARGEST_SCHEMA:
            return
        make_folder(self.folder)
        name = hashlib.sha256(by.consumer.encode()).hexdigest()[:16]
        write_whole(self.folder / f"{name}.json", refused, PRIVATE)
        for path in self._paths()[:-MOST_OFFERS]:
            path.unlink(missing_ok=True)

    def all(self) -> list[Refused]:
        """The latest comes last."""
        return [self._read(path) for path in self._paths()]

    def forget(self, schema: SchemaMessage) -> None:
        """One that is accepted now."""
        for path in self._paths():
            if self._read(path).schema_ == schema:
                path.unlink(missing_ok=True)

    def _paths(self) -> list[Path]:
        return sorted(self.folder.glob("*.json"), key=lambda path: (path.stat().st_mtime_ns, path.name))

    def _read(self, path: Path) -> Refused:
        try:
            if path.stat().st_size > LARGEST_SCHEMA:
                raise ValueError
            return Refused.model_validate_json(path.read_bytes())
        except (OSError, ValueError):
            raise BazaarError(f"{path} cannot be read: remove it, and let the market ask again") from None
