"""Files and numbers that are not what they should be, in places where hardly anybody looks: one sentence each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cli_markets import bazaar

from databazaar import Consumer
from databazaar.errors import BazaarError
from databazaar.federation.accountant import Account
from databazaar.files import open_plain, read_plain
from databazaar.ledger.database import runs_in
from databazaar.money import Currency
from databazaar.runs.close import close_run
from databazaar.runs.folder import RunFolder
from databazaar.runs.model_folder import Outline
from hostile_folders import change_json


def an_account(place: Path, text: str) -> Account:
    (place / "bank.json").write_text(text)
    return Account.read(place / "bank.json")


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "an account without a history": (lambda place: an_account(place, "{}"), "cannot be read"),
    "an account with another history": (lambda place: an_account(place, '{"history": [5]}'), "cannot be read"),
    "an amount of a thousand digits": (lambda place: Currency().parse(10**1000), "more digits than any ledger holds"),
    "a budget beyond all ledgers": (
        lambda place: Consumer(np.zeros(2), utility=lambda w: 0.0, budget=2**63),
        "more than a ledger holds",
    ),
    "shapes of another model": (
        lambda place: Outline(tensors=(("w", (3,)),)).named(np.zeros(4)),
        "do not fit its numbers",
    ),
    "a folder in a file's place": (lambda place: open_plain(place), "is no plain file"),
    "a database without tables": (
        lambda place: runs_in(f"sqlite:///{place / 'empty.sqlite'}"),
        "ledger URL --init",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_in_one_sentence(case: str, tmp_path: Path) -> None:
    attempt, words = REFUSED[case]
    with pytest.raises(BazaarError) as refused:
        attempt(tmp_path)
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_a_part_of_a_path_that_is_not_there_is_missing_and_no_link(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_plain(tmp_path / "a" / "b.json", tmp_path)


def test_a_run_whose_notes_were_spoilt_says_which(stopped: Path, run_of: Callable[[Path], Path]) -> None:
    spoilt = run_of(stopped)
    (spoilt / "layout.json").write_text("[]")
    with pytest.raises(BazaarError, match=r"layout\.json cannot be read: put the old file back"):
        close_run(spoilt)
    odd = run_of(stopped)
    recipe = json.loads((odd / "run.json").read_text())
    recipe["market"]["data"]["decimal"] = 5
    change_json(odd / "run.json", market=recipe["market"])
    with pytest.raises(BazaarError, match="does not say how tables are written"):
        RunFolder(odd).tables()


def test_an_address_that_is_none_is_shown_in_short(finished: Path, run_of: Callable[[Path], Path]) -> None:
    spoilt = run_of(finished)
    change_json(spoilt / "run.json", ledger_url="\x1b[2J" * 50)
    told = bazaar("audit", spoilt)
    assert told.code in (1, 2, 3) and "--ledger" in told.err and "\x1b" not in told.err and len(told.err) < 500


def test_a_page_that_is_a_link_is_no_page(finished: Path, run_of: Callable[[Path], Path]) -> None:
    spoilt = run_of(finished)
    (spoilt / "report.html").rename(spoilt.parent / "elsewhere.html")
    (spoilt / "report.html").symlink_to(spoilt.parent / "elsewhere.html")
    told = bazaar("audit", spoilt)
    assert told.code == 1 and "report.html" in told.out


def test_weights_that_are_no_weights_are_found(finished: Path, run_of: Callable[[Path], Path]) -> None:
    spoilt = run_of(finished)
    (spoilt / "model" / "model.safetensors").write_bytes(b"nothing")
    assert "does not hold the model that the ledger names" in RunFolder(spoilt).audit().message


def test_a_statement_for_rounds_that_the_kit_did_not_answer_warns_of_a_copy(root: Path) -> None:
    kit = root / "bank1"
    answer = {"time": "", "run": "a" * 32, "round": 0, "status": "ok", "code": "", "epsilon": None}
    (kit / "answers.jsonl").write_text(json.dumps(answer) + "\n")
    items = [{"round": number, "paid": 1} for number in (0, 7)]
    (kit / "receipts.jsonl").write_text("{}\n")
    statement = root / "statement.json"
    statement.write_text(json.dumps({"provider": "bank1", "run": "a" * 32, "items": items, "pay_text": "2 credits"}))
    told = bazaar("provider", "earnings", kit, "--statement", statement)
    assert told.code == 0 and "somebody may answer with a copy of your kit" in told.out
    assert "1 lines of receipts.jsonl are not signed" in told.out
