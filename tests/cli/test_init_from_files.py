"""`bazaar init` on folders of real files: what it writes is read, and runs, without a hand edit."""

from __future__ import annotations

import io
import os
import pty
import shutil
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest
from cli_markets import ENVIRONMENT, bazaar, contents, edit, table
from hypothesis import given
from hypothesis import strategies as st
from market_folders import CARRIERS, flights, write_customers, write_flights

from databazaar.cli.init import ask
from databazaar.config.discover import (
    Wishes,
    consumer_files,
    guess_target,
    guess_task,
    is_test,
    provider_ids,
    stem_of,
    tables_at,
    writable,
)
from databazaar.config.market_file import load_market, parse_market
from databazaar.config.template import pace, template
from databazaar.config.toml_text import quoted
from databazaar.data.tables import SUFFIXES, read_table
from databazaar.errors import BazaarError
from processes import Forked


def write_tables(folder: Path, *names: str, **columns: Sequence[object]) -> Path:
    """Files that all have the columns x and y, or those given."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        pd.DataFrame(columns or {"x": [1.5, 2.5], "y": [0, 1]}).to_csv(folder / name, index=False)
    return folder


def shorten(path: Path) -> None:
    """Rounds enough to see that the market runs."""
    text = path.read_text(encoding="utf-8")
    budget = next(line for line in text.splitlines() if line.startswith("budget = "))
    edit(path, budget, "budget = 12")


@pytest.mark.usefixtures("no_figures")
def test_a_german_folder_runs_as_it_is(tmp_path: Path) -> None:
    folder = write_customers(tmp_path / "Kunden")
    told = bazaar("init", "Kunden", cwd=tmp_path)
    assert told.code == 0 and "bazaar check Kunden/market.toml" in told.out
    assert "test.csv is left to you" in told.out
    market = load_market(folder / "market.toml")
    assert (market.name, market.data.holdout, market.data.target) == ("Kunden", Path("own.csv"), "gekündigt")
    assert market.data.task == "classification" and market.consumer.train == 0.5
    assert {p.id: str(p.file) for p in market.providers} == {n: f"{n}.csv" for n in ("nord", "ost", "süd")}
    assert market.data.features is not None and "Kundennummer" not in market.data.features
    shorten(folder / "market.toml")
    done = bazaar("run", "Kunden/market.toml", "--out", "run", "--quiet", cwd=tmp_path)
    assert done.code == 0, done.err
    page = (tmp_path / "run/report.html").read_text(encoding="utf-8")
    assert "The tables before the purchase" in page and "Was it worth it?" in page
    assert bazaar("evaluate", "run", "Kunden/test.csv", "--json", cwd=tmp_path).code == 0
    assert bazaar("predict", "run", "Kunden/test.csv", cwd=tmp_path).out.startswith("prediction,probability_")


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".csv.gz"])
def test_sixteen_carriers(tmp_path: Path, suffix: str) -> None:
    """Also the carrier US, whose file is not the consumer's own."""
    folder = write_flights(tmp_path, suffix)
    assert bazaar("init", folder).code == 0
    market = load_market(folder / "market.toml")
    assert [p.id for p in market.providers] == [f"carrier_{carrier.lower()}" for carrier in CARRIERS]
    assert (market.data.target, market.per_round, market.budget_minor) == ("late", *pace(16))
    assert bazaar("check", folder / "market.toml").code == 0


def test_both_a_hold_out_and_a_file_to_train_from(tmp_path: Path) -> None:
    x, y = [0.1 * i for i in range(40)], [0, 1] * 20
    write_tables(tmp_path, "hold-out.csv", "north.csv", x=x, y=y)
    write_tables(tmp_path, "our_rows.csv", x=[*x, 4.0], y=[*y, 0])
    assert "hold-out.csv judges, our_rows.csv is where training starts" in bazaar("init", tmp_path).out
    market = load_market(tmp_path / "market.toml")
    assert (market.data.holdout, market.consumer.train) == (Path("hold-out.csv"), Path("our_rows.csv"))
    told = bazaar("check", tmp_path / "market.toml")
    assert told.code == 0 and "training rows" in told.out and "40 of your 40 hold-out rows" in told.out


