"""The provider's own file, as the examples that a market's schema asks for. It is read once; what was encoded last is
remembered, never more than there is room."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import torch
from torch import Tensor

from databazaar.data.schema_message import SchemaMessage
from databazaar.errors import BazaarError
from databazaar.federation.accepted_schemas import NOBODY, AcceptedSchemas, Asker, fingerprint, meaning
from databazaar.federation.messages import ModelMessage
from databazaar.federation.policy import RefusedError
from databazaar.learning.asked_rows import refuse_small_table
from databazaar.learning.inputs import as_table

if TYPE_CHECKING:
    import pandas as pd

    from databazaar.data.schema import Schema
    from databazaar.data.tables import TableFile

Data = tuple[Tensor, Tensor]
log = logging.getLogger(__name__)

MOST = 32
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """The values that were used last: so many of them and so many bytes, but always the very last.

    >>> kept = Recent[str, int](most=2)
    >>> kept.put("a", 1), kept.put("b", 2), kept.get("a"), kept.put("c", 3)
    (None, None, 1, None)
    >>> kept.get("a"), kept.get("b"), kept.get("c")
    (1, None, 3)
    """

    def __init__(self, most: int = MOST, most_bytes: int = 2**30) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._kept: OrderedDict[Key, tuple[Value, int]] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key][0]

    def put(self, key: Key, value: Value, size: int = 0) -> None:
        """Keeps a value of so many bytes, and lets go of those that were not used for longest."""
        self._kept[key] = value, size
        self._kept.move_to_end(key)
        held = sum(size for _, size in self._kept.values())
        while len(self._kept) > 1 and (len(self._kept) > self._most or held > self._most_bytes):
            held -= self._kept.popitem(last=False)[1][1]


def opened(message: SchemaMessage) -> Schema:
    """The schema that a message stands for, or BazaarError where its parts do not fit together."""
    from databazaar.data.schema import Schema

    return Schema.from_dict(message.model_dump())


@dataclass
class Table:
    """The provider's file, encoded once for each accepted schema; the last encodings stay in memory, up to 1 GB."""

    path: Path
    schemas: AcceptedSchemas = field(default_factory=AcceptedSchemas)
    _encoded: Recent[str, Data] = field(default_factory=Recent, compare=False, repr=False)

    @classmethod
    def read(cls, path: Path, schemas: AcceptedSchemas) -> Table:
        """The table with its file already read, so that a fault in it shows before anybody connects."""
        table = cls(path, schemas)
        refuse_small_table(len(table.frame), str(path))
        return table

    @cached_property
    def file(self) -> TableFile:
        """The rows, and the SHA-256 of the bytes that they were read from."""
        from databazaar.data.tables import read_table

        return read_table(self.path)

    @property
    def frame(self) -> pd.DataFrame:
        return self.file.frame

    def refuse_other(self, schema: SchemaMessage, by: Asker = NOBODY) -> None:
        """Refuses a schema that the provider did not accept, before anything is looked at."""
        if self.schemas.admits(schema) is False:
            if self.schemas.keep_offer(schema, by):
                log.warning(
                    "the market asks with another schema, and is refused: %s; `bazaar provider schema` shows it, and "
                    "accepts it with --accept",
                    meaning(schema),
                )
            raise RefusedError("task-not-allowed")

    def examples(self, schema: SchemaMessage, private: bool = False, by: Asker = NOBODY) -> Data:
        """The rows by this schema, which is accepted where it may be; with `private`, every row. Whether the data fit
        is found out once for a schema, and remembered: it is all that a refusal ever tells."""
        name = fingerprint(schema)
        if (known := self._encoded.get(name)) is not None:
            return known
        if self.schemas.admits(schema) is None:
            first = not self.schemas.accepted()
            self.schemas.accept(schema, "first asked" if first else "same target", by)
            others = "no other is" if self.schemas.most == 1 else f"{self.schemas.most} for its target at the most are"
            log.warning("the market's schema is pinned, and %s answered: %s", others, meaning(schema))
        data = self._rowwise(schema) if private else self._encoded_once(schema)
        self._encoded.put(name, data, sum(part.nbytes for part in data))
        return data

    def encoded(self, schema: SchemaMessage) -> Data:
        """The rows of which the target is known, by this schema."""
        known = opened(schema)
        rows = self.file.labelled(known.target, known.task)
        if rows.unlabelled:
            gone = rows.unlabelled
            log.warning("%d of %d rows have no %r and are left out", gone, len(self.frame), known.target)
        x, y = known.encode(rows.frame, str(self.path))
        return as_table((torch.from_numpy(x), y), str(self.path))

    def _encoded_once(self, schema: SchemaMessage) -> Data:
        if self.schemas.fits(schema, self.file.digest) is False:
            raise BazaarError(
                f"{self.path} did not fit this schema before and is the same: `bazaar provider check` says why; "
                "mend it, and join again"
            )
        try:
            data = self.encoded(schema)
        except BazaarError:
            self.schemas.note_fits(schema, self.file.digest, False)
            raise
        self.schemas.note_fits(schema, self.file.digest, True)
        return data

    def _rowwise(self, schema: SchemaMessage) -> Data:
        from databazaar.data.rowwise import encode_rowwise

        x, y = (torch.from_numpy(part) for part in encode_rowwise(opened(schema), self.frame))
        unknown = int((y.isnan() if y.is_floating_point() else y < 0).sum())
        absent = [name for name in opened(schema).columns if name not in self.frame.columns]
        if unknown or absent:
            log.warning(
                "%d of %d rows have no known %r and count for nothing, and %d columns are missing; the market is not "
                "told", unknown, len(y), schema.target, len(absent),
            )  # fmt: skip
        return x, y


