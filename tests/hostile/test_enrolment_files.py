"""Files from hostile senders, and the authority's key on another medium."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from databazaar.cli.app import app
from databazaar.errors import BazaarError
from databazaar.federation import enrolment, pki, renewal, revocations, server
from processes import Forked
from two_banks import two_banks


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """bank3 is invited, and has made its request."""
    root = two_banks(tmp_path_factory.mktemp("made"))
    shutil.copy(enrolment.invite(root / "market", "bank3"), root / "invitation.json")
    shutil.copy(enrolment.request(root / "invitation.json", root / "bank3"), root / "request.json")
    shutil.copy(root / "market/certificates/bank1.json", root / "certificate.json")
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "root"))


def bazaar(*arguments: object, typed: str | None = None) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], input=typed)
    if isinstance(done.exception, BazaarError):
        return done.exception.exit_code, str(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def take(root: Path, what: str) -> tuple[int, str]:
    """The command that reads such a file."""
    file = root / f"{what}.json"
    match what:
        case "invitation":
            return bazaar("provider", "request", file, "--kit", root / "new")
        case "request":
            return bazaar("federation", "sign", file, "--folder", root / "market")
        case _:
            return bazaar("provider", "complete", file, "--kit", root / "bank1")


def deep(file: Path) -> None:
    file.write_text('{"kind": ' + "[" * 200_000)


def huge(file: Path) -> None:
    with file.open("wb") as opened:
        opened.truncate(10**12)


def device(file: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def elsewhere(file: Path) -> None:
    file.unlink()
    file.symlink_to("/etc/passwd")


def binary(file: Path) -> None:
    file.write_bytes(bytes(range(256)))


def number(file: Path) -> None:
    file.write_text("1" + "0" * 100_000)


def no_object(file: Path) -> None:
    file.write_text("[]")


@pytest.mark.parametrize("spoil", [deep, huge, device, pipe, folder, elsewhere, binary, number, no_object])
@pytest.mark.parametrize("what", ["invitation", "request", "certificate"])
def test_a_file_that_is_none_is_refused_in_one_sentence(root: Path, what: str, spoil: Callable[[Path], None]) -> None:
    spoil(root / f"{what}.json")
    code, said = take(root, what)
    assert code == 2 and f"{what}.json is not a" in said and "\n" not in said
    assert not (root / "new").exists()


WRONG: list[tuple[str, str, Any]] = [
    ("invitation", "port", "x"),
    ("invitation", "port", True),
    ("invitation", "port", 70_000),
    ("invitation", "port", 1e300),
    ("invitation", "host", "example.org/../../x"),
    ("invitation", "host", "-oProxyCommand=x"),
    ("invitation", "host", ["localhost"]),
    ("invitation", "market", "../../market"),
    ("invitation", "provider", "../../../tmp/x"),
    ("invitation", "provider", "a" * 900_000),
    ("invitation", "secret", "not hex"),
    ("invitation", "secret", ""),
    ("invitation", "authority", "\x1b[2J"),
    ("request", "provider", "../certificates/bank1"),
    ("request", "proof", "é" * 64),
    ("request", "proof", None),
    ("request", "request", {"a": 1}),
    ("certificate", "certificate", 5),
    ("certificate", "provider", "/etc/passwd"),
]


@pytest.mark.parametrize(("what", "field", "value"), WRONG, ids=[f"{w[0]}-{w[1]}-{i}" for i, w in enumerate(WRONG)])
def test_a_field_of_the_wrong_kind_is_named(root: Path, what: str, field: str, value: object) -> None:
    file = root / f"{what}.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), field: value}))
    assert take(root, what) == (2, f"the file lacks {field!r}: ask the sender for it again")
    assert not (root / "new").exists()


@pytest.mark.parametrize("changes", [{"identity": "bank1"}, {"authority": "no certificate"}, {"authority": None}])
def test_an_invitation_names_a_market_and_its_authority(root: Path, changes: dict[str, str | None]) -> None:
    file = root / "invitation.json"
    leaf = pki.pem(pki.issued(root / "market", "bank1")[0])
    given = {key: leaf if value is None else value for key, value in changes.items()}
    file.write_text(json.dumps({**json.loads(file.read_text()), **given}))
    code, said = take(root, "invitation")
    assert code == 2 and "is not an invitation of a market: ask the operator for a new one" in said


def test_of_several_authorities_in_an_invitation_one_is_trusted(root: Path) -> None:
    file = root / "invitation.json"
    sent = json.loads(file.read_text())
    other = pki.pem(pki.new_authority("other.ca")[1])
    file.write_text(json.dumps({**sent, "authority": sent["authority"] + other}))
    asked = enrolment.request(file, root / "new")
    kit = enrolment.complete(root / "new", enrolment.sign(root / "market", asked))
    assert (kit.folder / "startup/rootCA.pem").read_text() == sent["authority"]


def test_a_kit_that_leads_elsewhere_is_not_written_to(root: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (root / "new").mkdir()
    (root / "new/startup").symlink_to(tmp_path / "mine")
    code, said = take(root, "invitation")
    assert code == 2 and "is a link to another place" in said
    (root / "new/startup").unlink()
    (root / "new/startup").write_text("")
    assert "cannot be made" in take(root, "invitation")[1]
    assert list((tmp_path / "mine").iterdir()) == []
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (root / "bank1/startup/client.crt").unlink()
    (root / "bank1/startup/client.crt").symlink_to(victim)
    assert take(root, "certificate")[0] == 0
    assert victim.read_text() == "mine"


def test_an_invitation_that_comes_back_gives_no_second_certificate(root: Path) -> None:
    """As from a backup, or after a power cut: the same request gets the same certificate, another one none."""
    market, kept = root / "market", (root / "market/invitations/bank3.json").read_text()
    first = enrolment.sign(market, root / "request.json").read_text()
    (market / "invitations/bank3.json").write_text(kept)
    assert enrolment.sign(market, root / "request.json").read_text() == first
    (market / "invitations/bank3.json").write_text(kept)
    other = enrolment.request(root / "invitation.json", root / "new")
    with pytest.raises(BazaarError, match="bank3 already has a certificate"):
        enrolment.sign(market, other)
    assert len(pki.issued(market, "bank3")) == 1


def test_the_authoritys_key_lives_on_a_stick_with_a_passphrase(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    market, stick, kit = tmp_path / "market", tmp_path / "stick", tmp_path / "kit"
    start = ["federation", "init", market, "--name", "fraud", "--ca", stick, "--passphrase"]
    assert bazaar(*start)[1].startswith("the authority's key has a passphrase: set DATABAZAAR_CA_PASSPHRASE")
    monkeypatch.setenv(pki.PASSPHRASE, "correct horse")
    assert bazaar(*start[:5], "--ca", market / "ca")[1].endswith("give a folder on another medium")
    code, said = bazaar(*start)
    assert code == 0 and f"the authority's key is in {stick} alone" in said
    assert (stick / "ca.key").stat().st_mode & 0o777 == 0o600 and b"ENCRYPTED" in (stick / "ca.key").read_bytes()
    assert not list(market.rglob("ca.key"))
    assert "holds an authority's key already" in bazaar("federation", "init", tmp_path / "b", "--ca", stick)[1]
    asked = enrolment.request(enrolment.invite(market, "bank1"), kit)
    for command in (["sign", asked], ["sign", "--server"]):
        code, said = bazaar("federation", *command, "--folder", market)
        assert code == 2 and f"(it was put into {stick}): give its folder with --ca" in said and "\n" not in said
    at = ["--folder", market, "--ca", stick]
    assert bazaar("federation", "sign", asked, "--folder", market, "--ca", root / "market/ca")[1].startswith(
        f"{root / 'market/ca/ca.key'} is the key of another market's authority"
    )
    assert bazaar("federation", "sign", asked, *at)[0] == 0
    enrolment.complete(kit, market / "certificates/bank1.json")
    assert bazaar("federation", "sign", "--server", *at)[0] == 0
    monkeypatch.setenv(pki.PASSPHRASE, "wrong")
    assert "cannot be read: check it and its passphrase" in bazaar("federation", "sign", "--server", *at)[1]
    code, said = bazaar("federation", "revoke", "bank1", "--folder", market)
    assert code == 2 and said.startswith("bank1 is shut out by name, but not yet on the revocation list: the key of")
    assert server.status(market).revoked == ["bank1"]
    assert "bank1 is shut out by name" in renewal.warnings(market)[0]
    monkeypatch.setenv(pki.PASSPHRASE, "correct horse")
    assert bazaar("federation", "revoke", "bank1", *at)[0] == 0
    assert renewal.warnings(market) == []
    (serial,) = (certificate.serial_number for certificate in pki.issued(market, "bank1"))
    assert serial in revocations.in_force(market / "ca/crl.pem")


@pytest.mark.process
def test_a_passphrase_is_asked_for_on_a_terminal(tmp_path: Path) -> None:
    """Twice for a new one, and never shown."""
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "databazaar", "federation", "init", "market", "--ca", "stick", "--passphrase"]
    process = Forked(command, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    shown = b""
    for question in (b"passphrase of the authority's key: ", b"Repeat for confirmation: "):
        while not shown.endswith(question):
            shown += os.read(ours, 1000)
        os.write(ours, b"correct horse\n")
    with contextlib.suppress(OSError):  # how a terminal ends
        while more := os.read(ours, 1000):
            shown += more
    os.close(ours)
    assert process.wait() == 0, shown
    assert b"correct horse" not in shown
    key = tmp_path / "stick/ca.key"
    assert pki.load_key(key, lambda: "correct horse").key_size == 3072, "as it is shipped"


def test_a_damaged_authority_is_named(root: Path) -> None:
    market = root / "market"
    (market / "ca/crl.pem").unlink()
    assert renewal.warnings(market)[0].startswith(
        "the market has no revocation list: run `bazaar federation sign --server`"
    )
    (market / "ca/ca.pem").write_text("nothing")
    with pytest.raises(BazaarError, match=r"the authority's certificate in .* cannot be read"):
        enrolment.invite(market, "bank4")
    (root / "bank1/startup/client.crt").write_text("nothing")
    with pytest.raises(BazaarError, match=r"the certificate in .* cannot be read: put the operator's in again"):
        renewal.renew(root / "bank1")