@pytest.mark.parametrize(
    ("names", "holdout", "train"),
    [
        (["own.csv", "a.csv"], "own.csv", None),
        (["train.csv", "own.csv"], "own.csv", "train.csv"),
        (["validation.parquet", "training.csv", "carrier_MY.csv"], "validation.parquet", "training.csv"),
        (["my bank.csv", "north.csv"], "my bank.csv", None),
        (["own.csv", "own_shop.csv"], "own.csv", None),
        (["Consumer-2024.tsv", "north.tsv"], "Consumer-2024.tsv", None),
    ],
)
def test_whose_a_file_is(names: list[str], holdout: str, train: str | None) -> None:
    found = consumer_files([Path(name) for name in names], Wishes())
    assert found == (Path(holdout), train and Path(train))


def test_the_user_says_which_file_is_the_own(tmp_path: Path) -> None:
    write_tables(tmp_path, "a.csv", "b.csv", "c.csv")
    assert "say which with `--own FILE`" in bazaar("init", ".", cwd=tmp_path).complaint
    assert bazaar("init", ".", "--own", "b.csv", cwd=tmp_path).code == 0
    market = load_market(tmp_path / "market.toml")
    assert (str(market.data.holdout), [p.id for p in market.providers]) == ("b.csv", ["a", "c"])
    assert market.consumer.train == 0  # of two rows none can be spared
    files = [Path("holdout.csv"), Path("b.csv"), Path("ours.csv")]
    assert consumer_files(files, Wishes(own=Path("b.csv"))) == (Path("holdout.csv"), Path("b.csv"))
    assert consumer_files(files, Wishes(own=Path("holdout.csv"))) == (Path("holdout.csv"), None)


def test_several_own_files_are_the_users_to_choose(tmp_path: Path) -> None:
    write_tables(tmp_path, "own_a.csv", "own_b.csv", "north.csv")
    told = bazaar("init", ".", cwd=tmp_path).complaint
    assert "more than one file looks like your own, of 'own_a.csv', 'own_b.csv'" in told


def test_a_glob_and_a_list_of_files(tmp_path: Path) -> None:
    write_tables(tmp_path / "data", "own.csv", "north.csv", "south.csv", "notes.csv")
    for args in (["data/[nos]o*.csv", "data/own.csv"], ["data/own.csv", "data/north.csv", "data/south.csv"]):
        told = bazaar("init", *args, cwd=tmp_path)
        assert told.code == 0, told
        path = tmp_path / "data/market.toml"
        market = load_market(path)
        assert {"north", "south"} <= {p.id for p in market.providers} and market.data.holdout == Path("own.csv")
        path.unlink()


def test_files_of_several_folders(tmp_path: Path) -> None:
    write_tables(tmp_path / "mine", "own.csv")
    write_tables(tmp_path / "theirs/a", "rows.csv")
    write_tables(tmp_path / "theirs/b", "rows.csv")
    assert bazaar("init", "mine", "theirs/a", "theirs/b", cwd=tmp_path).code == 0
    market = load_market(tmp_path / "market.toml")
    files = {"rows": "theirs/a/rows.csv", "rows-2": "theirs/b/rows.csv"}
    assert {p.id: p.file and p.file.as_posix() for p in market.providers} == files


