"""Bad input: exit code 2, one sentence with the file, the field and the remedy, and nothing half-written."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_markets import bazaar, contents, edit, executable, write_market

from databazaar.ledger.sql import SqlStore

Spoil = Callable[[Path], object]
pytestmark = pytest.mark.usefixtures("no_figures_here")


def setting(old: str, new: str) -> Spoil:
    return lambda folder: edit(folder / "market.toml", old, new)


def rows(name: str, change: Callable[[list[str]], list[str]]) -> Spoil:
    """Changes a provider's file line by line; the header is line 0."""

    def spoil(folder: Path) -> None:
        path = folder / name
        path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")

    return spoil


def cell(name: str, column: int, value: str) -> Spoil:
    """Puts a value into the first data row."""

    def change(lines: list[str]) -> list[str]:
        cells = lines[1].split(",")
        cells[column] = value
        return [lines[0], ",".join(cells), *lines[2:]]

    return rows(name, change)


def column(name: str, old: str, new: str) -> Spoil:
    return rows(name, lambda lines: [lines[0].replace(old, new), *lines[1:]])


def remove(name: str) -> Spoil:
    return lambda folder: (folder / name).unlink()


def both(*spoils: Spoil) -> Spoil:
    def spoil(folder: Path) -> None:
        for one in spoils:
            one(folder)

    return spoil


