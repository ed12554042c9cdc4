"""Rows encoded by themselves: nothing is refused, and no row decides what becomes of another."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from databazaar.data.rowwise import encode_rowwise
from databazaar.data.tables import Schema, TableFormat, read_table

HOLDOUT = pd.DataFrame(
    {
        "amount": [1.0, 2.5, 4.0, np.nan],
        "grade": ["1", "2", "2", "x"],
        "shop": ["a", "b", "c", "a"],
        "open": ["2024-01-31", "2024-02-01", "2024-03-01", "2024-12-13"],
        "fraud": ["no", "yes", "no", "yes"],
    }
)
SCHEMA = Schema.fit(HOLDOUT, target="fraud", task="classification", categorical=["grade"])
ODD = ["", "NA", "1", "1.0", "+2", "002", "True", "no", "YES", "perhaps", "1,234", "12,5", "1e400", "inf", "-", "x"]
ODD += ["a", "ü", "03/04/2024", "13/04/2024", "04/13/2024", "2024-02-30", "2024-03-01 12:00", "1_000", "0x10"]
ODD += ["12345678901234567890", " 3 ", "$5", "7%"]
cells = st.tuples(*[st.sampled_from(ODD)] * len(HOLDOUT.columns))


def encoded(folder: Path, rows: list[tuple[str, ...]]) -> tuple[np.ndarray, np.ndarray]:
    path = folder / "bank.csv"
    lines = [",".join(f'"{cell}"' for cell in row) for row in [tuple(HOLDOUT.columns), *rows]]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return encode_rowwise(SCHEMA, read_table(path, TableFormat(",", ".", "utf-8")).frame)


@settings(max_examples=60)
@given(st.lists(cells, min_size=2, max_size=6), cells, st.data())
def test_another_row_changes_nothing_but_itself(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, ...]], other: tuple[str, ...], data: st.DataObject
) -> None:
    """Also where it makes texts of a column of numbers, or shows which of two numbers is the day."""
    place = data.draw(st.integers(0, len(rows) - 1))
    folder = tmp_path_factory.mktemp("banks")
    one, two = encoded(folder, rows), encoded(folder, [*rows[:place], other, *rows[place + 1 :]])
    kept = [row for row in range(len(rows)) if row != place]
    assert np.isfinite(one[0]).all() and np.isfinite(two[0]).all()
    np.testing.assert_array_equal(one[0][kept], two[0][kept])
    np.testing.assert_array_equal(one[1][kept], two[1][kept])


def test_a_table_that_fits_is_encoded_as_ever() -> None:
    for got, expected in zip(encode_rowwise(SCHEMA, HOLDOUT), SCHEMA.encode(HOLDOUT, "holdout"), strict=True):
        np.testing.assert_array_equal(got, expected)
        assert got.dtype == expected.dtype


def test_a_table_that_does_not_fit_at_all_is_encoded_too() -> None:
    x, y = encode_rowwise(SCHEMA, pd.DataFrame({"other": [1, 2, 3]}))
    assert x.shape == (3, SCHEMA.width) and y.tolist() == [-1, -1, -1]


def test_types_of_a_parquet_file() -> None:
    frame = pd.DataFrame(
        {
            "amount": pd.Series([Decimal("2.5"), dt.date(2024, 1, 1), [1, 2], 1j, 10**400], dtype=object),
            "grade": pd.Series([2, 1, 1, 2, 9], dtype="int8"),
            "shop": pd.Series(["a", "b", "z", None, " c "], dtype="category"),
            "open": pd.to_datetime(["2024-01-31", "", "2024-02-01", "2024-03-01", "2024-12-13"]),
            "fraud": pd.array([True, False, None, True, False], dtype="boolean"),
        }
    )
    x, y = encode_rowwise(SCHEMA, frame)
    names = SCHEMA.feature_names
    assert x[:, names.index("amount (missing)")].tolist() == [0, 1, 1, 1, 1]
    assert x[:, names.index("shop=c")].tolist() == [0, 0, 0, 0, 1]
    assert x[:, names.index("grade=2")].tolist() == [1, 0, 0, 1, 0]
    assert y.tolist() == [1, 0, -1, 1, 0]
    days: list[Any] = [dt.date(2024, 1, 31), dt.datetime(2024, 2, 1), "31.01.2024", 5, None]
    again = encode_rowwise(SCHEMA, frame.assign(open=pd.Series(days, dtype=object)))[0]
    place = names.index("open (days)")
    assert again[0, place] == again[2, place] == x[0, place] and again[1, place] == x[2, place]


def test_a_regression_and_hashed_columns() -> None:
    many = pd.DataFrame({"code": [f"n{i}" for i in range(300)] * 2, "y": np.arange(600) / 7})
    schema = Schema.fit(many, target="y", task="regression")
    assert schema.hashed
    np.testing.assert_array_equal(encode_rowwise(schema, many)[0], schema.encode(many, "holdout")[0])
    spent = pd.DataFrame({"code": ["n1", None, "other"], "y": [pd.Timedelta(days=2), pd.Timedelta(days=9), None]})
    x, y = encode_rowwise(schema, spent)
    assert np.isnan(y).tolist() == [False, False, True] and x.sum(1).tolist() == [1, 0, 1]
    assert float(y[0]) == pytest.approx((2 - schema.target_mean) / schema.target_scale)
