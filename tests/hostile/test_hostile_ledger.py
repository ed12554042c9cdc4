"""A ledger from somebody else: whatever is in it, an audit ends within seconds, in one sentence, in little memory."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_markets import ENVIRONMENT

import processes
from databazaar import OSMD, Arbiter
from databazaar.ledger import Entry, Ledger, audit_entries
from databazaar.market.loop import play
from databazaar.runs.folder import RunFolder
from databazaar.vectors import measure_packed, pack
from forging import reseal
from hostile_folders import at_most, rewrite_ledger
from small_markets import MakeMarket

GIB = 2**30


@pytest.fixture(scope="module")
def finished(make_vector_market: MakeMarket, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("finished") / "run"
    Arbiter(*make_vector_market(budget=12), OSMD(0.6, 0.2), engine="loop", seed=8).run(path)
    return path


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture(scope="module")
def entries(make_vector_market: MakeMarket) -> list[Entry]:
    arbiter = Arbiter(*make_vector_market(budget=12), OSMD(0.6, 0.2), engine="loop", seed=8)
    ledger = Ledger(arbiter.rules)
    play(arbiter.begin(ledger), arbiter.engine)
    return list(ledger.store.entries())


def broken(run: Path) -> str:
    with at_most(30):
        found = RunFolder(run).audit()
    assert not found.ok
    return found.message


def test_the_ledger_holds_before_anybody_touches_it(run: Path, entries: list[Entry]) -> None:
    assert RunFolder(run).audit().ok and audit_entries(entries).ok


def crowd() -> list[list[Any]]:
    return [[f"p{i}", "", 1] for i in range(10**5 + 1)]


def changing_prices() -> list[list[Any]]:
    return [[f"p{i}", "", 1, {"price_changes": [[i + 1, 2]]}] for i in range(10**4)]


TERMS: dict[str, tuple[dict[str, Any], str]] = {
    "a round of 10^12": (
        {"per_round": 10**12},
        "1,000,000,000,000 accesses a round is refused: 1,000,000 are the most",
    ),
    "a round below 0": ({"per_round": -1}, "a market with -1 accesses a round is refused"),
    "decimals 10^9": ({"currency": {"name": "EUR", "decimals": 10**9}}, "decimals is refused: 18 are the most"),
    "decimals in words": ({"currency": {"name": "EUR", "decimals": "two"}}, "must be whole numbers"),
    "a budget of 4,000 digits": ({"budget": 10**4000}, "amounts of 2^63 minor units or more"),
    "a price of 400 digits": ({"providers": [["p0", "p0", 10**400]]}, "amounts of 2^63 minor units or more"),
    "a seed of 4,000 digits": ({"seed": 10**4000}, "a seed below 0, or of 2^256 or more, is refused"),
    "a seed below 0": ({"seed": -1}, "a seed below 0"),
    "a crowd and one": ({"providers": crowd}, "100,001 providers is refused"),
    "a price for every round": (
        {"providers": changing_prices},
        "100,000,000 prices over time is refused: 20,000,000 are the most",
    ),
    "bounded in words": ({"bounded_utility": "no"}, "bounded_utility or initial_model is not what a ledger writes"),
    "no model": ({"initial_model": 7}, "bounded_utility or initial_model is not what a ledger writes"),
    "names of nobody": ({"environment": ["torch"]}, "the terms cannot be read"),
}
"""What is large is made when it is wanted: every process of the tests reads this file."""


@pytest.mark.parametrize("case", TERMS)
def test_terms_that_ask_for_endless_work_are_refused(entries: list[Entry], case: str) -> None:
    changes, words = TERMS[case]
    made = {name: value() if callable(value) else value for name, value in changes.items()}
    opening = entries[0]._replace(body={**entries[0].body, **made})
    with at_most(30):
        found = audit_entries(reseal([opening, *entries[1:]]))
    assert not found.ok and words in found.message and len(found.message) < 500, found.message


RULES: dict[str, dict[str, Any]] = {
    "stops without end": {"stops": [{"kind": "budget"}] * 101},
    "a sampler of words": {"sampler": {"kind": "osmd", "eta": "much", "alpha": []}},
    "a sampler of the infinite": {"sampler": {"kind": "osmd", "eta": 1e308, "alpha": 1e-308}},
    "a rule that is a list": {"payment": {"kind": ["price-per-access"]}},
    "a deep one": {"sampler": {"kind": "osmd", "eta": json.loads("[" * 400 + "]" * 400), "alpha": 0.1}},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", RULES)
def test_rules_with_senseless_settings_are_refused(entries: list[Entry], case: str) -> None:
    body = {**entries[0].body, "rules": {**entries[0].body["rules"], **RULES[case]}}
    with at_most(30):
        found = audit_entries(reseal([entries[0]._replace(body=body), *entries[1:]]))
    assert not found.ok and len(found.message) < 500


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("gain", [1e308, -1e308, 10**400, "1", [1], True])
def test_gains_that_no_market_measures_end_in_a_sentence(entries: list[Entry], gain: Any) -> None:
    at = next(place for place, entry in enumerate(entries) if entry.kind == "round")
    body = {**entries[at].body, "gains": [gain] * len(entries[at].body["gains"])}
    assert not audit_entries(reseal([*entries[:at], entries[at]._replace(body=body), *entries[at + 1 :]])).ok


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n) SELECT"
PROGRAMS = {
    "view": [
        "DROP TABLE bazaar_entries",
        f"CREATE VIEW bazaar_entries AS {ENDLESS} 'x' AS run, i AS seq, 'open' AS kind, NULL AS round, NULL AS draw, "
        "NULL AS provider, NULL AS amount, '{}' AS body, '' AS hash FROM n",
    ],
    "trigger": [
        f"CREATE TRIGGER more AFTER INSERT ON bazaar_entries BEGIN INSERT INTO bazaar_snapshots {ENDLESS} i, i, i, i "
        "FROM n; END"
    ],
    "generated": [
        "DROP TABLE bazaar_entries",
        "CREATE TABLE bazaar_entries (run, seq, kind, round, draw, provider, amount, "
        "body AS (hex(zeroblob(100000000))), hash)",
    ],
    "index": ["CREATE INDEX more ON bazaar_entries (hex(zeroblob(1000)))"],
    "table": ["CREATE TABLE more (x)"],
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_file_that_holds_programs_is_not_asked_anything(run: Path, program: str) -> None:
    with closing(sqlite3.connect(run / "ledger.sqlite")) as database:
        for statement in PROGRAMS[program]:
            database.execute(statement)
        database.commit()
    (run / "summary.json").unlink()
    name = "bazaar_entries" if program in ("view", "generated") else "more"
    assert f"the ledger's file holds '{name}', which no ledger has" in broken(run)
    with at_most(30), pytest.raises(Exception, match="which no ledger has"):
        RunFolder(run).store()


def test_an_entry_larger_than_any_of_ours_is_not_read(run: Path) -> None:
    with closing(sqlite3.connect(run / "ledger.sqlite")) as database:
        database.execute(
            "INSERT INTO bazaar_entries SELECT run, 999, kind, 1, 1, provider, amount, hex(zeroblob(40000000)), hash "
            "FROM bazaar_entries WHERE seq = 0"
        )
        database.commit()
    assert "the ledger cannot be read (string or blob too big)" in broken(run)


@pytest.mark.parametrize("body", ["[" * 10**5, '{"a":' * 10**5, '{"budget":' + "9" * 5000 + "}", "{}", "[]", "null"])
def test_text_that_no_ledger_writes_is_found(run: Path, body: str) -> None:
    with closing(sqlite3.connect(run / "ledger.sqlite")) as database:
        database.execute("DROP TRIGGER bazaar_no_UPDATE")
        database.execute("UPDATE bazaar_entries SET body = ? WHERE seq = 0", [body])
        database.commit()
    assert "entry 0" in broken(run)


AUDIT = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30, 4 * 2**30))
sys.argv = ["bazaar", "audit", *sys.argv[1:]]
from databazaar.cli import main
main()
"""