def test_what_is_no_providers_table_is_left_out_and_said(tmp_path: Path) -> None:
    write_tables(tmp_path, "own.csv", "north.csv", "south.csv", "east.csv", x=[1.5, 2.5], z=[1, 2], fraud=[0, 1])
    write_tables(tmp_path, "new.csv", x=[1.5], z=[2])
    write_tables(tmp_path, "west.csv", x=[1.5], Z=[2], fraud=[1])
    write_tables(tmp_path, "airports.csv", code=["JFK"])
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "readme.txt").write_text("Three files came by mail.\n")
    told = bazaar("init", ".", cwd=tmp_path)
    assert told.code == 0, told
    assert "new.csv has all columns but 'fraud': predict that with `bazaar predict`" in told.out
    assert "airports.csv is left out: it has no column 'fraud'" in told.out
    assert "west.csv is left out: it has no column 'z' (did you mean 'Z'?)" in told.out
    assert "empty.csv' is left out" in told.out and "the file is empty" in told.out
    assert "readme.txt" in told.out
    assert {p.id for p in load_market(tmp_path / "market.toml").providers} == {"east", "north", "south"}


def test_a_column_that_most_providers_lack_is_left_out(tmp_path: Path) -> None:
    write_tables(tmp_path, "own.csv", x=[1.5, 2.5], mine=[1.0, 2.0], label=["a", "b"])
    write_tables(tmp_path, "north.csv", "south.csv", x=[1.5, 2.5], label=["a", "b"])
    assert "'mine' is left out of `features`: most providers do not have it" in bazaar("init", tmp_path).out
    assert load_market(tmp_path / "market.toml").data.features == ("x",)


def test_columns_that_cannot_be_used_are_left_out(tmp_path: Path) -> None:
    """Typing errors and identifiers; what remains is listed, on lines of a sensible length."""
    rows = 60
    columns: dict[str, list[object]] = {
        f"a feature of many words, number {i}": [i * k for k in range(rows)] for i in range(9)
    }
    columns |= {"amount": ["oops", *range(1, rows)], "customer": [f"c{k}" for k in range(rows)], "y": [0, 1] * 30}
    write_tables(tmp_path, "own.csv", "north.csv", **columns)
    told = bazaar("init", tmp_path)
    assert "'customer' is left out of `features`: it is different in every row" in told.out
    assert "'amount' is left out of `features`: column 'amount' holds the text 'oops'" in told.out
    market = load_market(tmp_path / "market.toml")
    assert market.data.features == tuple(name for name in columns if name.startswith("a feature"))
    lines = (tmp_path / "market.toml").read_text().splitlines()
    assert max(len(line) for line in lines if not line.startswith("#")) <= 120
    assert bazaar("check", tmp_path / "market.toml").code == 0


def test_nobody_sells(tmp_path: Path) -> None:
    write_tables(tmp_path, "own.csv", "test.csv")
    assert "no provider's table is found beside own.csv; there is no other table" in bazaar("init", tmp_path).complaint
    assert not (tmp_path / "market.toml").exists()


def test_the_template_is_written_where_there_is_no_table(tmp_path: Path) -> None:
    write_tables(tmp_path, "own.csv", "north.csv")
    (tmp_path / "empty").mkdir()
    for args in ([], ["empty"], ["new"]):
        assert bazaar("init", *args, cwd=tmp_path).code == 0
        assert (Path(tmp_path, *args) / "market.toml").read_text() == template()
    before = contents(tmp_path)
    assert "the file exists already" in bazaar("init", ".", cwd=tmp_path).complaint
    assert "there is no table" in bazaar("init", "*.parquet", cwd=tmp_path).complaint
    assert "does not exist" in bazaar("init", "new/own.csv", "--own", "new/own.csv", cwd=tmp_path / "empty").complaint
    assert "one folder" in bazaar("init", "a", "b", "--example", cwd=tmp_path).complaint
    assert contents(tmp_path) == before


def test_the_target_must_be_there_and_writable(tmp_path: Path) -> None:
    write_tables(tmp_path, "own.csv", "north.csv")
    told = bazaar("init", tmp_path, "--target", "yy").complaint
    assert "the target column 'yy' is missing; did you mean 'y'?" in told and "correct `--target`" in told
    other = write_tables(tmp_path / "other", "own.csv", "north.csv", **{"x": [1, 2], "a\x07b": [0, 1]})
    assert "rename it" in bazaar("init", other, "--target", "a\x07b").complaint
    assert bazaar("init", tmp_path, "--target", "x", "--task", "regression").code == 0
    market = load_market(tmp_path / "market.toml")
    assert (market.data.target, market.data.task) == ("x", "regression")


