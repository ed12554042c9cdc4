"""Receipts for pay that is held back: a market cannot tell its consumer that it came back, and its provider that it was
paid."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from databazaar import Arbiter, Report, Uniform
from databazaar.cli.app import app
from databazaar.cli.statements import one, provider_dict
from databazaar.defence import Defence
from databazaar.federation.disputes import Held, compare
from databazaar.federation.receipts import Freed, Receipt, Settled, contradictions, receipts_in
from databazaar.federation.records import ANSWERS, AccessRecord, earnings
from databazaar.ledger.chain import Entry
from databazaar.runs.folder import RunFolder
from markets import a_consumer, afar
from signed_parties import NAMES, SignedParties

Played = tuple[SignedParties, RunFolder, Report]


@pytest.fixture(scope="module", params=[True, False], ids=["released", "returned"])
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """All pay is held back until the close. After seven rounds nobody is known, and who is not known is not paid."""
    root = tmp_path_factory.mktemp("held")
    parties = SignedParties(root / "market")
    run = RunFolder.create(root / "run", {"id": "ab" * 16})
    defence = Defence(owners=True, data=1e6, doubt=request.param)
    everybody = Uniform(replacement=False)
    consumer = a_consumer(budget=36 if request.param else 21)
    report = Arbiter(consumer, afar(NAMES), everybody, engine=parties.engine(), seed=3, defence=defence).run(run)
    assert report.spent == (36 if request.param else 0)
    yield parties, run, report


def receipts_of(parties: SignedParties, name: str) -> list[Receipt]:
    return [signed.receipt for signed in receipts_in(parties.kits[name] / "receipts.jsonl") if signed is not None]


def test_a_receipt_tells_a_provider_what_is_held_back_and_what_became_of_it(played: Played) -> None:
    parties, run, report = played
    for name in NAMES:
        got, rounds = receipts_of(parties, name), len(report.rounds)
        assert all((access.paid, access.held) == (0, 1) for receipt in got for access in receipt.accesses)
        assert [receipt.freed for receipt in got] == [(), (Freed(None, rounds, report.spent > 0),)][-len(got) :]
        assert all(Receipt.read(receipt.text) == receipt for receipt in got)
        assert not any(other.encode() in receipt.text for receipt in got for other in {*NAMES} - {name})
    given = [option for kit in parties.kits.values() for option in ("--receipts", str(kit))]
    result = CliRunner().invoke(app, ["audit", str(run.path), *given])
    assert result.exit_code == 0 and "receipts of the market agree with it" in result.output, result.output


def test_a_market_that_says_two_things_of_held_back_pay_is_found(played: Played) -> None:
    parties, run, report = played
    entries, receipts = list(run.entries()), receipts_of(parties, "bank2")
    held = [Held(Path("kit"), receipts)]
    assert compare(entries, held).broken == []

    def said(*others: Entry) -> str:
        changed = {other.seq: other for other in others}  # with the hashes of before, as if nobody looked at them
        (broken,) = compare([changed.get(entry.seq, entry) for entry in entries], held).broken
        return broken

    freed = next(entry for entry in entries if entry.kind in ("release", "return") and entry.provider == "bank2")
    other = freed._replace(kind="return" if freed.kind == "release" else "release")
    was, now = ("released", "returned to the consumer")[:: 1 if freed.kind == "release" else -1]
    held_back = f"{len(report.rounds)} of held-back pay"
    assert said(other) == (
        f"the market's receipt for bank2 says {held_back} {was} at the close, and the ledger says {held_back} {now}"
    )
    assert said(freed._replace(amount=5)).endswith(f"and the ledger says 5 of held-back pay {was}")
    assert said(freed._replace(round=3)).endswith("and the ledger has nothing of it")
    post = next(entry for entry in entries if entry.kind == "post" and entry.provider == "bank2")
    assert "says paid 0, 1 held back" in said(post._replace(body={**post.body, "held": 2}))
    last = receipts[-1]
    lie = replace(last, freed=(replace(last.freed[0], released=freed.kind != "release"),))
    assert contradictions([last, lie]) == [
        f"one receipt says {held_back} {was} at the close, another {held_back} {now}"
    ]


def test_receipts_with_anything_else_in_them_are_none() -> None:
    plain = Receipt("m", "r", "bank1", 3, "0" * 64, 2, (Settled(0, 0, 1, None, ""),))
    assert b"held" not in plain.text and b"freed" not in plain.text and Receipt.read(plain.text) == plain
    full = replace(plain, accesses=(Settled(0, 0, 1, None, "", 4),), freed=(Freed(7, 4, True), Freed(None, 2, False)))
    assert Receipt.read(full.text) == full
    for old, new in ((b'"held":4', b'"held":"4"'), (b'"round":7', b'"round":"7"'), (b'"amount":2', b'"amount":2.0')):
        assert Receipt.read(full.text.replace(old, new)) is None
    for old, new in ((b'"released":true', b'"released":1'), (b'"held":4', b'"held":0'), (b'"freed":[', b'"freed":[1,')):
        assert Receipt.read(full.text.replace(old, new)) is None
    assert Freed(7, 4, True).when == "in round 7"


def test_what_is_held_back_is_not_counted_as_unpaid_without_a_reason(played: Played) -> None:
    parties, _, report = played
    statement = json.loads(one(report, "bank3", as_csv=False))
    assert statement["pay"] == report.spent // 3 and all(item["held"] == 1 for item in statement["items"])
    record = AccessRecord(parties.kits["bank3"] / ANSWERS)
    (line,) = earnings(record, statement, receipts=receipts_of(parties, "bank3"))
    assert line.paid == report.spent // 3 and not line.unpaid_rounds and not line.disputed_rounds
    assert one(report, "bank3", as_csv=True).splitlines()[0].startswith("round,draw,paid,paid_amount,held,held_amount")
    assert provider_dict(report, "bank3")["provider"] == "bank3"
