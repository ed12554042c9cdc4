"""Parquet files as tables. What a file will take in memory is found out before it is read: a few bytes may say that a
value is repeated a billion times."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from databazaar.data.memory_limits import refuse_too_large, table_room

_TEXTS = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")
_NUMBER, _TEXT, _OBJECT = 8, 16, 128
"""The bytes of a number; of a text beside its letters; and of a value that becomes a Python object, such as a date, a
decimal, or a value inside a list."""


def read_parquet(source: Path | pa.BufferReader, room: int | None = None) -> tuple[pd.DataFrame, list[str]]:
    """The table and its columns' names; none of the rows where a name is repeated. An index with a name is a column,
    and so is one of texts or dates; one that only counts is none."""
    room = table_room() if room is None else room
    with pq.ParquetFile(source) as file:
        schema = file.schema_arrow
        names = [str(name) for name in schema.names]
        if len(set(names)) < len(names):
            return pd.DataFrame(), names
        least = needed(file.metadata)
        refuse_too_large(least, room)
        texts = [field.name for field in schema if _is_text(field.type)]
        categories = [field.name for field in schema if _is_category(field.type)]
    table = pq.read_table(source, read_dictionary=texts)
    refuse_too_large(least + _letters(table, texts + categories), room)
    for name in texts:  # each row gets its own; categories are spelled out where they are used
        place, column = table.schema.get_field_index(name), table.column(name)
        table = table.set_column(place, name, column.cast(column.type.value_type))
    frame = table.to_pandas()
    index = frame.index
    counts = index.nlevels == 1 and index.name is None and pd.api.types.is_integer_dtype(index.dtype)
    frame = frame.reset_index(drop=counts)
    return frame, [str(name) for name in frame.columns]


def needed(metadata: pq.FileMetaData) -> int:
    """The bytes that a file's values take in memory at the least, from what it says of itself. A text or category in a
    column of its own counts without its letters, but for those that the file writes down; inside a list each may be as
    long as all of them."""
    fields = [_stored(field.type) for field in metadata.schema.to_arrow_schema()]
    types = [type for type in fields for _ in range(_leaves(type))]
    size = 0
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for place in range(group.num_columns):
            column, form = group.column(place), metadata.schema.column(place)
            type = types[place] if len(types) == group.num_columns else None  # a file may contradict itself
            rows, values = group.num_rows, max(column.num_values, group.num_rows)
            letters = column.total_uncompressed_size if column.physical_type == "BYTE_ARRAY" else max(form.length, 0)
            if type is None or type.num_fields:
                size += (rows + values) * _OBJECT + values * letters
            elif _is_text(type) or _is_category(type):
                size += values * _TEXT + letters
            elif pa.types.is_primitive(type) and not (pa.types.is_date(type) or pa.types.is_time(type)):
                size += values * _NUMBER
            else:
                size += values * (_OBJECT + letters)
    return size


def _leaves(type: pa.DataType) -> int:
    """The columns of the file that make one column of the table."""
    return sum(_leaves(_stored(type.field(place).type)) for place in range(type.num_fields)) or 1


def _stored(type: pa.DataType) -> pa.DataType:
    """What an extension of Arrow's types, such as an interval, is stored as."""
    return type.storage_type if isinstance(type, pa.BaseExtensionType) else type


def _letters(table: pa.Table, names: list[str]) -> int:
    """The letters that these columns have once every row has its own; here they are numbers of words in a list."""
    size = 0
    for name in names:
        for chunk in table.column(name).chunks:
            lengths = pc.take(pc.binary_length(chunk.dictionary), chunk.indices)
            size += int(pc.sum(lengths.cast(pa.int64())).as_py() or 0)
    return size


def _is_text(type: pa.DataType) -> bool:
    return any(getattr(pa.types, f"is_{kind}")(type) for kind in _TEXTS)


def _is_category(type: pa.DataType) -> bool:
    return pa.types.is_dictionary(type) and _is_text(type.value_type)
