"""One privacy account for the same rows, whatever kits, copies and edits there are; and one process for a kit."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from databazaar.cli import enrolment as joining
from databazaar.errors import BazaarError
from databazaar.federation.accepted_schemas import AcceptedSchemas
from databazaar.federation.accountant import MOST_RATES, PLACE, Accounts, History, added, users_folder
from databazaar.federation.grpc_transport import GrpcTransport
from databazaar.federation.provider import ProviderNode, only_copy
from databazaar.federation.table import Table
from databazaar.federation.worker import ProviderWorker
from loopback import WAIT, Federation, eventually
from questions import HONEST, a_kit, asked

pytestmark = pytest.mark.process


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "bank.csv"
    path.write_text("income,amount,fraud\n" + "".join(f"{i},{i % 7},{'yes' if i % 3 else 'no'}\n" for i in range(80)))
    return path


def spend(kit: Path, data: Path, cap: float, account: str | None = None) -> int:
    """How many answers a provider that joins anew gives before it refuses."""
    table = Table.read(data, AcceptedSchemas())
    mechanism = joining.privacy(table, cap, 1.0, 1.0, 1e-5, account)
    worker = ProviderWorker("bank", table, privacy=mechanism)
    for number in range(20):
        status, code, _ = asked(worker, HONEST, torch.full((6,), float(number)))
        if status != "ok":
            assert code == "privacy-spent"
            return number
    raise AssertionError("the cap was never reached")


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(PLACE, str(tmp_path / "accounts"))
    return a_kit(tmp_path / "kit")


def test_two_kits_and_copies_of_a_file_share_one_budget(kit: Path, path: Path, tmp_path: Path) -> None:
    """Each kit once had the whole cap."""
    other = shutil.copytree(kit, tmp_path / "other")
    answers = spend(kit, path, 12.0)
    assert answers > 1
    assert spend(other, path, 12.0) == 0
    copy = Path(shutil.copy(path, tmp_path / "copy.csv"))
    assert spend(other, copy, 12.0) == 0
    with pytest.raises(BazaarError, match="is counted in the account bank already, and the same rows have one budget"):
        spend(other, copy, 12.0, "fresh")
    (tmp_path / "link.csv").symlink_to(path)
    assert spend(other, tmp_path / "link.csv", 12.0) == 0


def test_an_edited_file_gets_no_fresh_budget_unless_the_provider_says_so(
    kit: Path, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = spend(kit, path, 12.0)
    path.write_text(path.read_text() + "401,0.5,no\n")
    assert spend(kit, path, 12.0) == 0
    assert "has changed since it was last charged: it goes on with what the account bank has spent" in (
        capsys.readouterr().err
    )
    appended = tmp_path / "newer.csv"
    appended.write_text(path.read_text() + "402,0.5,no\n")
    with pytest.raises(BazaarError, match=r"no privacy account in .* knows .*newer\.csv: say --account with one of"):
        spend(kit, appended, 12.0)
    assert spend(kit, appended, 12.0, "bank") == 0
    path.write_text(path.read_text() + "403,0.5,no\n")
    assert spend(kit, path, 12.0, "other-people") == answers
    assert spend(kit, path, 12.0) == 0, "the file is the new account's from then on"
    accounts = Accounts(tmp_path / "accounts").known()
    assert accounts["other-people"].files == [str(path)] and accounts["bank"].files == [str(appended)]
    for name in ("../bank", ""):
        with pytest.raises(BazaarError, match="is no name"):
            spend(kit, path, 12.0, name)


def test_a_place_for_accounts_that_cannot_be_used_is_named(kit: Path, path: Path, tmp_path: Path) -> None:
    (tmp_path / "accounts").write_text("a file")
    with pytest.raises(BazaarError, match=r"cannot be used for privacy accounts .*: set DATABAZAAR_ACCOUNTS"):
        spend(kit, path, 12.0)


def test_accounts_are_in_the_user_s_own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(PLACE, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert users_folder() == tmp_path / "databazaar" / "accounts"


def test_a_copy_of_a_kit_on_one_machine_is_noticed(kit: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(kit, tmp_path / "copy")
    with (
        only_copy(kit / "startup" / "client.key"),
        pytest.raises(BazaarError, match=r"another process answers with a copy of .*copy: stop it first"),
    ):
        only_copy(copy / "startup" / "client.key")
    only_copy(copy / "startup" / "client.key").close()


def test_a_provider_that_is_put_out_now_and_then_raises_no_alarm(kit: Path) -> None:
    node = ProviderNode(kit, bytes)
    for minutes, often in ((0, False), (5, False), (11, False), (12, True), (13, True), (60, False)):
        assert node.often_replaced(60.0 * minutes) is often


@pytest.mark.slow
def test_a_copy_of_a_kit_elsewhere_is_noticed(tmp_path: Path) -> None:
    """The two put each other out of the server; each answers some of the questions."""
    federation = Federation(tmp_path)
    try:
        own = federation.enroll("bank1")
        copy = Path(shutil.copytree(own, tmp_path / "copy"))
        federation.up()
        federation.start("bank1")
        with GrpcTransport(federation.market) as transport:
            assert transport.wait_for(["bank1"], WAIT) == []
        federation.start("bank1", copy)
        said = own / "provider.txt"
        assert eventually(lambda: "somebody answers with a copy of this kit" in said.read_text(), WAIT)
    finally:
        federation.close()


def test_many_different_rates_do_not_make_the_count_long(tmp_path: Path) -> None:
    """A market chooses the batch size: each new one once made the account longer, and every question slower."""
    history: History = []
    for batch in range(1, 2000):
        history = added(history, 1.0, batch / 2000, 1)
    assert len(history) <= MOST_RATES + 15
    assert sum(steps for _, _, steps in history) == 1999
    cheapest = sum((batch / 2000) ** 2 for batch in range(1, 2000))
    assert sum(rate**2 * steps for _, rate, steps in history) >= cheapest, "it is never charged less"