def audited(run: Path) -> tuple[int, str]:
    """As a command with little memory: what takes more than 4 GiB ends with a traceback."""
    done = processes.run([sys.executable, "-c", AUDIT, run], env=ENVIRONMENT, timeout=60)
    said = done.stdout + done.stderr
    assert len(said.splitlines()) == 1, said
    return done.returncode, said


@pytest.mark.process
def test_files_that_claim_to_be_larger_than_any_disk(run: Path) -> None:
    """Holes cost their maker nothing."""
    os.truncate(run / "model/model.safetensors", 3 * GIB)
    assert "does not hold the model that the ledger names" in broken(run)
    os.truncate(run / "model/model.safetensors", 300 * GIB)
    assert "does not hold the model that the ledger names" in broken(run)
    (run / "summary.json").unlink()
    (run / "ledger.sqlite-wal").touch()
    os.truncate(run / "ledger.sqlite-wal", GIB)
    code, said = audited(run)
    assert code == 1 and "does not hold the model that the ledger names" in said
    assert not list(run.glob("*-shm"))
    os.truncate(run / "ledger.sqlite", 10 * GIB)
    code, said = audited(run)
    assert code == 3 and "and ledgers of up to 4,294,967,296 are read" in said
    assert not list(run.glob("*-shm"))