def test_names_that_toml_must_quote(tmp_path: Path) -> None:
    names = ['He said "x"', "back\\slash", "naïve, or not", "label"]
    columns = {name: [str(i % 7) if name != "id" else f"r{i}" for i in range(30)] for name in [*names, "id"]}
    for file in ("own.csv", 'no"rth.csv', "sü d.csv"):
        pd.DataFrame(columns).to_csv(tmp_path / file, index=False)
    assert bazaar("init", tmp_path).code == 0
    market = load_market(tmp_path / "market.toml")
    assert market.data.features == tuple(names[:3])
    assert {str(p.file) for p in market.providers} == {'no"rth.csv', "sü d.csv"}


def test_names_that_no_setting_holds(tmp_path: Path) -> None:
    frame = table(40, 0, "classification").assign(id=[f"r{i}" for i in range(40)]).rename(columns={"hour": "h\x07"})
    for file in ("own.csv", "north.csv", "so\x07uth.csv"):
        frame.to_csv(tmp_path / file, index=False)
    told = bazaar("init", tmp_path)
    assert told.code == 0 and "market.toml cannot hold such a name" in told.out
    market = load_market(tmp_path / "market.toml")
    assert market.data.features == ("amount", "channel") and [p.id for p in market.providers] == ["north"]


@pytest.mark.parametrize(
    ("columns", "target"),
    [
        ({"y": [0, 1], "x": [1, 2]}, "y"),
        ({"Target": [0, 1], "x": [1, 2]}, "Target"),
        ({"is_fraud": [0, 1], "x": [0, 1]}, "is_fraud"),
        ({"x": [0.5, 1.5], "kind": ["a", "b"]}, "kind"),
        ({"loan_default": [0, 1], "class": [0, 1]}, "class"),
    ],
)
def test_the_target_is_known_by_name_or_place(columns: dict[str, list[object]], target: str) -> None:
    assert guess_target(pd.DataFrame(columns), [list(columns)], "own.csv") == target


def test_a_target_is_what_new_rows_lack() -> None:
    frame = pd.DataFrame({"a": [0, 1], "b": [0, 1], "c": [0.1, 0.2]})
    assert guess_target(frame, [["a", "b", "c"], ["a", "c"]], "own.csv") == "b"


def test_an_unsure_target_is_asked_for(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [0, 1] * 20, "b": [1, 0] * 20, "c": range(40)})
    with pytest.raises(BazaarError, match="it may be 'a', 'b', 'c': say which with `--target NAME`"):
        guess_target(frame, [["a", "b", "c"]], "own.csv")
    assert guess_target(frame, [], "own.csv", lambda question, answers: answers[1]) == "b"
    picked = consumer_files([Path("a.csv"), Path("b.csv")], Wishes(ask=lambda question, answers: answers[1]))
    assert picked == (Path("b.csv"), None)
    with pytest.raises(BazaarError, match="it may be 'label', 'class'"):
        guess_target(pd.DataFrame({"label": [1], "class": [1]}), [], "own.csv")


@pytest.mark.process
def test_a_person_is_asked_on_a_terminal(tmp_path: Path) -> None:
    """A wrong answer is asked again; a number or a name is right."""
    write_tables(tmp_path, "a.csv", "b.csv", p=[0, 1] * 20, q=[1, 0] * 20, r=list(range(40)))
    terminal, other_end = pty.openpty()
    command = [sys.executable, "-m", "databazaar", "init", "."]
    with Forked(command, cwd=tmp_path, env=ENVIRONMENT, stdin=other_end, stdout=-1, stderr=other_end) as done:
        os.write(terminal, b"z\n2\nq\n")
        assert done.wait(60) == 0
    os.close(other_end)
    shown = os.read(terminal, 10_000).decode()
    os.close(terminal)
    assert "Which file is your own?" in shown and "'z' is none of them" in shown
    market = load_market(tmp_path / "market.toml")
    assert (str(market.data.holdout), market.data.target) == ("b.csv", "q")


