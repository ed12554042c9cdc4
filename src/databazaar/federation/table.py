"""The provider's own file, as the examples that a market's schema asks for."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from databazaar.data.schema_message import SchemaMessage
from databazaar.federation.policy import RefusedError
from databazaar.files import write_whole
from databazaar.learning.inputs import as_table

Data = tuple[Tensor, Tensor]
log = logging.getLogger(__name__)


@dataclass
class Table:
    """The provider's file. It is encoded as the market's schema says, once for every schema.

    The last schema is written to `kept`, so that `bazaar provider check` can read a file as an answer would.
    """

    path: Path
    kept: Path | None = None
    _schema: SchemaMessage | None = None
    _data: Data | None = None

    def examples(self, schema: SchemaMessage | None) -> Data:
        if schema is None:
            raise RefusedError("task does not fit the data")
        if self._data is None or schema != self._schema:
            if self.kept is not None:
                write_whole(self.kept, schema.model_dump_json().encode())
            self._data, self._schema = self.encoded(schema), schema
        return self._data

    def encoded(self, schema: SchemaMessage) -> Data:
        """The rows of which the target is known, by this schema."""
        from databazaar.data.tables import Schema, labelled, read_table

        known, frame = Schema.from_dict(schema.model_dump()), read_table(self.path)
        rows = labelled(frame, known.target, known.task, str(self.path))
        if len(rows) < len(frame):
            gone = len(frame) - len(rows)
            log.warning("%d of %d rows have no %r and are left out", gone, len(frame), known.target)
        return as_table(known.encode(rows, str(self.path)), str(self.path))
