"""Uploads: bounded, whole, private, and nothing that is no table."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import stat
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import table_work
from databazaar.service import files, table_reader
from databazaar.service.errors import InvalidError, TooManyError
from desk_market import DeskMarket, table
from web_server import until


def parquet(content: bytes) -> bytes:
    frame, out = pd.read_csv(io.BytesIO(content)), io.BytesIO()
    frame.to_parquet(out)
    return out.getvalue()


def kept_in(market: DeskMarket) -> list[Path]:
    return [path for path in market.settings.files.rglob("*") if path.is_file()]


@pytest.mark.process
@pytest.mark.usefixtures("tables_are_read_apart")
def test_a_table_is_kept_under_its_hash_whatever_it_is_called(small: DeskMarket) -> None:
    contents = {".csv": table(1), ".csv.gz": gzip.compress(table(1)), ".parquet": parquet(table(1))}
    for suffix, content in contents.items():
        with small.database.begin() as session:
            file = files.keep(session, small["north"], small.settings, "../photo.jpg", io.BytesIO(content))
            again = files.keep(session, small["south"], small.settings, "other.bin", io.BytesIO(content))
        assert (file.name, file.suffix, file.size) == ("photo.jpg", suffix, len(content))
        assert file.digest == again.digest == hashlib.sha256(content).hexdigest() and file.id != again.id
        path = small.settings.file(file.digest, file.suffix)
        assert path.read_bytes() == content
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for folder in (path.parent, small.settings.files, small.settings.home):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert [column["name"] for column in table_reader.outline(small.settings, path)[1]] == [
            "distance",
            "weight",
            "vehicle",
            "late",
        ]
    assert len(kept_in(small)) == 3


NO_TABLES = [
    (b"", "t.csv: the file is empty"),
    (b"a,b\n", "t.csv: the file has the columns 'a', 'b' but no rows"),
    (b"a,a\n1,2\n", "t.csv: the column 'a' appears more than once"),
    (b"\0\1\2\3", "t.csv: the file cannot be read"),
    (b"PAR1 nothing of the kind PAR1", "t.csv: the file cannot be read as .parquet"),
    (b"\x1f\x8bnothing", "t.csv: the file cannot be read as .csv.gz"),
]


def test_what_is_no_table_is_not_kept(small: DeskMarket) -> None:
    for content, said in NO_TABLES:
        with pytest.raises(InvalidError, match=said), small.database.begin() as session:
            files.keep(session, small["north"], small.settings, "t.csv", io.BytesIO(content))
    assert kept_in(small) == []


def test_no_more_is_read_than_a_file_may_have(small: DeskMarket) -> None:
    class Endless:
        read_so_far = 0

        def read(self, size: int, /) -> bytes:
            self.read_so_far += size
            return b"x" * size

    endless, settings = Endless(), replace(small.settings, most_upload=3 * files.PIECE)
    with pytest.raises(InvalidError, match="3,145,728 bytes"), small.database.begin() as session:
        files.keep(session, small["north"], settings, "t.csv", endless)
    assert endless.read_so_far == 4 * files.PIECE
    assert kept_in(small) == []


def test_an_upload_that_breaks_off_leaves_nothing_and_old_drafts_go(small: DeskMarket) -> None:
    class Broken:
        def read(self, size: int, /) -> bytes:
            raise ConnectionError

    with pytest.raises(ConnectionError), small.database.begin() as session:
        files.keep(session, small["north"], small.settings, "t.csv", Broken())
    assert kept_in(small) == []
    drafts = small.settings.files / "drafts"
    for name, age in (("old", 2 * files.STALE), ("new", 0.0)):
        (drafts / name).write_bytes(b"")
        os.utime(drafts / name, (time.time() - age,) * 2)
    with small.database.begin() as session:
        small.upload(session, "north", table(1))
    assert [path.name for path in drafts.iterdir()] == ["new"]


def test_the_outline_of_a_table_holds_no_value(small: DeskMarket) -> None:
    secrets = ["Gwendolyn", "Aberystwyth", "31337.5", "1987-06-05"]
    rows = "\n".join(
        f"{'Gwendolyn' if n % 2 else 'Aberystwyth'},31337.5,1987-06-{n % 28 + 1:02},n{n},," for n in range(400)
    )
    with small.database.begin() as session:
        file_id = small.upload(session, "north", f"city,pay,born,who,gone,odd\n{rows}\n1,2,x,3,,\n".encode())
        file = files.own_file(session, small["north"], file_id)
        path = small.settings.file(file.digest, file.suffix)
    count, columns = table_reader.outline(small.settings, path)
    assert count == 401
    kinds = {column["name"]: column["kind"] for column in columns}
    assert kinds == {
        "city": "category",
        "pay": "number",
        "born": "text",
        "who": "text",
        "gone": "empty",
        "odd": "empty",
    }
    assert not any(secret in repr(columns) for secret in secrets)


@settings(max_examples=40)
@given(st.text())
def test_names_are_shown_safely(name: str) -> None:
    shown = files.shown_name(name)
    assert shown and shown.isprintable() and len(shown) <= 200 and "/" not in shown and "\\" not in shown


def test_a_table_is_read_once_for_all_who_ask(small: DeskMarket, monkeypatch: pytest.MonkeyPatch) -> None:
    with small.database.begin() as session:
        first = files.keep(session, small["north"], small.settings, "t.csv", io.BytesIO(table(1)))
        monkeypatch.setattr(files, "outline", lambda *_: pytest.fail("read again"))
        again = files.keep(session, small["south"], small.settings, "u.csv", io.BytesIO(table(1)))
    assert (first.rows, len(first.columns)) == (60, 4) == (again.rows, len(again.columns))


@pytest.mark.process
@pytest.mark.usefixtures("tables_are_read_apart")
def test_only_a_few_tables_are_read_at_once(small: DeskMarket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_reader, "PATIENCE", 0.0)
    path, settings = tmp_path / "t.csv", small.settings
    path.write_bytes(table(1))
    with ThreadPoolExecutor(3) as pool:
        for waiting, whose in enumerate(("a", "a", "b"), 1):
            pool.submit(table_reader.read_apart, settings, table_work.wait_for_it, path, whose=whose)
            until(lambda waiting=waiting: len(list(tmp_path.glob("there-*"))) == waiting)  # type: ignore[misc]
        for whose, words in {
            "a": "2 tables of yours are being read",
            "b": "as many tables at once",
            "c": "as many",
        }.items():
            with pytest.raises(TooManyError, match=words):
                table_reader.outline(settings, path, whose=whose)
        (tmp_path / "go").touch()
    assert table_reader.outline(settings, path, whose="a")[0] == 60 and not table_reader._turns._busy.total()


MORE_THAN_IT_HAS = "t.csv: the file takes more than the 0.1 GiB of memory or the 1 seconds that the hub has"
HOSTILE: dict[Callable[[Path], object], str] = {
    table_work.spin: MORE_THAN_IT_HAS,
    table_work.crash: MORE_THAN_IT_HAS,
    table_work.fill_memory: MORE_THAN_IT_HAS,
    table_work.speak_at_length: MORE_THAN_IT_HAS,
    table_work.fail: "t.csv: the file cannot be read (RecursionError): correct it or save it again",
}


@pytest.mark.process
@pytest.mark.usefixtures("tables_are_read_apart")
@pytest.mark.parametrize("work", HOSTILE, ids=lambda work: work.__name__)
def test_a_file_that_ends_its_reader_does_not_end_the_hub(work: Callable[[Path], object], small: DeskMarket) -> None:
    bounded = replace(small.settings, table_memory=2**27, table_seconds=1)
    with pytest.raises(InvalidError, match=re.escape(HOSTILE[work])) as refused:
        table_reader.read_apart(bounded, work, Path("digest.csv"), name="t.csv")
    assert "a value" not in str(refused.value) and not table_reader._turns._busy.total()
    with small.database.begin() as session:
        assert files.keep(session, small["north"], bounded, "t.csv", io.BytesIO(table(1))).size == len(table(1))


def peak(reset: bool = False) -> int:
    """The most KiB of memory that this process has had, since it was last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])


