"""Each table is opened once and encoded once: what is trained on, attested in the ledger and profiled is one read."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_markets import PROVIDERS, bazaar, edit, table, write_market

from databazaar.data.fraud import write_fraud_files
from databazaar.data.schema import Schema
from databazaar.runs.folder import RunFolder
from opened_files import in_fork, tell_opens

pytestmark = [pytest.mark.usefixtures("no_figures"), pytest.mark.process]


def counted(calls: Counter[str], name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        calls[name] += 1
        return inner(*args, **kwargs)

    return call


def counts_of(folder: Path, *command: str | Path) -> tuple[Counter[str], Counter[str]]:
    """How often a command opens each table of a folder, and how often it encodes one."""

    def count() -> tuple[Counter[str], Counter[str]]:
        opens, calls = Counter[str](), Counter[str]()
        tell_opens(folder, ".csv", lambda name: opens.update([name]))
        setattr(Schema, "encode_features", counted(calls, "encodings", Schema.encode_features))  # noqa: B010
        done = bazaar(*command, cwd=folder)
        assert done.code == 0, done
        return opens, calls

    return in_fork(count)


def test_a_run_opens_and_encodes_each_table_once(tmp_path: Path) -> None:
    """The example of nine banks."""
    market = write_fraud_files(tmp_path)
    edit(market, "budget = ", "budget = 20 # ")
    opens, calls = counts_of(tmp_path, "run", market, "--out", tmp_path / "run", "--quiet")
    tables = [path.name for path in tmp_path.glob("*.csv")]
    assert len(tables) >= 10 and opens == Counter(opens.keys()) and calls["encodings"] == len(opens) == 10
    kept = RunFolder(tmp_path / "run").profile()
    assert kept is not None and len(kept.providers) == 9


@pytest.mark.parametrize("command", ["check", "compare"])
def test_other_commands_read_as_a_run_does(tmp_path: Path, command: str) -> None:
    market = write_market(tmp_path, budget='"5.00"')
    options = ("--methods", "uniform", "--out", "compared", "--quiet") if command == "compare" else ()
    opens, calls = counts_of(tmp_path, command, market, *options)
    assert opens == Counter(f"{name}.csv" for name in ("holdout", *PROVIDERS)) and calls["encodings"] == 4


def test_a_table_of_several_uses_is_read_once(tmp_path: Path) -> None:
    market = write_market(tmp_path, budget='"5.00"', more='\n[consumer]\ntrain = "north.csv"\n')
    edit(market, 'file = "south.csv"', 'file = "north.csv"')
    opens, calls = counts_of(tmp_path, "run", market, "--out", tmp_path / "run", "--quiet")
    assert opens == Counter(["holdout.csv", "north.csv", "far east.csv"]) and calls["encodings"] == 3
    kept = RunFolder(tmp_path / "run").profile()
    assert kept is not None and [(one.id, one.file) for one in kept.tables] == [
        ("hold-out", "holdout.csv"),
        ("training rows", "north.csv"),
        ("north", "north.csv"),
        ("south", "north.csv"),
        ("far east", "far east.csv"),
    ]


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_what_the_ledger_attests_is_what_was_read(tmp_path: Path, suffix: str) -> None:
    """Whoever opens a table a second time finds another one there."""
    market = write_market(tmp_path, suffix=suffix, budget='"5.00"')
    before = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in tmp_path.glob(f"*{suffix}")}
    other = table(35, 99, "classification")

    def changing() -> None:
        seen = set[str]()

        def tell(name: str) -> None:
            if name in seen:
                write = other.to_parquet if suffix == ".parquet" else other.to_csv
                write(tmp_path / name, index=False)
            seen.add(name)

        tell_opens(tmp_path, suffix, tell)
        done = bazaar("run", market, "--out", tmp_path / "run", "--quiet")
        assert done.code == 0, done

    in_fork(changing)
    run = RunFolder(tmp_path / "run")
    terms, profile = run.need_rules(), run.profile()
    assert terms is not None and terms.data == before
    assert profile is not None and [one.rows for one in profile.tables] == [80, 40, 50, 60]


def test_the_profile_is_that_of_the_run_with_its_overrides(tmp_path: Path) -> None:
    """A market of a federation, played here: its providers' tables are used, and so they are profiled."""
    market = write_market(tmp_path, budget='"5.00"', more='\n[federation]\nfolder = "federation"\n')
    edit(market, "[engine]", '[engine]\nkind = "federated"')
    assert bazaar("run", market, "--engine", "loop", "--out", tmp_path / "run", "--quiet").code == 0
    profile = RunFolder(tmp_path / "run").profile()
    assert profile is not None and [one.id for one in profile.providers] == list(PROVIDERS)


def test_overrides_are_settings_like_those_of_the_file(tmp_path: Path) -> None:
    """They are there before anything is checked: without its [federation], this file alone would be refused."""
    market = write_market(tmp_path, budget='"5.00"')
    edit(market, "[engine]", '[engine]\nkind = "federated"')
    assert "needs a [federation] section" in bazaar("run", market, "--out", tmp_path / "no").complaint
    assert bazaar("run", market, "--engine", "loop", "--seed", "4", "--out", tmp_path / "run", "-q").code == 0
    settings = RunFolder(tmp_path / "run").recipe["market"]
    assert (settings["engine"]["kind"], settings["market"]["seed"]) == ("loop", 4)
    edit(market, '[engine]\nkind = "federated"\ndevice = "cpu"\n', "")
    market.write_text(f"engine = 5\n{market.read_text(encoding='utf-8')}", encoding="utf-8")
    assert "engine = 5" in bazaar("run", market, "--engine", "loop", "--out", tmp_path / "no").complaint
