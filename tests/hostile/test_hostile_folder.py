"""A run's folder from somebody else: nothing it links to is written, no pipe waited for, no database dialled."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import shutil
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_markets import Outcome, bazaar, contents
from matplotlib.figure import Figure

from databazaar.errors import BazaarError
from databazaar.files import open_plain, read_plain, write_whole
from databazaar.reports.figures import save_png
from databazaar.runs.folder import RunFolder
from hostile_folders import at_most, change_json


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """Files of whoever was given the folder."""
    home = tmp_path / "victim"
    home.mkdir()
    for name in ("precious.txt", "learning.png", "model.safetensors", "statement.csv"):
        (home / name).write_text("mine")
    with sqlite3.connect(home / "precious.sqlite") as database:
        database.execute("CREATE TABLE diary (day TEXT)")
    database.close()
    return home


def one_sentence(outcome: Outcome) -> str:
    """What was said by a command that ended in one sentence, whatever it was."""
    said = (outcome.out + outcome.err).strip()
    assert outcome.code in (0, 1, 2, 3) and "Traceback" not in said and len(said.splitlines()) == 1, outcome
    return said


def plant_link(at: Path, target: Path) -> None:
    if at.is_dir() and not at.is_symlink():
        shutil.rmtree(at)
    at.unlink(missing_ok=True)
    at.parent.mkdir(exist_ok=True)
    at.symlink_to(target)


LINKS = ["report.html", "report.html.partial", "statement.csv", "statement.json.partial", "figures/learning.png"]
READING = (("audit",), ("show",), ("show", "report"), ("show", "statement"))
WRITING = (("run", "--quiet"), ("close", "--quiet"))
"""Commands: the run's folder comes after the first word."""


