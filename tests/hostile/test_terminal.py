"""Names, labels and files of other people at the terminal: they are shown, and neither obeyed nor taken for markup."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli_markets import ENVIRONMENT, Outcome, bazaar
from hypothesis import given
from hypothesis import strategies as st

from databazaar import Arbiter, Consumer, Provider
from databazaar.cli.screen import OneLine, Screen
from databazaar.cli.statements import file_names
from databazaar.config.toml_text import quoted
from databazaar.money import Currency
from processes import BAZAAR, Forked
from small_markets import closeness

TITLE = "[/bad] :bomb: [link=http://evil]market[/link]"
IDS = ("[red]", "[bad", ":bomb: $x^2$ {task}", "=cmd()")
AMOUNT, HOUR, CHANNEL = "amount\x1b[2J", "hour\u202eruoh", "chan\rnel\u200b[/x]"
YES, NO = "yes\x1b]8;;http://evil\x1b\\", "no [/no]"
WEB, SHOP = "web\x1b[31m", "shop\nbazaar: forged"
FOLDER = "evil\x1b[2J\nbazaar: forged"


def table(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    amount, channel = rng.normal(size=rows), rng.choice([WEB, SHOP], rows)
    label = np.where(amount + 0.5 * (channel == WEB) > 0.2, YES, NO)
    return pd.DataFrame({AMOUNT: amount, HOUR: rng.integers(0, 24, rows), CHANNEL: channel, "target": label})


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a hostile name, in which everything that market.toml lets through has one too, and one run."""
    folder = tmp_path_factory.mktemp("terminal") / FOLDER
    folder.mkdir()
    table(80, 0).to_parquet(folder / "own.parquet")
    text = f"""
[market]
name = {quoted(TITLE)}
budget = 24
per_round = 3
currency = "[i]coins"

[consumer]
name = "[/] buyer"

[data]
holdout = "own.parquet"
target = "target"

[model]
kind = "logistic"
"""
    for place, id in enumerate(IDS, start=1):
        table(30, place).to_parquet(folder / f"bank{place}.parquet")
        text += f"\n[[providers]]\nid = {quoted(id)}\nfile = 'bank{place}.parquet'\nowner = '[bold]{place}'\n"
    (folder / "market.toml").write_text(text, encoding="utf-8")
    return folder


def assert_harmless(done: Outcome, code: int = 0, csv: bool = False) -> str:
    """Ends as expected, without a traceback, a character that a terminal obeys, or a line of somebody else's; only
    cells of CSV may have several lines."""
    assert done.code == code, done
    said = done.out + done.err
    assert all(character == "\n" or character.isprintable() for character in said), repr(said)
    assert "Traceback" not in said
    assert csv or not any(line.startswith("bazaar: forged") for line in said.splitlines()), said
    return said