def header_of(tensors: dict[str, Any], order: Any, data: bytes = b"\0" * 8) -> bytes:
    text = json.dumps({**tensors, "__metadata__": {"order": json.dumps(order)}}).encode()
    return len(text).to_bytes(8, "little") + text + data


TENSOR = {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}
HEADERS: dict[str, bytes] = {
    "nothing": b"",
    "a header without end": (2**60).to_bytes(8, "little") + b"{}",
    "no JSON": (2).to_bytes(8, "little") + b"{[",
    "deep": (10**5).to_bytes(8, "little") + b"[" * 10**5,
    "a list": (2).to_bytes(8, "little") + b"[]",
    "a shape without end": header_of({"w": {**TENSOR, "shape": [2**62, 4]}}, ["w"]),
    "offsets beyond": header_of({"w": {**TENSOR, "data_offsets": [0, 2**60], "shape": [2**57]}}, ["w"]),
    "offsets backwards": header_of({"w": {**TENSOR, "data_offsets": [8, 0]}}, ["w"]),
    "one in the other": header_of({"a": TENSOR, "b": TENSOR}, ["a", "b"]),
    "another order": header_of({"w": TENSOR}, ["v"]),
    "an order of numbers": header_of({"w": TENSOR}, [7, "w"]),
    "two types": header_of(
        {"a": TENSOR, "b": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}}, ["a", "b"], b"\0" * 16
    ),
    "a type of nobody": header_of({"w": {**TENSOR, "dtype": "BF16"}}, ["w"]),
    "no tensors": header_of({}, [], b""),
}


@pytest.mark.parametrize("case", HEADERS)
def test_weights_whose_header_lies(run: Path, case: str) -> None:
    (run / "model/model.safetensors").write_bytes(HEADERS[case])
    assert "does not hold the model that the ledger names" in broken(run)


def test_weights_are_measured_as_they_are_packed(tmp_path: Path) -> None:
    from databazaar.vectors import hash_packed

    rng = np.random.default_rng(0)
    for dtype in ("<f8", "<f4", "<f2", "<i8"):
        arrays = {name: rng.normal(size=shape).astype(dtype) for name, shape in (("b", (3, 2)), ("a", (5,)), ("c", ()))}
        (tmp_path / "file").write_bytes(packed := pack(arrays))
        with (tmp_path / "file").open("rb", buffering=0) as file:
            found, tensors = measure_packed(file, 2**20)
        assert found == hash_packed(packed)
        assert tensors == [(name, list(array.shape)) for name, array in arrays.items()]


def forged_opening(**changes: Any) -> Callable[[list[Entry]], list[Entry]]:
    return lambda entries: [entries[0]._replace(body={**entries[0].body, **changes}), *entries[1:]]


@pytest.mark.process
def test_from_the_command_line_too(run: Path) -> None:
    rewrite_ledger(run, forged_opening(per_round=10**12))
    code, said = audited(run)
    assert code == 1 and said.startswith("BROKEN: a market with 1,000,000,000,000 accesses a round is refused")
    (run / "run.json").chmod(0)
    if os.geteuid():  # root may read everything
        assert audited(run)[0] == 3