@pytest.mark.process
@pytest.mark.usefixtures("tables_are_read_apart")
def test_a_table_that_expands_is_not_kept_and_adds_nothing_to_the_hub(small: DeskMarket) -> None:
    """Each of these took gigabytes in the process that serves."""
    category, out = (
        pa.DictionaryArray.from_arrays(pa.array(np.zeros(20_000, np.int32)), pa.array(["x" * 10**6])),
        io.BytesIO(),
    )
    pq.write_table(pa.table({"a": category}), out)
    different = "\n".join(f"{number:x}" for number in range(2**20 - 100))
    hostile = {
        out.getvalue(): "takes 18.6 GiB once it is read",
        gzip.compress(b"a,b\n" + b"1,2\n" * 2**22, 9): "unpacked, the file takes 0.0 GiB once it is read",
        b"a\n" + different.encode(): "takes more than the 0.1 GiB of memory",
    }
    bounded = replace(small.settings, table_memory=2**26)
    before = peak(reset=True)
    for content, words in hostile.items():
        with (
            pytest.raises(InvalidError, match=rf"t\.parquet: .*{words}.*: split it"),
            small.database.begin() as session,
        ):
            files.keep(session, small["north"], bounded, "t.parquet", io.BytesIO(content))
    assert kept_in(small) == []
    assert peak() - before < 32 * 1024


def test_a_table_has_no_more_columns_than_an_offer_may_have(small: DeskMarket) -> None:
    names = ",".join(f"c{number}" for number in range(10_001))
    content = f"{names}\n{'1,' * 10_000}1\n".encode()
    with pytest.raises(InvalidError, match=r"t\.csv has 10,001 columns"), small.database.begin() as session:
        files.keep(session, small["north"], small.settings, "t.csv", io.BytesIO(content))