class Examples:
    """A table or examples (x, y); `private` where they are answered from with differential privacy."""

    def __init__(self, source: Table | Data, private: bool) -> None:
        self._source, self._private = source, private
        self._outputs: int | None = None

    def rows(self, model: ModelMessage, loss: str, schema: SchemaMessage | None, by: Asker = NOBODY) -> int:
        """How many rows there are to answer from. Refuses a task of another form, whatever is in the rows."""
        if isinstance(self._source, Table):
            if schema is None:
                raise RefusedError("task-does-not-fit")
            self._source.refuse_other(schema, by)
            known = opened(schema)
            inputs, outputs, classes = known.width, known.outputs, known.task == "classification"
        else:
            x, y = self._source
            inputs, classes = x[0].numel(), not y.is_floating_point()
            outputs = model.outputs if classes else y[0].numel()
        if (inputs, outputs) != (prod(model.inputs), model.outputs) or (loss == "cross-entropy") != classes:
            raise RefusedError("task-does-not-fit")
        return len(self._source.frame) if isinstance(self._source, Table) else len(self._source[0])

    def fitting(self, model: ModelMessage, loss: str, schema: SchemaMessage | None, by: Asker = NOBODY) -> Data:
        """The examples in the shape that the model takes, with targets that its loss takes. With differential privacy
        a label that the model has no output for is unknown. Without, it is refused; as that is an answer about the
        labels, no number of outputs but the first is answered, over all runs and consumers."""
        if isinstance(self._source, Table):
            assert schema is not None
            x, y = self._source.examples(schema, self._private, by)
        else:
            x, y = self._source
            if loss == "cross-entropy" and self._private:
                y = torch.where((y < 0) | (y >= model.outputs), -1, y)
            elif loss == "cross-entropy":
                if self._outputs not in (None, model.outputs):
                    raise RefusedError("task-not-allowed")
                self._outputs = model.outputs
                if int(y.min()) < 0 or int(y.max()) >= model.outputs:
                    raise RefusedError("task-does-not-fit")
        return x.reshape(len(x), *model.inputs), y
