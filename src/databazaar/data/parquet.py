"""Parquet files as tables. What a file will take in memory is found out before it is read: a few bytes may say that a
value is repeated a billion times."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from databazaar.data.room import refuse_too_large, table_room

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}
_TEXT = 16
"""The bytes of a text beside its letters."""
_INNER = 64
"""The bytes of a value inside a list, which becomes an object of its own."""


def read_parquet(source: Path | pa.BufferReader, room: int | None = None) -> tuple[pd.DataFrame, list[str]]:
    """The table and its columns' names; none of the rows where a name is repeated.

    An index with a name is a column, and so is one of texts or dates; one that only counts is none.
    """
    room = table_room() if room is None else room
    with pq.ParquetFile(source) as file:
        schema = file.schema_arrow
        names = [str(name) for name in schema.names]
        if len(set(names)) < len(names):
            return pd.DataFrame(), names
        refuse_too_large(needed(file.metadata), room)
        texts = [field.name for field in schema if _is_text(field.type)]
    frame = _spelled_out(pq.read_table(source, read_dictionary=texts), texts, room).to_pandas()
    index = frame.index
    counts = index.nlevels == 1 and index.name is None and pd.api.types.is_integer_dtype(index.dtype)
    frame = frame.reset_index(drop=counts)
    return frame, [str(name) for name in frame.columns]


def needed(metadata: pq.FileMetaData) -> int:
    """The bytes that a file's values take in memory at the least, from what it says of itself. Texts count without
    their letters where they are in columns of their own; inside lists, where each may be as long as all of them."""
    size = 0
    for group in range(metadata.num_row_groups):
        for place in range(metadata.row_group(group).num_columns):
            column, form = metadata.row_group(group).column(place), metadata.schema.column(place)
            values = max(column.num_values, metadata.row_group(group).num_rows)
            if form.max_repetition_level:
                letters = column.total_uncompressed_size if column.physical_type == "BYTE_ARRAY" else 0
                size += values * (_INNER + letters)
            elif column.physical_type == "FIXED_LEN_BYTE_ARRAY":
                size += values * (_TEXT + max(form.length, 0))
            else:
                size += values * _WIDTHS.get(column.physical_type, _TEXT)
    return size


def _spelled_out(table: pa.Table, texts: list[str], room: int) -> pa.Table:
    """Texts were read as numbers of words in a list; here each row gets its own, if there is room for all."""
    size = 0
    for name in texts:
        for chunk in table.column(name).chunks:
            lengths = pc.take(pc.binary_length(chunk.dictionary), chunk.indices)
            size += int(pc.sum(lengths.cast(pa.int64())).as_py() or 0)
    refuse_too_large(size, room)
    for name in texts:
        place, column = table.schema.get_field_index(name), table.column(name)
        table = table.set_column(place, name, column.cast(column.type.value_type))
    return table


def _is_text(type: pa.DataType) -> bool:
    return any(check(type) for check in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary))
