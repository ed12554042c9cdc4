"""What a provider with data answers from: its rows, as a task takes them; and what it refuses because of them."""

from __future__ import annotations

from math import prod

import torch

from databazaar.data.schema_message import SchemaMessage
from databazaar.federation.messages import ModelMessage
from databazaar.federation.policy import RefusedError
from databazaar.federation.schema_offers import Asker
from databazaar.federation.table import Data, Table


class Examples:
    """A table or examples (x, y); `private` where they are answered from with differential privacy."""

    def __init__(self, source: Table | Data, private: bool) -> None:
        self._source, self._private = source, private
        self._outputs: int | None = None

    def rows(self, model: ModelMessage, loss: str, schema: SchemaMessage | None, by: Asker | None = None) -> int:
        """How many rows there are to answer from. Refuses a task of another form, whatever is in the rows."""
        if isinstance(self._source, Table):
            if schema is None:
                raise RefusedError("task-does-not-fit")
            self._source.refuse_other(schema, by)
            known = self._source.opened(schema)
            inputs, outputs, classes = known.width, known.outputs, known.task == "classification"
        else:
            x, y = self._source
            inputs, classes = x[0].numel(), not y.is_floating_point()
            outputs = model.outputs if classes else y[0].numel()
        if (inputs, outputs) != (prod(model.inputs), model.outputs) or (loss == "cross-entropy") != classes:
            raise RefusedError("task-does-not-fit")
        return len(self._source.frame) if isinstance(self._source, Table) else len(self._source[0])

    def fitting(self, model: ModelMessage, loss: str, schema: SchemaMessage | None, by: Asker | None = None) -> Data:
        """The examples in the shape that the model takes, with targets that its loss takes.

        With differential privacy a label that the model has no output for is unknown. Without, it is refused; and as
        that is an answer about the labels, no number of outputs but the first is answered: over all runs and consumers,
        because whoever asks can make up new ones.
        """
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
