"""Text files as other programs write them: separators, decimal signs, encodings, quotes, codes and indexes."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from databazaar.data.formats import SAMPLE
from databazaar.data.tables import TableFormat, read_table
from databazaar.errors import BazaarError

SEPARATORS = [",", ";", "\t", "|"]


def written(folder: Path, content: str | bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def sales() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "city": ["Zürich, Kreis 4", "Bern", 'the "Old" Town', "Genève; Ouest"],
            "price": [1.5, 0.25, np.nan, -12.125],
            "rooms": [3, 1, 2, 4],
            "sold": ["2024-01-31", "2024-02-01", "2024-03-05", "2024-12-24"],
        }
    )


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize("separator", SEPARATORS)
def test_one_table_however_it_is_written(tmp_path: Path, separator: str, decimal: str, encoding: str) -> None:
    path = tmp_path / "t.csv"
    sales().to_csv(path, index=False, sep=separator, decimal=decimal, encoding=encoding)
    table = read_table(path)
    pd.testing.assert_frame_equal(table.frame, sales())
    assert ("Windows-1252" in "".join(table.notes)) == (encoding == "cp1252")
    assert table.digest == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", ["t.txt", "t.tsv", "t.tsv.gz", "t.csv.gz", "t.txt.gz", "T.CSV.GZ"])
@pytest.mark.parametrize("separator", SEPARATORS)
def test_the_ending_of_the_name_does_not_decide(tmp_path: Path, separator: str, name: str) -> None:
    text = sales().to_csv(index=False, sep=separator).encode()
    path = written(tmp_path, gzip.compress(text) if name.lower().endswith("gz") else text, name)
    table = read_table(path)
    pd.testing.assert_frame_equal(table.frame, sales())
    assert table.digest == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        ("amount\n1\n2\n", {"amount": [1, 2]}),
        ('note\n"a, b"\n"c; d; e"\n', {"note": ["a, b", "c; d; e"]}),
        ("price, EUR;size\n1,5;2\n2,5;3\n", {"price, EUR": [1.5, 2.5], "size": [2, 3]}),
        ('name,note\na,"x; y; z"\nb,"x; y"\n', {"name": ["a", "b"], "note": ["x; y; z", "x; y"]}),
        ("a;b\n1.234,50;1.234\n12,00;99.000.000\n", {"a": [1234.5, 12.0], "b": [1234, 99_000_000]}),
        ("a;b\n1,234;x\n2,345;y\n", {"a": [1.234, 2.345], "b": ["x", "y"]}),
        ('a,b\n"1,234",x\n"2,345",y\n', {"a": ["1,234", "2,345"], "b": ["x", "y"]}),
        ('a,b\n"1,5",x\n"22,75",y\n', {"a": [1.5, 22.75], "b": ["x", "y"]}),
        ("a;b\n1,5;0.5\n2,5;1.5\n", {"a": ["1,5", "2,5"], "b": [0.5, 1.5]}),
        ("sep=;\r\na;b\r\n1;2\r\n", {"a": [1], "b": [2]}),
        ("'a,x','b'\n'1','it, too'\n", {"a,x": [1], "b": ["it, too"]}),
        ("a, b ,c\n1, 2 , x\n", {"a": [1], "b": [2], "c": ["x"]}),
        ('a,b\n1,"two\nlines"\n2,"one"\n', {"a": [1, 2], "b": ["two\nlines", "one"]}),
        ("a,b,,\n1,2,,\n3,4,,\n", {"a": [1, 3], "b": [2, 4]}),
        ("a|b\n1|2\n", {"a": [1], "b": [2]}),
        ("day;a\n31.12.2024;1,5\n01.02.2024;2,0\n", {"day": ["31.12.2024", "01.02.2024"], "a": [1.5, 2.0]}),
    ],
)
def test_what_is_in_a_field_is_not_taken_for_what_is_between_fields(
    tmp_path: Path, content: str, columns: dict[str, list[Any]]
) -> None:
    pd.testing.assert_frame_equal(read_table(written(tmp_path, content)).frame, pd.DataFrame(columns))


def test_settings_decide_before_the_file_does(tmp_path: Path) -> None:
    path = written(tmp_path, "a:b:c\n1,5:-:\xe4\n2,5:7:x\n".encode("latin-1"))
    table = read_table(path, TableFormat(separator=":", decimal=",", encoding="latin-1", missing=("-",)))
    pd.testing.assert_frame_equal(table.frame, pd.DataFrame({"a": [1.5, 2.5], "b": [np.nan, 7], "c": ["ä", "x"]}))
    assert table.notes == ()
    with pytest.raises(BazaarError, match=r"`encoding` = 'klingon' is not known: write one such as"):
        read_table(path, TableFormat(encoding="klingon"))
    with pytest.raises(BazaarError, match="cannot be read"):
        read_table(path, TableFormat(encoding="utf-8"))


def test_bytes_that_are_no_letters_in_windows_are_read_all_the_same(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, b"a,b\n\x81\xe4,2\n"))
    assert table.frame["a"].tolist() == ["\x81ä"]
    assert "ISO 8859-1" in table.notes[0] and "set `encoding`" in table.notes[0]


@pytest.mark.parametrize("gap", ["", "NA"])
@pytest.mark.parametrize("rows", [3, SAMPLE // 5])
def test_codes_keep_their_zeros(tmp_path: Path, rows: int, gap: str) -> None:
    """Also where the first zero comes long after the beginning of the file."""
    codes = ["8001", gap, *["8004"] * (rows - 3), "00123"]
    path = written(tmp_path, "zip,zero,x\n" + "".join(f"{code},0,0.5\n" for code in codes))
    frame = read_table(path).frame
    assert frame["zip"].dropna().tolist() == [code for code in codes if code != gap]
    assert frame["zero"].eq(0).all() and frame["x"].eq(0.5).all()


def test_a_field_may_be_longer_than_what_is_looked_at(tmp_path: Path) -> None:
    text = "x, y" * SAMPLE
    frame = read_table(written(tmp_path, f'a;b\n1,5;"{text}"\n2,5;z\n')).frame
    assert frame["b"].tolist() == [text, "z"]


@pytest.mark.parametrize("rows", [2, SAMPLE // 5])
def test_a_file_that_was_cut_off_is_said_to_be(tmp_path: Path, rows: int) -> None:
    whole = "a,b,c\n" + "1,22,3\n" * rows
    assert read_table(written(tmp_path, whole)).notes == ()
    cut = read_table(written(tmp_path, whole + "1,2"))
    assert "fewer fields than the header" in cut.notes[0]
    assert cut.frame["c"].isna().sum() == 1


def test_zeros_inside_a_text_change_nothing(tmp_path: Path) -> None:
    frame = read_table(written(tmp_path, 'a,b\n1,"x,007,y"\n2,z\n')).frame
    assert frame["a"].tolist() == [1, 2]


def test_a_saved_index_is_no_column_where_it_only_counts(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    sales().to_csv(path)
    table = read_table(path)
    pd.testing.assert_frame_equal(table.frame, sales())
    assert "only counts the rows" in table.notes[0]
    sales().set_index(pd.Index([5, 3, 9, 1])).to_csv(path)
    assert list(read_table(path).frame.columns) == ["Unnamed: 0", *sales().columns]


@pytest.mark.parametrize(
    ("index", "first"),
    [
        (pd.RangeIndex(4), None),
        (pd.Index([7, 3, 5, 1]), None),
        (pd.Index([7, 3, 5, 1], name="house"), "house"),
        (pd.RangeIndex(4, name="house"), "house"),
        (pd.Index(["a", "b", "c", "d"]), "index"),
        (pd.MultiIndex.from_arrays([[1, 1, 2, 2], [1, 2, 1, 2]], names=["house", "flat"]), "house"),
    ],
)
def test_a_named_index_of_parquet_is_a_column(tmp_path: Path, index: pd.Index, first: str | None) -> None:
    path = tmp_path / "t.parquet"
    sales().set_axis(index).to_parquet(path)
    frame = read_table(path).frame
    assert (frame.columns[0] == first) == (first is not None)
    pd.testing.assert_frame_equal(frame[list(sales().columns)], sales())


cell = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Nd", "Zs", "Zl", "Zp"]), min_size=1, max_size=8
)
numbers = st.floats(-1e6, 1e6).map(lambda value: round(value, 2))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(cell, numbers, numbers), min_size=2, max_size=12),
    separator=st.sampled_from(SEPARATORS),
    decimal=st.sampled_from(".,"),
)
def test_numbers_survive_any_way_of_writing_them(
    tmp_path: Path, rows: list[tuple[str, float, float]], separator: str, decimal: str
) -> None:
    frame = pd.DataFrame(rows, columns=["note", "a", "b"]).assign(c=0.5)
    frame.to_csv(tmp_path / "t.csv", index=False, sep=separator, decimal=decimal)
    read = read_table(tmp_path / "t.csv").frame
    assert list(read.columns) == list(frame.columns)
    pd.testing.assert_frame_equal(read[["a", "b", "c"]], frame[["a", "b", "c"]])