REFUSED: dict[str, tuple[Spoil, tuple[str, ...]]] = {
    "no market": (remove("market.toml"), ("market.toml: the file does not exist", "bazaar init")),
    "market is a folder": (
        both(remove("market.toml"), lambda folder: (folder / "market.toml").mkdir()),
        ("market.toml is not a run's folder: give the folder",),
    ),
    "wrong TOML": (setting("per_round = 4", "per_round = "), ("market.toml: the file is not valid TOML", "line 5")),
    "unknown setting": (setting("per_round", "per_rund"), ("market.toml: market.per_rund", "per_round")),
    "unknown section": (setting("[engine]", "[motor]"), ("market.toml: ", "motor")),
    "no providers": (
        lambda folder: (folder / "market.toml").write_text(
            (folder / "market.toml").read_text().split("[[providers]]")[0]
        ),
        ("market.toml: providers", "[[providers]]"),
    ),
    "two of one id": (setting('"south"', '"north"'), ("market.toml: providers[1].id = 'north'", "its own id")),
    "no hold-out": (remove("holdout.csv"), ("holdout.csv: the file does not exist", "correct the path")),
    "no provider file": (remove("north.csv"), ("'north'", "north.csv: the file does not exist", "correct the path")),
    "provider file is a folder": (
        both(remove("north.csv"), lambda folder: (folder / "north.csv").mkdir()),
        ("'north'", "north.csv: the folder has no class folders with images", "give a folder for each class"),
    ),
    "unknown file type": (setting('"north.csv"', '"north.xlsx"'), ("north.xlsx", "'.xlsx'", ".parquet")),
    "no Parquet inside": (
        both(setting('"north.csv"', '"north.parquet"'), lambda folder: (folder / "north.parquet").write_text("no")),
        ("north.parquet: the file cannot be read as .parquet", "save it again"),
    ),
    "a line that is too long": (
        rows("north.csv", lambda lines: [*lines[:2], lines[2].rstrip() + ",7", *lines[3:]]),
        ("'north'", "north.csv: the file cannot be read as .csv (line 3 has ", "fields, and the lines before it"),
    ),
    "lines that are all too long": (
        rows("north.csv", lambda lines: [lines[0], *(line.rstrip() + ",7" for line in lines[1:])]),
        ("'north'", "north.csv", "(its lines have more fields than its header)"),
    ),
    "unknown target": (setting('target = "target"', 'target = "targt"'), ("holdout.csv", "'targt'", "'target'?")),
    "unknown feature": (
        setting('target = "target"', 'target = "target"\nfeatures = ["amuont"]'),
        ("holdout.csv: `features`", "did you mean 'amount'?"),
    ),
    "provider without rows": (
        rows("north.csv", lambda lines: lines[:1]),
        ("'north'", "north.csv: the file has the columns 'amount'", "no rows", "add data"),
    ),
    "empty provider file": (
        lambda folder: (folder / "north.csv").write_bytes(b""),
        ("'north'", "north.csv: the file is empty", "write a header line"),
    ),
    "provider lacks a column": (
        column("north.csv", "hour", "minute"),
        ("'north'", "north.csv: the feature column 'hour'", "add or rename"),
    ),
    "one class": (
        rows("holdout.csv", lambda lines: [lines[0], *(line[:-1] + "yes" for line in lines[1:])]),
        ("holdout.csv: column 'target' has the single class yes", "add hold-out rows"),
    ),
    "text target of a provider": (
        cell("north.csv", 3, "fraud"),
        ("'north'", "north.csv: column 'target' has the class fraud in data row 1", "correct the label"),
    ),
    "class that the hold-out lacks": (
        cell("north.csv", 3, "7"),
        ("'north'", "north.csv: column 'target' has the class 7 in data row 1", "correct the label"),
    ),
    "infinite number": (
        cell("north.csv", 0, "inf"),
        ("'north'", "north.csv: column 'amount' is not a finite number in data row 1", "drop the row"),
    ),
    "no targets": (
        rows("north.csv", lambda lines: [lines[0], *(line[:-1] for line in lines[1:])]),
        ("'north'", "north.csv: the target column 'target' is empty in every row", "fill it in"),
    ),
    "infinite hold-out": (
        cell("holdout.csv", 0, "-inf"),
        ("holdout.csv: column 'amount' is not a finite number in data row 1", "drop the row"),
    ),
    "text among numbers": (
        cell("holdout.csv", 0, "12,5".replace(",", "o")),
        ("holdout.csv: column 'amount' holds the text '12o5'", "list it as `missing`"),
    ),
    "budget under K": (
        setting('"30.00"', '"1.99"'),
        ("market.toml: market.budget = 1.99 EUR", "per_round = 4", "raise budget to at least 2.00 EUR"),
    ),
    "budget with too many decimals": (setting('"30.00"', '"30.001"'), ("market.toml: market.budget", "2 decimals")),
    "budget as a float": (setting('"30.00"', "30.5"), ("market.toml: market.budget", 'text such as "12.50"')),
    "negative price": (setting('"1.25"', '"-1.25"'), ("market.toml: providers[1].price", "zero or more")),
    "seed under 0": (setting("seed = 3", "seed = -1"), ("market.toml: market.seed = -1", "at least 0")),
    "step not a number": (
        setting("[engine]", "[training]\nstep = nan\n\n[engine]"),
        ("market.toml: training.step", "finite"),
    ),
    "a figure of a rule": (
        setting('kind = "osmd"', 'kind = "osmd"\nalpha = 0.2'),
        ("market.toml: sampler.alpha is set from Python alone, as OSMD(alpha=…)", "remove it"),
    ),
    "model for another task": (
        setting('kind = "logistic"', 'kind = "linear"'),
        ('market.toml: model.kind = "linear"', '"logistic"'),
    ),
    "unknown device": (setting('device = "cpu"', 'device = "gpu"'), ("market.toml: engine.device", "cuda")),
    "device that is not here": (setting('device = "cpu"', 'device = "cuda:99"'), ("device 'cuda:99'", "use auto, cpu")),
    "federated": (setting('device = "cpu"', 'kind = "federated"'), ("engine.kind", "[federation]")),
    "image of another size": (
        both(setting('kind = "logistic"', 'kind = "cnn"\nimage = [1, 4, 4]')),
        ("holdout.csv: model.image = [1, 4, 4]", "product"),
    ),
    "ledger without a driver": (
        setting("[engine]", '[ledger]\nurl = "nodatabase://x"\n[engine]'),
        ("ledger", "check its URL"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_run_refuses_with_one_sentence_and_writes_nothing(tmp_path: Path, case: str) -> None:
    spoil, words = REFUSED[case]
    write_market(tmp_path)
    spoil(tmp_path)
    before = contents(tmp_path)
    complaint = bazaar("run", "market.toml", cwd=tmp_path).complaint
    for word in words:
        assert word in complaint
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--engine", "warp"), ("engine.kind", "warp", "loop")),
        (("--device", "abacus"), ("engine.device", "abacus")),
        (("--out", "market.toml"), ("market.toml exists already", "--out")),
        (("--out", "."), ("exists already", "--out")),
        (("--out", "market.toml/run"), ("market.toml/run cannot be made", "--out")),
        (("--out", "/proc/run"), ("/proc/run cannot be made", "--out")),
        (("--out", "x" * 300), ("cannot be made", "--out")),
    ],
)
def test_run_refuses_options(tmp_path: Path, args: tuple[str, ...], words: tuple[str, ...]) -> None:
    write_market(tmp_path)
    before = contents(tmp_path)
    complaint = bazaar("run", "market.toml", *args, cwd=tmp_path).complaint
    for word in words:
        assert word in complaint
    assert contents(tmp_path) == before


@pytest.mark.parametrize("out", ["market.toml", "market.toml/run", "/proc/run"])
def test_demo_refuses_a_place_that_cannot_be_written(tmp_path: Path, out: str) -> None:
    (tmp_path / "market.toml").touch()
    before = contents(tmp_path)
    assert "--out" in bazaar("demo", "--budget", "5", "--out", out, cwd=tmp_path).complaint
    assert contents(tmp_path) == before


@pytest.mark.parametrize("example", [(), ("--example",)])
@pytest.mark.parametrize("place", ["file", "file/folder", "/proc/new"])
def test_init_refuses_a_place_that_cannot_be_written(tmp_path: Path, place: str, example: tuple[str, ...]) -> None:
    (tmp_path / "file").touch()
    assert place in bazaar("init", place, *example, cwd=tmp_path).complaint
    assert contents(tmp_path).keys() == {"file"}


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a market and its finished run in run/; tests only read it."""
    folder = tmp_path_factory.mktemp("settled")
    write_market(folder, budget='"8.00"')
    assert bazaar("run", "market.toml", "--out", "run", "--quiet", cwd=folder).code == 0
    return folder


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("show", "run", "statement", "--provider", "nrth"), ("--provider nrth", "north, south")),
        (("show", "run", "statement", "--json", "--csv"), ("--json and --csv", "give one")),
        (("show", "run", "statement", "--out", "market.toml"), ("market.toml", "--out")),
        (("show", "run", "statement", "--out", "market.toml/x"), ("market.toml/x/statement.csv", "choose another")),
        (("show", "run", "report", "--out", "market.toml/page.html"), ("market.toml/page.html", "choose another")),
        (("show", "run", "report", "--out", "run"), ("run cannot be written", "choose another")),
        *(((command, "nowhere"), ("nowhere is not a run's folder", "bazaar run")) for command in ("show", "audit")),
        *(((command, "."), ("is not a run's folder", "bazaar run")) for command in ("run", "show", "audit")),
        (("show", "run", "--csv"), ("the outcome has no --csv", "statement")),
        (("show", "run", "report", "--json"), ("the report has no --json", "omit it")),
        (("run", "run", "--seed", "3"), ("run is a run's folder", "omit --seed")),
        (("run", "run", "--out", "other"), ("run is a run's folder", "omit --out")),
        (("run", "market.toml", "--out", "run"), ("run exists already", "--out")),
        (("audit", "run", "run"), ("one run is audited at a time", "--key")),
        (("audit", "run", "--journal", "lines"), ("--journal belongs to receipts", "--key")),
        (("audit", "run", "--key", "key", "--json"), ("--key checks receipts", "omit")),
        (("show", "market.toml"), ("market.toml is not a run's folder", "bazaar run")),
    ],
    ids=" ".join,
)
def test_what_reads_a_run_refuses_with_one_sentence(
    settled: Path, args: tuple[str, ...], words: tuple[str, ...]
) -> None:
    before = contents(settled)
    complaint = bazaar(*args, cwd=settled).complaint
    for word in words:
        assert word in complaint
    assert contents(settled) == before


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"id": "x"}', '{"id": "x", "job": "market"}', "\x00\xff"])
@pytest.mark.parametrize("command", ["run RUN", "show RUN", "show RUN report", "show RUN statement", "audit RUN"])
def test_a_damaged_recipe_gets_a_sentence(tmp_path: Path, command: str, text: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(text, encoding="latin-1")
    assert "run" in bazaar(*command.replace("RUN", "run").split(), cwd=tmp_path).complaint
    assert contents(tmp_path).keys() == {"run", "run/run.json"}


@pytest.fixture
def unfinished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a market and, in run/, a run that a failure stopped after three rounds."""
    write_market(tmp_path)
    append, count = SqlStore.append, 0

    class PowerCutError(Exception):
        pass

    def failing(self: SqlStore, entries: object, snapshot: object) -> None:
        nonlocal count
        count += 1
        if count > 5:
            raise PowerCutError
        append(self, entries, snapshot)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(SqlStore, "append", failing)
        with pytest.raises(PowerCutError):
            bazaar("run", "market.toml", "--out", "run", "--quiet", cwd=tmp_path)
    return tmp_path


def test_an_unfinished_run_has_a_report_that_says_so(unfinished: Path) -> None:
    done = bazaar("show", "run", "report", cwd=unfinished)
    assert (done.code, done.out) == (0, "run/report.html\n")
    page = (unfinished / "run" / "report.html").read_text(encoding="utf-8")
    assert "not finished" in page and "nothing here is final until the run is resumed to its end, or closed" in page
    assert json.loads(bazaar("audit", "run", "--json", cwd=unfinished).out)["rounds"] == 3


def test_an_unfinished_run_has_a_statement_that_says_so(unfinished: Path) -> None:
    done = bazaar("show", "run", "statement", cwd=unfinished)
    assert (done.code, done.out.splitlines()[-1]) == (0, "this run is not finished: nothing in this statement is final")
    for way in (["--csv"], ["--provider", "north", "--csv"], ["--out", "statements"]):
        assert "nothing in this statement is final" in bazaar("show", "run", "statement", *way, cwd=unfinished).err, way
    stated = json.loads(bazaar("show", "run", "statement", "--json", cwd=unfinished).out)
    assert (stated["status"], stated["closed"]) == ("open", False)
    assert sum(line["pay"] for line in stated["providers"]) == stated["spent"]
    assert stated["spent"] + stated["held"] <= stated["budget"]


def test_an_unfinished_run_can_be_audited_and_resumed(unfinished: Path) -> None:
    found = json.loads(bazaar("audit", "run", "--json", cwd=unfinished).out)
    assert found["ok"] and not found["closed"] and found["rounds"] == 3
    done = bazaar("run", "run", "--quiet", cwd=unfinished)
    assert (done.code, done.out, done.err) == (0, "run/report.html\n", "")
    assert json.loads(bazaar("audit", "run", "--json", cwd=unfinished).out)["closed"]


def test_the_market_of_an_unfinished_run_continues_it_and_another_is_refused(unfinished: Path) -> None:
    kept = contents(unfinished)
    for other in (("--seed", "5"), ("--ledger", "postgresql+psycopg://ann@127.0.0.1:1/db")):
        complaint = bazaar("run", "market.toml", "--out", "run", *other, cwd=unfinished).complaint
        assert "run" in complaint and ("--out" in complaint or "leave --ledger out" in complaint), complaint
    edit(unfinished / "market.toml", 'name = "', 'name = "Another ')
    complaint = bazaar("run", "market.toml", "--out", "run", cwd=unfinished).complaint
    assert "run holds an unfinished run of another market" in complaint and "`bazaar run run` goes on" in complaint
    edit(unfinished / "market.toml", 'name = "Another ', 'name = "')
    assert contents(unfinished) == kept
    assert bazaar("run", "market.toml", "--out", "run", "--quiet", cwd=unfinished).out == "run/report.html\n"
    continued = json.loads(bazaar("show", "run", "--json", cwd=unfinished).out)
    assert bazaar("run", "market.toml", "--out", "unbroken", "--quiet", cwd=unfinished).code == 0
    unbroken = json.loads(bazaar("show", "unbroken", "--json", cwd=unfinished).out)
    assert continued["model_hash"] == unbroken["model_hash"]


def other_data(folder: Path) -> None:
    """Another table, and its digest in run.json: only the chain knows better."""
    before = hashlib.sha256((folder / "south.csv").read_bytes()).hexdigest()
    cell("south.csv", 0, "1.5")(folder)
    edit(folder / "run/run.json", before, hashlib.sha256((folder / "south.csv").read_bytes()).hexdigest())


def test_a_rewritten_digest_is_found_by_the_audit_of_any_run(unfinished: Path) -> None:
    assert bazaar("audit", "run", cwd=unfinished).code == 0
    shutil.copytree(unfinished / "run", unfinished / "kept")
    other_data(unfinished)
    told = bazaar("audit", "run", cwd=unfinished)
    assert told.code == 1 and "run.json tells of another market, consumer or data" in told.out
    shutil.rmtree(unfinished / "run")
    (unfinished / "kept").rename(unfinished / "run")
    assert bazaar("close", "run", "--quiet", cwd=unfinished).code == 0
    edit(unfinished / "run/run.json", '"title": "Small market"', '"title": "Large market"')
    assert bazaar("audit", "run", cwd=unfinished).code == 1
    assert "because the audit fails" in bazaar("show", "run", "statement", cwd=unfinished).err


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (cell("south.csv", 0, "1.5"), ("south.csv has changed", "put the old file back")),
        (cell("holdout.csv", 0, "1.5"), ("holdout.csv has changed", "put the old file back")),
        (remove("north.csv"), ("north.csv: the file does not exist",)),
        (lambda folder: edit(folder / "run/run.json", '"budget": "30.00"', '"budget": "90.00"'), ("terms",)),
        (lambda folder: edit(folder / "run/run.json", '"scale": 1', '"scale": 2'), ("run.json",)),
        (other_data, ("begun with other terms", "data")),
    ],
    ids=["provider", "hold-out", "missing", "budget", "schema", "digest"],
)
def test_resume_refuses_other_data_or_terms(unfinished: Path, spoil: Spoil, words: tuple[str, ...]) -> None:
    spoil(unfinished)
    before = bazaar("audit", "run", "--json", cwd=unfinished)
    complaint = bazaar("run", "run", "--quiet", cwd=unfinished).complaint
    for word in words:
        assert word in complaint
    assert bazaar("audit", "run", "--json", cwd=unfinished) == before
    assert not (unfinished / "run/summary.json").exists()


def test_resume_finds_a_changed_market_file_harmless(unfinished: Path) -> None:
    """What was agreed is kept in the run's folder: market.toml may go on to describe the next market."""
    edit(unfinished / "market.toml", '"30.00"', '"90.00"')
    assert bazaar("run", "run", "--quiet", cwd=unfinished).code == 0
    assert json.loads((unfinished / "run/summary.json").read_text())["budget"] == 3000


@pytest.mark.parametrize("args", [("run",), ("run", "market.toml", "--sed", "1"), ("demo", "--budget", "4"), ("fly",)])
def test_wrong_usage_exits_with_2_and_no_traceback(tmp_path: Path, args: tuple[str, ...]) -> None:
    told = bazaar(*args, cwd=tmp_path)
    assert told.code == 2 and told.out == "" and "Traceback" not in told.err
    assert contents(tmp_path) == {}


@pytest.mark.process
def test_the_real_executable_refuses_the_same_way(tmp_path: Path) -> None:
    assert "market.toml: the file does not exist" in executable("run", "market.toml", cwd=tmp_path).complaint
    assert contents(tmp_path) == {}