def test_a_question_is_asked_until_it_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("0\nthree\n2\n"))
    assert ask("Which?", ["one", "two"]) == "two"
    monkeypatch.setattr(sys, "stdin", io.StringIO("one\n"))
    assert ask("Which?", ["one", "two"]) == "one"


@pytest.mark.parametrize(
    ("values", "task"),
    [
        ([0, 1, 1], "classification"),
        ([True, False], "classification"),
        (["yes", "no"], "classification"),
        ([0.5, 1.0], "regression"),
        (list(range(50)), "regression"),
        ([f"${i}.50" for i in range(50)], "regression"),
        ([1.0, 2.0, None], "classification"),
    ],
)
def test_the_task_is_guessed(values: list[object], task: str) -> None:
    assert guess_task(pd.Series(values)) == task


@pytest.mark.usefixtures("no_figures")
def test_regression_from_a_folder_runs(tmp_path: Path) -> None:
    for seed, name in enumerate(("holdout", "north", "south")):
        table(60, seed, "regression").to_csv(tmp_path / f"{name}.csv", index=False)
    assert bazaar("init", tmp_path).code == 0
    shorten(tmp_path / "market.toml")
    market = load_market(tmp_path / "market.toml")
    assert (market.data.task, market.model.kind) == ("regression", "auto")
    assert bazaar("run", tmp_path / "market.toml", "--out", tmp_path / "run", "-q").code == 0


def test_the_example_has_its_files(tmp_path: Path) -> None:
    assert "market.toml is written" in bazaar("init", "--example", tmp_path / "fraud").out
    assert len(load_market(tmp_path / "fraud" / "market.toml").providers) == 9
    two = bazaar("init", "--example", tmp_path / "one", tmp_path / "two")
    assert two.code == 2 and "one folder" in two.err


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=80), max_size=20))
def test_ids_are_unique_and_valid(names: list[str]) -> None:
    paths = [Path(name.replace("/", "_").replace("\x00", "_") + ".csv") for name in names]
    ids = provider_ids(paths)
    assert len(set(ids)) == len(ids) == len(paths) and all(id == id.casefold() for id in ids)
    providers = [{"id": id, "file": "rows.csv"} for id in ids] or [{"id": "one", "file": "rows.csv"}]
    parse_market({"market": {"budget": 100}, "data": {"holdout": "h.csv", "target": "y"}, "providers": providers})


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r\n")).filter(writable))
def test_toml_reads_back_what_is_quoted(text: str) -> None:
    assert tomllib.loads(f"name = {quoted(text)}") == {"name": text}


def test_every_kind_of_table_is_read(tmp_path: Path) -> None:
    frame = flights(5, 0)
    for suffix in SUFFIXES:
        path = tmp_path / f"rows{suffix}"
        if suffix == ".parquet":
            frame.to_parquet(path)
        else:
            frame.to_csv(path, index=False, sep="\t" if ".t" in suffix else ",")
        assert len(read_table(path).frame) == 5 and stem_of(path) == "rows"
    assert [path.name for path in tables_at([tmp_path])] == sorted(f"rows{suffix}" for suffix in SUFFIXES)


def test_a_name_that_says_test() -> None:
    assert is_test(Path("tests.csv")) and is_test(Path("bank-test-2.csv")) and not is_test(Path("contest.csv"))


def test_init_leaves_what_is_there_alone(tmp_path: Path) -> None:
    folder = write_flights(tmp_path / "flights")
    before = contents(folder)
    assert bazaar("init", folder).code == 0
    after = contents(folder)
    assert after.pop("market.toml") and after == before
    shutil.rmtree(folder)