def test_a_report_replaces_links_and_leaves_alone_what_they_lead_to(
    finished: Path, victim: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    for name in LINKS:
        plant_link(run / name, victim / "precious.txt")
    (run / "statement.json").unlink()
    os.link(victim / "statement.csv", run / "statement.json")
    before = contents(victim)
    assert bazaar("show", run, "report").code == 0
    assert contents(victim) == before
    assert not any((run / name).is_symlink() for name in LINKS if not name.endswith(".partial"))


@pytest.mark.parametrize("command", [("show", "report"), *WRITING], ids=" ".join)
def test_a_folder_that_is_a_link_is_not_written_into(
    finished: Path, stopped: Path, victim: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """`figures` of a report, `model` of what run and close leave."""
    run = Path(shutil.copytree(finished if command[0] == "show" else stopped, tmp_path / "run"))
    plant_link(run / ("figures" if command[0] == "show" else "model"), victim)
    before = contents(victim)
    done = bazaar(command[0], run, *command[1:])
    assert done.code == 2 and "is a link or no folder: put a folder in its place" in one_sentence(done)
    assert contents(victim) == before


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("command", ["run", "close", "audit"])
def test_a_ledger_that_is_somebody_elses_database_is_not_written(
    stopped: Path, victim: Path, tmp_path: Path, command: str, hard: bool
) -> None:
    run = Path(shutil.copytree(stopped, tmp_path / "run"))
    for path in run.glob("ledger.sqlite*"):
        path.unlink()
    place = os.link if hard else os.symlink
    place(victim / "precious.sqlite", run / "ledger.sqlite")
    before = contents(victim)
    one_sentence(bazaar(command, run))
    assert contents(victim) == before


@pytest.mark.parametrize("command", [*READING, *WRITING], ids=" ".join)
def test_a_journal_that_names_a_file_elsewhere_does_not_remove_it(
    finished: Path, stopped: Path, victim: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """SQLite removes the file that a journal of several databases names, once it has undone what the journal says."""
    run = Path(shutil.copytree(stopped if command in WRITING else finished, tmp_path / "run"))
    ledger, magic = (run / "ledger.sqlite").read_bytes(), bytes.fromhex("d9d505f920a163d7")
    page = int.from_bytes(ledger[16:18])
    name = str(victim / "precious.txt").encode()
    numbers = [0, 1, len(ledger) // page, 512, page]
    head = magic + b"".join(number.to_bytes(4) for number in numbers)
    tail = bytes(4) + name + len(name).to_bytes(4) + sum(name).to_bytes(4) + magic
    (run / "ledger.sqlite-journal").write_bytes(head.ljust(512, b"\0") + tail)
    (run / "ledger.sqlite-wal").unlink(missing_ok=True)
    before = contents(victim)
    done = bazaar(command[0], run, *command[1:])
    assert contents(victim) == before
    assert done.code == 1 and "names a file elsewhere" in one_sentence(done)


@pytest.mark.parametrize(
    "name", ["run.json", "summary.json", "privacy.json", "worth.json", "profile.json", "begun.json"]
)
@pytest.mark.parametrize("kind", ["pipe", "link", "endless"])
def test_what_is_no_plain_file_is_refused_at_once(
    finished: Path, victim: Path, tmp_path: Path, name: str, kind: str
) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    (run / name).unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(run / name)
    else:
        (run / name).symlink_to("/dev/zero" if kind == "endless" else victim / "precious.txt")
    if name == "begun.json":
        (run / "summary.json").unlink()
    with at_most(20):
        assert "is no plain file but a link, a pipe or the like" in one_sentence(bazaar("show", run, "statement"))


@pytest.mark.parametrize("name", ["model/model.safetensors", "model/model.json", "model/schema.json", "ledger.sqlite"])
def test_a_pipe_in_the_place_of_the_model_or_the_ledger_is_refused_at_once(
    finished: Path, tmp_path: Path, name: str
) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    (run / name).unlink()
    os.mkfifo(run / name)
    with at_most(20):
        if name != "model/model.json":  # of which the audit makes nothing
            audited = bazaar("audit", run)
            assert audited.code in (1, 2) and one_sentence(audited)
        if name != "ledger.sqlite":  # of which predictions make nothing
            done = bazaar("predict", run, finished.parent / "market" / "holdout.csv")
            assert done.code == 2 and "is no plain file" in one_sentence(done)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


def connected(server: socket.socket) -> bool:
    try:
        server.accept()[0].close()
        return True
    except BlockingIOError:
        return False


@pytest.mark.parametrize("command", [*READING, *WRITING], ids=" ".join)
@pytest.mark.process
def test_no_command_connects_to_a_database_that_only_the_folder_names(
    finished: Path, tmp_path: Path, server: socket.socket, command: tuple[str, ...]
) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    port = server.getsockname()[1]
    change_json(run / "run.json", ledger_url=f"postgresql+psycopg://ann:secret@127.0.0.1:{port}/db")
    with at_most(20):
        said = bazaar(command[0], run, *command[1:]).complaint
    assert not connected(server)
    assert "--ledger" in said and "DATABAZAAR_LEDGER_URL" in said and "secret" not in said
    assert f"postgresql+psycopg://ann@127.0.0.1:{port}/db" in said


@pytest.mark.process
def test_where_the_user_names_the_database_it_is_asked_and_its_silence_says_nothing_of_the_run(
    finished: Path, tmp_path: Path, server: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    url = f"postgresql+psycopg://ann@127.0.0.1:{server.getsockname()[1]}/db?connect_timeout=2"
    change_json(run / "run.json", ledger_url=url)
    audited = bazaar("audit", run, "--ledger", url)
    assert connected(server) and audited.code == 3, audited
    assert "bazaar: the ledger's database cannot be reached" in one_sentence(audited)
    monkeypatch.setenv("DATABAZAAR_LEDGER_URL", url)
    told = bazaar("audit", run, "--json")
    assert connected(server) and told.code == 3 and json.loads(told.out)["ok"] is None
    assert bazaar("audit", finished).code == 0  # its ledger is in its folder, whatever the environment says
    assert "is a file in that folder: leave --ledger out" in bazaar("audit", finished, "--ledger", url).complaint


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:////tmp/ledger.db"])
def test_a_ledger_that_would_vanish_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(BazaarError, match="names SQLite, whose file every run has in its own folder"):
        RunFolder.create(tmp_path / "run", {"ledger_url": url})
    assert not (tmp_path / "run").exists()
    with pytest.raises(BazaarError, match=r"URL cannot be read: write it as postgresql\+psycopg"):
        RunFolder.create(tmp_path / "run", {"ledger_url": "postgresql://host:port/db"})


def test_an_evaluation_is_not_written_through_a_link(finished: Path, victim: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    (run / "evaluation").symlink_to(victim)
    before = contents(victim)
    done = bazaar("evaluate", run, finished.parent / "market" / "holdout.csv")
    assert done.code == 2 and "evaluation is a link or no folder" in one_sentence(done)
    assert contents(victim) == before


def test_a_page_elsewhere_leaves_the_folder_as_it_is_and_a_full_disk_gets_a_sentence(
    finished: Path, tmp_path: Path
) -> None:
    before = contents(finished)
    assert bazaar("show", finished, "report", "--out", tmp_path / "page.html").code == 0
    assert contents(finished) == before and (tmp_path / "page.html").exists()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(BazaarError, match=r"pay.png cannot be written \(File too large\): choose another place"):
            save_png({"pay": Figure()}, finished / "figures", finished)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert contents(finished) == before


def test_a_recipe_is_its_owners_alone_and_keeps_no_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql+psycopg://ann:secret@host/db?sslpassword=secret&sslmode=require"
    monkeypatch.setattr("databazaar.runs.folder.SqlStore", lambda url, run, **_: _Nothing())
    recipe = {"ledger_url": url, "market": {"ledger": {"url": url}, "market": {}}}
    made = RunFolder.create(tmp_path / "run", recipe)
    assert (tmp_path / "run" / "run.json").stat().st_mode & 0o777 == 0o600
    assert "secret" not in (tmp_path / "run" / "run.json").read_text()
    assert made.database == url and made.recipe["ledger_url"] == made.recipe["market"]["ledger"]["url"]
    with pytest.raises(BazaarError, match="give its URL with --ledger"):
        RunFolder(tmp_path / "run").store()


class _Nothing:
    """A database that is not there."""

    def hold(self) -> None:
        pass

    def entries(self) -> Iterator[object]:
        return iter(())

    def dispose(self) -> None:
        pass


def test_leftovers_of_a_killed_start_go_with_the_next_one_of_that_name(tmp_path: Path) -> None:
    left, other = tmp_path / ".run.0123456789abcdef.partial", tmp_path / ".run-2.0123456789abcdef.partial"
    held = tmp_path / ".run.fedcba9876543210.partial"
    for folder in (left, other, held):
        folder.mkdir()
        (folder / "run.json").write_text("{}")
    descriptor = os.open(held, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    RunFolder.create(tmp_path / "run")
    os.close(descriptor)
    assert not left.exists() and other.exists() and held.exists()


def test_drafts_of_a_killed_writer_go_with_the_next_one(tmp_path: Path) -> None:
    (tmp_path / ".a.json.0123456789abcdef.partial").write_text("half")
    (tmp_path / ".b.json.0123456789abcdef.partial").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "mine.partial").write_text("mine")
    write_whole(tmp_path / "a.json", b"{}")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".b.json.0123456789abcdef.partial",
        "a.json",
        "mine.partial",
    ]


def test_a_plain_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_plain(tmp_path / "file", tmp_path, most=5) == b"12345"
    with pytest.raises(BazaarError, match="has more than 4 bytes"):
        read_plain(tmp_path / "file", tmp_path, most=4)
    with pytest.raises(BazaarError, match="is no plain file"):
        open_plain(tmp_path, tmp_path.parent)
