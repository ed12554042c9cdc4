"""Tables of other people that are small on disk and huge in memory, or wide: refused, or read in linear time."""

from __future__ import annotations

import datetime as dt
import gzip
import resource
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from databazaar.data.formats import refuse_many_cells
from databazaar.data.memory_limits import memory
from databazaar.data.parquet import needed, read_parquet
from databazaar.data.tables import TableFormat, read_table
from databazaar.errors import BazaarError

LIMIT = 4 * 2**30


def refused(path: Path) -> str:
    """What a process with little memory says of the file."""
    code = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({LIMIT}, {LIMIT}))
from pathlib import Path
from databazaar.data.tables import read_table
from databazaar.errors import BazaarError
try:
    read_table(Path(sys.argv[1]))
except BazaarError as reason:
    print(reason)
"""
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def repeated(values: list[Any], rows: int, path: Path) -> Path:
    """A table whose one column says the same in every row, which takes next to nothing in the file."""
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(values))
    pq.write_table(pa.table({"a": column}), path, store_schema=False)
    return path


@pytest.mark.process
def test_a_long_text_in_every_row(tmp_path: Path) -> None:
    path = repeated(["x" * 1_000_000], 20_000, tmp_path / "t.parquet")
    assert path.stat().st_size < 200_000
    assert "takes 18.6 GiB once it is read, more than the" in refused(path)
    fewer = repeated(["x" * 1_000_000], 3, tmp_path / "fewer.parquet")
    assert read_table(fewer).frame["a"].str.len().tolist() == [1_000_000] * 3


def test_a_long_category_in_every_row(tmp_path: Path) -> None:
    """Pandas keeps a category once, and `fit_column` gives every row its own."""
    for values in (["x" * 1_000_000], [b"x" * 1_000_000]):
        path = tmp_path / "t.parquet"
        column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(20_000, np.int32)), pa.array(values))
        pq.write_table(pa.table({"a": column}), path)
        assert path.stat().st_size < 200_000 and pa.types.is_dictionary(pq.read_schema(path).field("a").type)
        with pytest.raises(BazaarError, match=r"takes 18\.6 GiB once it is read, more than the 1\.0 GiB"):
            read_parquet(path, room=2**30)


@pytest.mark.parametrize("type", [pa.string_view(), pa.large_string(), pa.binary_view(), pa.large_binary()])
def test_a_long_text_of_any_type_in_every_row(type: pa.DataType, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    value = "x" * 100_000
    pq.write_table(pa.table({"a": pa.array([value if "string" in str(type) else value.encode()] * 200, type)}), path)
    assert path.stat().st_size < 200_000
    with pytest.raises(BazaarError, match="split it or leave columns out"):
        read_parquet(path, room=15_000_000)
    assert read_parquet(path, room=25_000_000)[0]["a"].str.len().eq(100_000).all()


def test_long_texts_that_no_row_has(tmp_path: Path) -> None:
    """The file writes them down, compressed, and they are read before a row is looked at."""
    path = tmp_path / "t.parquet"
    column = pa.DictionaryArray.from_arrays(pa.array([1] * 3), pa.array(["x" * 30_000_000, "y"]))
    pq.write_table(pa.table({"a": column}), path, compression="zstd")
    assert path.stat().st_size < 200_000
    with pytest.raises(BazaarError, match="split it or leave columns out"):
        read_parquet(path, room=2**24)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([dt.date(2024, 1, 1)] * 1000),
        pa.array([dt.time(12)] * 1000),
        pa.array([Decimal("1.5")] * 1000, pa.decimal128(5, 2)),
        pa.array([{"x": 1, "y": 2}] * 1000),
        pa.array([[]] * 1000, pa.list_(pa.int64())),
        pa.array([[{"x": "yes"}]] * 1000),
        pa.array([[("k", 1)]] * 1000, pa.map_(pa.string(), pa.int64())),
    ],
    ids=lambda column: str(column.type),
)
def test_what_becomes_an_object_counts_as_one(column: pa.Array, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": column}), path)
    frame = read_parquet(path)[0]
    taken = frame["a"].memory_usage(deep=True)
    assert taken <= needed(pq.read_metadata(path))


def test_more_rows_than_memory_holds(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    column = pa.array(np.zeros(10_000_000, np.int64))
    pq.write_table(pa.table({f"c{place}": column for place in range(4)}), path, compression="zstd")
    assert path.stat().st_size < 1_000_000 and needed(pq.read_metadata(path)) == 320_000_000
    with pytest.raises(BazaarError, match=r"takes 0\.3 GiB once it is read, more than the 0\.2 GiB"):
        read_parquet(path, room=200_000_000)


def test_lists_in_lists(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    long = pa.array([["x" * 20_000] * 200], pa.list_(pa.string()))
    pq.write_table(pa.table({"a": pa.concat_arrays([long] * 20)}), path)
    assert path.stat().st_size < 1_000_000
    with pytest.raises(BazaarError, match="split it or leave columns out"):
        read_parquet(path, room=2**25)


def test_long_values_of_one_length(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": pa.array([b"x" * 100_000] * 100, pa.binary(100_000))}), path)
    with pytest.raises(BazaarError, match="split it or leave columns out"):
        read_parquet(path, room=2**20)


def test_a_name_that_no_file_can_have() -> None:
    with pytest.raises(BazaarError, match="cannot be looked at"):
        read_table(Path("a" * 3000 + ".csv"))


@given(
    st.lists(st.one_of(st.none(), st.text(max_size=5)), min_size=1, max_size=8),
    st.lists(st.one_of(st.none(), st.integers(-(2**62), 2**62)), min_size=1, max_size=8),
    st.booleans(),
)
def test_a_table_is_what_pandas_reads(texts: list[str | None], numbers: list[int | None], category: bool) -> None:
    """Measuring first changes nothing of what is read: texts, gaps, categories."""
    rows = min(len(texts), len(numbers))
    frame = pd.DataFrame({"text": texts[:rows], "number": pd.array(numbers[:rows], dtype="Int64")})
    frame["text"] = frame["text"].astype("category" if category else "str")
    written = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path()
    path = written / "databazaar-same.parquet"
    try:
        frame.to_parquet(path)
        pd.testing.assert_frame_equal(read_parquet(path)[0], pd.read_parquet(path))
    finally:
        path.unlink(missing_ok=True)


@pytest.mark.process
def test_a_gzip_that_unpacks_to_more_than_memory(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    part = gzip.compress(b"1,2\n" * 2**22, 9)
    path.write_bytes(gzip.compress(b"a,b\n") + part * 64)
    assert path.stat().st_size < 2_000_000
    assert "unpacked, the file takes 0.5 GiB once it is read" in refused(path)


@pytest.mark.process
def test_short_lines_under_a_long_header(tmp_path: Path) -> None:
    """Each of them, of two bytes, is a row of 20,000 fields."""
    path = tmp_path / "t.csv"
    path.write_text(",".join(f"c{place}" for place in range(20_000)) + "\n" + "1\n" * 100_000)
    assert path.stat().st_size < 400_000
    assert "takes 59.6 GiB once it is read" in refused(path)


def test_line_breaks_in_quotes_are_no_rows() -> None:
    rows = b'1,"%b"\n' % (b"\n" * 100) * 10
    refuse_many_cells(b"a,b\n" + rows, 2, ",", '"', room=10_000)
    with pytest.raises(BazaarError, match="split it or leave columns out"):
        refuse_many_cells(b"a,b\n" + rows.replace(b'"', b""), 2, ",", '"', room=10_000)
    with pytest.raises(BazaarError, match="split it or leave columns out"):
        refuse_many_cells(b"a,b\n" + b'1,x"\n\n\n\n"\n' * 300, 2, ",", '"', room=10_000)


@pytest.mark.process
def test_a_file_that_is_larger_than_memory(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    with path.open("wb") as file:
        file.write(b"a,b\n")
        file.truncate(LIMIT)  # takes no room on disk
    assert "takes 4.0 GiB once it is read" in refused(path)


def test_one_endless_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"a" * (65 * 2**20))
    with pytest.raises(BazaarError, match="first line is longer than 64 MiB"):
        read_table(path)
    path.write_bytes(b'a,"' + b"b" * 300_000 + b'"\n1,2\n')
    with pytest.raises(BazaarError, match="field larger than field limit"):
        read_table(path)


def test_memory_is_what_this_process_may_have() -> None:
    own, most = resource.getrlimit(resource.RLIMIT_AS)
    assert memory() > 2**20
    try:
        resource.setrlimit(resource.RLIMIT_AS, (min(2**45, most) if most > 0 else 2**45, most))
        assert memory() <= 2**45
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (own, most))


def wide(path: Path, columns: int, cell: str = "3") -> Path:
    names = ",".join(f"c{place}" for place in range(columns))
    path.write_text(f"{names}\n{','.join([cell] * columns)}\n", encoding="utf-8")
    return path


def test_a_header_is_read_to_its_end(tmp_path: Path) -> None:
    """Beyond the first 128 KiB, which is where one was cut off, and two columns found to have the same name."""
    names = [f"{'column' * 20}{place}" for place in range(1500)]
    path = tmp_path / "t.csv"
    path.write_text(f"{';'.join(names)}\n{';'.join(['1,5'] * 1500)}\n", encoding="utf-8")
    assert path.stat().st_size > 150_000
    frame = read_table(path).frame
    assert list(frame) == names and frame.iloc[0, -1] == 1.5


def work(path: Path, format: TableFormat | None = None) -> int:
    """How many calls of functions it takes to read a file: a count that no clock disturbs."""
    calls: Counter[str] = Counter()

    def profile(_frame: Any, event: str, _arg: Any) -> None:
        calls[event] += 1

    sys.setprofile(profile)
    try:
        read_table(path, format)
    finally:
        sys.setprofile(None)
    return calls["call"] + calls["c_call"]


@pytest.mark.parametrize("cell", ["3", "007", '"1.234,50"', ""])
def test_twice_as_wide_is_twice_the_work(cell: str, tmp_path: Path) -> None:
    """Of numbers, of codes, of grouped numbers, and of columns that are empty."""
    format = TableFormat(separator=",", decimal="," if "," in cell else ".")
    small, large = (work(wide(tmp_path / f"{columns}.csv", columns, cell), format) for columns in (100, 200))
    assert large < 2.1 * small


def test_many_columns_without_a_name(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a" + "," * 3_000 + "\n1" + "," * 3_000 + "\n")
    assert list(read_table(path).frame) == ["a"]
