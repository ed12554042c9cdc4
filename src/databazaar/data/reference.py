"""A provider's table by reference: where it lies, what was read there, and how it is encoded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from databazaar.data.formats import TableFormat
from databazaar.data.tables import Array, Schema, read_table
from databazaar.errors import BazaarError


@dataclass(frozen=True)
class TableReference:
    """Reads and encodes a table wherever it is called: a worker on another machine reads its rows from a shared folder.
    A row has this `shape`; the bytes of the file must have this `digest`."""

    path: Path
    digest: str
    format: TableFormat
    schema: Schema
    shape: tuple[int, ...]

    def __call__(self) -> tuple[npt.NDArray[np.float32], Array]:
        if not self.path.is_file():
            raise BazaarError(f"{self.path} is not on a worker's machine: share its folder with every machine")
        table = read_table(self.path, self.format).labelled(self.schema.target, self.schema.task)
        if table.digest != self.digest:
            raise BazaarError(f"{self.path} has changed since the run began: put the old file back, or run anew")
        x, y = self.schema.encode(table.frame, str(self.path))
        return x.reshape(len(x), *self.shape), y
