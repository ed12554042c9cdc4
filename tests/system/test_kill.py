"""`kill -9` at any moment, then `bazaar run`: the same model hash and ledger head as the run never stopped."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from databazaar.data.fraud import write_fraud_files
from databazaar.errors import BazaarError
from databazaar.runs.close import close_run
from databazaar.runs.folder import RunFolder
from processes import BAZAAR, Forked

pytestmark = [pytest.mark.slow, pytest.mark.process]
ROUNDS = 24
Moment = Callable[[], bool]


class Commands:
    """`bazaar` in real processes, one after the other, in one folder."""

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd
        self._log = cwd / "log.txt"

    def start(self, *args: str) -> Forked:
        with self._log.open("wb") as log:
            return Forked([BAZAAR, *args], cwd=self.cwd, stdout=log, stderr=log)

    def run(self, *args: str) -> str:
        """Runs a command to its end, which must be a good one; what it said."""
        assert self.start(*args).wait() == 0, self._log.read_text()
        return self._log.read_text()

    def stopped(self, moment: Moment, *args: str, by: signal.Signals = signal.SIGKILL) -> bool:
        """Starts a command and sends a signal when `moment` has come; whether that was before its end."""
        process = self.start(*args)
        while not moment():
            if process.poll() is not None:
                assert process.returncode == 0, self._log.read_text()
                return False
            time.sleep(0.0005)
        process.send_signal(by)
        self.code = process.wait()
        assert self.code in (0, 130, -by), self._log.read_text()
        return bool(self.code != 0)

    @contextmanager
    def paused(self, moment: Moment, *args: str) -> Iterator[None]:
        """Holds a command where it is when `moment` has come; it goes on to a good end after that."""
        process = self.start(*args)
        while not moment():
            time.sleep(0.0005)
        os.kill(process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(process.pid, signal.SIGCONT)
        assert process.wait() == 0, self._log.read_text()


def after(seconds: float) -> Moment:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def when_there(path: Path) -> Moment:
    """As soon as a file, or the draft of it, is there. What is there already does not count."""
    draft = path.with_name(path.name + ".partial")
    before = path.exists() or draft.exists()
    return lambda: not before and (path.exists() or draft.exists())


def when_written(path: Path, times: int) -> Moment:
    """As soon as a file has changed so often: the ledger's log changes at every commit."""
    seen: set[tuple[int, int]] = set()

    def come() -> bool:
        try:
            now = path.stat()
        except OSError:
            return False
        seen.add((now.st_mtime_ns, now.st_size))
        return len(seen) > times

    return come


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return Commands(tmp_path_factory.mktemp("kill"))


@pytest.fixture(scope="module")
def whole(commands: Commands) -> Path:
    """The run that was never stopped: the example's banks with few rows, and many short rounds."""
    market = write_fraud_files(commands.cwd)
    text = market.read_text()
    assert "budget = 1000 " in text
    market.write_text(text.replace("budget = 1000 ", f"budget = {5 * ROUNDS} "))
    for table in commands.cwd.glob("*.csv"):
        table.write_text("\n".join(table.read_text().splitlines()[:90]) + "\n")
    commands.run("run", "market.toml", "--out", "whole", "--quiet")
    return commands.cwd / "whole"


def outcome(run: Path) -> dict[str, Any]:
    """All that two runs of one market must share, to the last bit."""
    summary = json.loads((run / "summary.json").read_text())
    del summary["ledger_seal"], summary["settled"]  # over the file, which also holds the run's own random id; a date
    with sqlite3.connect(run / "ledger.sqlite") as database:
        entries = database.execute("SELECT seq, kind, body, hash FROM bazaar_entries ORDER BY seq").fetchall()
    database.close()
    models = {
        name: hashlib.sha256((run / name / "model.safetensors").read_bytes()).hexdigest()
        for name in ("model", "last")
        if (run / name).exists()
    }
    lines = [line.split(",")[:8] for line in (run / "statement.csv").read_text().splitlines()]  # what follows is a date
    worth = json.loads((run / "worth.json").read_text())
    return {"summary": summary, "models": models, "entries": entries, "csv": lines, "worth": worth}