def test_every_command_shows_names_and_obeys_none(market: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    said = assert_harmless(bazaar("check", "market.toml", cwd=market))
    for name in ("amount�[2J", "hour�ruoh", "chan�nel�[/x]", "yes�]8;;http://evil�\\", "no [/no]", *IDS):
        assert name in said, name
    said = assert_harmless(bazaar("quote", "market.toml", cwd=market))
    assert all(name in said for name in (*IDS, "[i]coins"))
    said = assert_harmless(bazaar("run", "market.toml", "--out", "run\x1b[2J", cwd=market))
    assert all(name in said for name in (*IDS, "[i]coins", TITLE[:19], "run�[2J"))
    run = market / "run\x1b[2J"
    for options in ([], ["--csv"]):
        said = assert_harmless(bazaar("show", run, "statement", *options))
        assert all(name in said for name in (*IDS, TITLE, "[/] buyer"))
    told = json.loads(assert_harmless(bazaar("show", run, "statement", "--json")))
    assert {line["provider"] for line in told["providers"]} == set(IDS)
    said = assert_harmless(bazaar("show", run, "statement", "--provider", "[nobody]\x1b[2J"), code=2)
    assert "[nobody]�[2J" in said and "[red]" in said
    assert_harmless(bazaar("audit", run))
    assert_harmless(bazaar("run", run))
    said = assert_harmless(bazaar("evaluate", run, market / "own.parquet", "--out", market / "quality"))
    assert "evil�[2J�bazaar: forged" in said
    said = assert_harmless(bazaar("predict", run, market / "own.parquet"))
    assert "yes�]8;;http://evil�\\" in said and "no [/no]" in said
    kept = market / "predictions.parquet"
    assert_harmless(bazaar("predict", run, market / "own.parquet", "--out", kept))
    assert set(pd.read_parquet(kept)["prediction"]) == {YES, NO}, "a file has the labels as they are"
    assert_harmless(bazaar("predict", run, market / "own.parquet", "--out", "x\x1b[2J.txt"), code=2)


def test_a_comparison_too(market: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    options = ("--methods", "uniform,loo", "--out", market / "compared")
    said = assert_harmless(bazaar("compare", "market.toml", *options, cwd=market))
    assert all(name in said for name in IDS)
    assert_harmless(bazaar("compare", "market.toml", "--methods", "[/x]\x1b[2J", cwd=market), code=2)


def test_files_with_hostile_names_become_a_market(tmp_path: Path) -> None:
    for place, name in enumerate(("own", "[red]", "b\x1b[2J", "c\nbazaar: forged")):
        table(30, place).to_parquet(tmp_path / f"{name}.parquet")
    said = assert_harmless(bazaar("init", ".", cwd=tmp_path))
    assert "1 providers" in said and "b\\x1b[2J" in said, "what market.toml cannot hold is left out, and said to be"
    assert_harmless(bazaar("check", "market.toml", cwd=tmp_path))


def test_a_ledger_with_hostile_words(tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07\nbazaar: forged \u202e"
    target = np.array([1.0, -1.0, 0.5])
    providers = [Provider(id, oracle=lambda w: target - w, owner=f"{id}{evil}") for id in (*IDS, "[/bad]")]
    consumer = Consumer(np.zeros(3), budget=12, per_round=3, utility=closeness(target), currency=Currency(evil, 2))
    Arbiter(consumer, providers, engine="loop", market=f"market{evil}", buyer=f"buyer{evil}").run(tmp_path / "run")
    for command in (["show", "run", "statement"], ["audit", "run"], ["show", "run", "report"]):
        assert_harmless(bazaar(*command, cwd=tmp_path))
    table = assert_harmless(bazaar("show", "run", "statement", "--csv", cwd=tmp_path), csv=True)
    assert len(pd.read_csv(io.StringIO(table))) == 5
    said = assert_harmless(bazaar("show", "run", "statement", "--out", "statements", cwd=tmp_path))
    assert said == "12 files in statements\n"
    for file in (*(tmp_path / "statements").glob("*.csv"), tmp_path / "run" / "report.html"):
        text = file.read_text(encoding="utf-8")
        assert all(character == "\n" or character.isprintable() for character in text), file


@given(st.lists(st.text(max_size=40), max_size=8))
def test_names_of_files_are_names_of_files(names: list[str]) -> None:
    hostile = ["../../x", "CON", "con", "nul.txt", "a" * 300, "A" * 300, "statement", "", ".", "..", "a/b", "a\\b"]
    made = file_names([*names, *hostile])
    assert len({name.casefold() for name in made} | {"statement"}) == len(made) + 1
    for name in made:
        assert 0 < len(name) <= 100 and name.isascii() and not set(name) & set('/\\:*?"<>|\0') and name[0] != "."
        assert name.split(".")[0].casefold() not in {"con", "nul", "prn", "aux", "com1", "lpt1"}


@given(st.text())
def test_a_screen_takes_any_text(text: str) -> None:
    for encoding in ("utf-8", "ascii"):
        below = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")
        Screen(below).write(text)
        below.seek(0)
        shown = below.read()
        assert len(shown) == len(text)
        assert all(character == "\n" or character.isprintable() for character in shown)
        if text.isprintable() and encoding == "utf-8":
            assert shown == text


def test_a_screen_is_the_stream_below_it_in_all_else() -> None:
    with Path(os.devnull).open("w", encoding="ascii") as below:
        screen = Screen(below)
        screen.flush()
        assert (screen.encoding, screen.errors) == ("ascii", "replace")
        assert (screen.fileno(), screen.isatty()) == (below.fileno(), below.isatty())


def test_a_screen_takes_no_bytes() -> None:
    with pytest.raises(TypeError):
        Screen(io.StringIO()).write(b"raw")  # type: ignore[arg-type]


def test_a_log_keeps_each_message_on_its_line() -> None:
    """A provider's log holds words of the market: a refusal names columns and classes that the market chose."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(OneLine("%(levelname)s %(message)s"))
    log = logging.Logger("provider")
    log.addHandler(handler)
    log.warning("round %d is refused: %s", 3, "class no\n2026 INFO connected\x1b[2J")
    assert written.getvalue() == "WARNING round 3 is refused: class no�2026 INFO connected�[2J\n"


@pytest.mark.process
def test_smileys_and_links_stay_letters_on_a_real_terminal(market: Path) -> None:
    """On a pseudo-terminal rich draws colours and moves the cursor; names bring neither."""
    import pty

    ours, theirs = pty.openpty()
    process = Forked(
        [BAZAAR, "quote", "market.toml"],
        cwd=market,
        env={**ENVIRONMENT, "TERM": "xterm"},
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError as end:  # how Linux says that nobody writes any more
            assert end.errno == errno.EIO
            break
        said += part
        if not part:
            break
    os.close(ours)
    assert process.wait(60) == 0
    text = said.decode()
    assert ":bomb: $x^2$" in text and "[red]" in text and "\x1b]8" not in text and "\x1b[31m" not in text


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES, errno.EMFILE])
def test_what_the_machine_refuses_is_one_sentence(
    number: int, market: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no part of the program has a word for it; here, the folder that an index of columns is read from."""

    def refuse(self: Path) -> bytes:
        raise OSError(number, os.strerror(number), str(self))

    monkeypatch.setattr("databazaar.data.tables.Path.stat", refuse)
    done = bazaar("init", "--example", tmp_path / "folder")
    assert os.strerror(number) in done.complaint and "Traceback" not in done.err


def test_a_fault_of_ours_still_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "x")

    monkeypatch.setattr("databazaar.config.check.read_settings", fail)
    with pytest.raises(FileNotFoundError):
        bazaar("check", tmp_path / "market.toml")


@pytest.mark.process
def test_ctrl_c_while_the_program_loads_is_one_sentence() -> None:
    """The signal comes with the first import of the commands, before there is anything to say it."""
    code = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from databazaar.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "bazaar: interrupted\n")