def assert_same(run: Path, whole: Path) -> None:
    assert outcome(run) == outcome(whole)
    assert RunFolder(run).audit().ok
    stopped, never = (json.loads((path / "statement.json").read_text()) for path in (run, whole))
    own = dict.fromkeys(("run", "began", "settled"))
    assert {**stopped, **own} == {**never, **own} and all(stopped[name] for name in own)
    assert stopped["began"] == json.loads((run / "run.json").read_text())["began"]  # a resume repeats it
    assert sorted(path.name for path in run.iterdir()) == sorted(path.name for path in whole.iterdir())


def assert_sound(run: Path) -> None:
    """A ledger that was cut off anywhere is still a ledger."""
    try:
        found = RunFolder(run).audit()
    except BazaarError as early:
        assert "no ledger yet" in str(early)
    else:
        assert found.ok, found.message


def begin_or_resume(run: Path) -> tuple[str, ...]:
    if run.exists():
        return "run", run.name, "--quiet"
    return "run", "market.toml", "--out", run.name, "--quiet"


def test_killed_at_random_moments_and_resumed(commands: Commands, whole: Path) -> None:
    """By the clock, and by the ledger's log, until the run is through; then again, to eight kills in all."""
    rng = random.Random(20)
    (commands.cwd / ".killed-1.00000000.partial").mkdir()
    kills = 0
    for number in itertools.count(1):
        run = commands.cwd / f"killed-{number}"
        log = run / "ledger.sqlite-wal"
        finished = False
        while not finished:
            moment = rng.choice([after(rng.uniform(0.0, 0.6)), when_written(log, rng.randint(1, 14))])
            finished = not commands.stopped(moment, *begin_or_resume(run))
            kills += not finished
            if run.exists():
                assert_sound(run)
        assert_same(run, whole)
        if kills >= 8:
            break
    assert (commands.cwd / ".killed-1.00000000.partial").is_dir()


def test_killed_while_it_finishes(commands: Commands, whole: Path) -> None:
    """At each of the files that a run writes at its end, one after the other."""
    run = commands.cwd / "ending"
    kills = 0
    for name in ("run.json", "model/model.safetensors", "summary.json", "worth.json", "statement.csv"):
        if not (run / name).exists():  # the last kill may have come late, on a busy machine
            kills += commands.stopped(when_there(run / name), *begin_or_resume(run))
            assert_sound(run)
    assert kills >= 2
    commands.run("run", run.name, "--quiet")
    assert_same(run, whole)


def made(run: Path) -> list[tuple[str, str]]:
    """The tables and rules of a run's ledger."""
    with sqlite3.connect(run / "ledger.sqlite") as database:
        found = database.execute("SELECT type, sql FROM sqlite_master ORDER BY name").fetchall()
    database.close()
    assert any(kind == "trigger" for kind, _ in found)
    return found


def test_killed_before_the_first_entry(commands: Commands, whole: Path) -> None:
    """A run's folder comes with a ledger that already forbids changes; nothing was agreed yet."""
    run = commands.cwd / "empty"
    recipe = json.loads((whole / "run.json").read_text())
    RunFolder.create(run, {key: value for key, value in recipe.items() if key != "id"}, RunFolder(whole).profile())
    with pytest.raises(BazaarError, match="no ledger yet: `bazaar run"):
        RunFolder(run).audit()
    assert len(made(run)) > 2 and made(run) == made(whole)
    commands.run("run", run.name, "--quiet")
    assert_same(run, whole)


def test_a_killed_demo_is_resumed(commands: Commands) -> None:
    """In the run, while what it was worth is judged, and while the report is written."""
    commands.run("demo", "--budget", "30", "--out", "demo", "--quiet")
    run = commands.cwd / "demo-killed"
    moments: list[Callable[[], Moment]] = [
        lambda: when_there(run),
        lambda: when_written(run / "ledger.sqlite-wal", 4),
        lambda: when_there(run / "summary.json"),
        lambda: when_there(run / "worth.json"),
    ]
    kills = 0
    for moment in moments:
        args = ("run", run.name) if run.exists() else ("demo", "--budget", "30", "--out", run.name)
        kills += commands.stopped(moment(), *args, "--quiet")
    assert kills >= 2
    (run / "worth.json").unlink(missing_ok=True)
    commands.run("show", run.name, "report")  # the run is finished, and is reported without what it was worth
    told = json.loads(commands.run("run", run.name, "--json"))
    assert told["worth"] == json.loads((run / "worth.json").read_text())
    assert (run / "report.html").exists()
    assert_same(run, commands.cwd / "demo")


MLP = 'kind = "mlp"\nhidden = [16]'


@pytest.mark.parametrize(
    ("name", "model", "more"),
    [("in-run", MLP, '[learner]\nkind = "in-run"\n'), ("trees", 'kind = "trees"', "[learner]\nrate = 0.4\n")],
)
def test_a_killed_market_goes_on_with_its_learner(
    name: str, model: str, more: str, commands: Commands, whole: Path
) -> None:
    """The moments of AdamW, and all trees so far, are part of the snapshot: without them the model would be another."""
    text = (commands.cwd / "market.toml").read_text().replace('kind = "standard"', 'kind = "none"')
    assert MLP in text
    (commands.cwd / f"{name}.toml").write_text(f"{text.replace(MLP, model)}\n{more}")
    commands.run("run", f"{name}.toml", "--out", name, "--quiet")
    run, kills = commands.cwd / f"{name}-killed", 0
    for commits in (3, 4, 5):
        args = ("run", run.name) if run.exists() else ("run", f"{name}.toml", "--out", run.name)
        kills += commands.stopped(when_written(run / "ledger.sqlite-wal", commits), *args, "--quiet")
        assert_sound(run)
    assert kills >= 2
    commands.run("run", run.name, "--quiet")
    assert_same(run, commands.cwd / name)


def test_control_c_leaves_a_run_that_can_be_resumed(commands: Commands, whole: Path) -> None:
    run = commands.cwd / "interrupted"
    assert commands.stopped(when_written(run / "ledger.sqlite-wal", 5), *begin_or_resume(run), by=signal.SIGINT)
    assert commands.code == 130
    said = (commands.cwd / "log.txt").read_text().splitlines()
    assert len(said) == 1 and said[0].startswith("bazaar: interrupted")
    assert "`bazaar run interrupted`" in said[0] and "`bazaar close interrupted`" in said[0]
    assert_sound(run)
    commands.run("run", run.name, "--quiet")
    assert_same(run, whole)


@pytest.fixture
def without_tables(commands: Commands) -> Iterator[None]:
    tables = {table: table.read_bytes() for table in commands.cwd.glob("*.csv")}
    for table in tables:
        table.rename(table.with_suffix(".away"))
    yield
    for table, content in tables.items():
        table.write_bytes(content)


def test_killed_and_closed_it_pays_what_was_settled_without_the_data(
    commands: Commands, whole: Path, request: pytest.FixtureRequest
) -> None:
    """By `kill -9` in some round, and once more while it closes; the tables are gone by then."""
    runs = [commands.cwd / f"closed-{number}" for number in range(3)]
    for run, commits in zip(runs, (4, 8, 12), strict=True):
        assert commands.stopped(when_written(run / "ledger.sqlite-wal", commits), *begin_or_resume(run))
    request.getfixturevalue("without_tables")
    for run, moment in zip(runs, (after(0), when_there(runs[1] / "model/model.safetensors"), after(60)), strict=True):
        before = RunFolder(run).report()
        assert before.rounds and before.held
        if commands.stopped(moment, "close", run.name, "--quiet"):
            assert_sound(run)
            commands.run(*(("show", run.name, "report") if (run / "summary.json").exists() else ("close", run.name)))
        closed = RunFolder(run).report()
        assert closed.closed and closed.spent == before.spent and closed.refunded == closed.budget - closed.spent
        assert RunFolder(run).audit().ok
        files, judged = {path.name for path in run.iterdir()}, {"last", "worth.json"}  # without data nothing is judged
        assert files - {"last"} == {path.name for path in whole.iterdir()} - judged
        assert ("last" in files) == (closed.last_model_hash != closed.model_hash)


def test_a_run_that_another_process_plays_is_neither_closed_nor_played(commands: Commands, whole: Path) -> None:
    run = commands.cwd / "played"
    with commands.paused(when_written(run / "ledger.sqlite-wal", 3), *begin_or_resume(run)):
        with pytest.raises(BazaarError, match="another process is playing this run"):
            close_run(run)
        assert_sound(run)
    assert_same(run, whole)
