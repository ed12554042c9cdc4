"""With a receipt a provider proves that history was rewritten, without the hub and without its database."""

from __future__ import annotations

import datetime as dt
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from databazaar.canonical import GENESIS, chained
from databazaar.client.journal import Hidden, JournalLine, read_journal
from databazaar.client.receipts import FIELDS, keys_of, rewritten, verify
from databazaar.errors import BazaarError, LedgerError
from databazaar.money import Currency
from databazaar.service import journal
from databazaar.service import receipts as keys
from databazaar.service.caller import Caller
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Contract, Offer, OfferVersion, Organisation, now
from databazaar.service.errors import DeniedError, MissingError
from databazaar.service.receipts import HubKey, issue, receipts_of
from databazaar.service.settings import Settings
from small_books import RUN_HEAD, close, deposit, fund, join, new_job

Made = tuple[dict[str, Any], HubKey, Path]


@pytest.fixture
def made(sqlite_database: Database, settings: Settings, tmp_path: Path) -> Made:
    """A receipt of 60 for job j1, the hub's key, and the journal as the operator exports it; more was posted since."""
    key, path = HubKey.of(settings), tmp_path / "journal.jsonl"
    with sqlite_database.begin() as session:
        acme, bank = join(session, "acme", consumes=True), join(session, "bank", provides=True)
        deposit(session, "acme", 200, "1")
        new_job(session, acme, "j1")
        fund(session, "acme", "j1", 100)
        terms = {"organisation_id": bank.organisation_id, "policy": {}, "kind": "file"}
        offer = Offer(id="o1", slug="bank-loans", name="Loans", **terms)
        session.add(offer)
        session.flush()
        version = OfferVersion(id="v1", offer_id="o1", number=1, digest="cd" * 32, columns=[])
        session.add(version)
        session.flush()
        sides = {"consumer_id": acme.organisation_id, "provider_id": bank.organisation_id}
        later = now() + dt.timedelta(days=1)
        contract = Contract(job_id="j1", offer_id="o1", version_id="v1", price=2, terms={}, expires_at=later, **sides)
        contract.accesses, contract.paid = 30, 60
        session.add(contract)
        session.flush()
        entry = close(session, "acme", "j1", 100, {"bank": 60})
        receipt = issue(session, key, contract, entry, market="Fair", currency=Currency("EUR", 2), run_head=RUN_HEAD)
        assert (
            issue(session, key, contract, entry, market="Fair", currency=Currency("EUR", 2), run_head=RUN_HEAD)
            is receipt
        )
        deposit(session, "acme", 1, "2")
        assert receipt.organisation_id == bank.organisation_id
        assert receipts_of(session, bank) == receipts_of(session, bank, contract.id) == [receipt]
        assert receipts_of(session, acme) == []
        with pytest.raises(MissingError, match="no receipt of that contract"):
            receipts_of(session, acme, contract.id)
        path.write_text("".join(journal.exported(session)))
    return {"body": receipt.body, "signature": receipt.signature}, key, path


def test_every_contract_has_a_receipt_of_its_own_and_the_newest_comes_first(
    made: Made, sqlite_database: Database, settings: Settings
) -> None:
    with sqlite_database.begin() as session:
        first = session.scalars(select(Contract)).one()
        bank = Caller.of(session.get_one(Organisation, first.provider_id))
        acme = session.get_one(Organisation, first.consumer_id)
        new_job(session, Caller.of(acme), "j2")
        sides = {"consumer_id": first.consumer_id, "provider_id": first.provider_id, "expires_at": first.expires_at}
        second = Contract(job_id="j2", offer_id="o1", version_id="v1", price=2, terms={}, **sides)
        session.add(second)
        session.flush()
        fund(session, "acme", "j2", 10)
        entry = close(session, "acme", "j2", 10, {})
        about: dict[str, Any] = {"market": "Fair", "currency": Currency("EUR", 2), "run_head": RUN_HEAD}
        other = issue(session, HubKey.of(settings), second, entry, **about)
        assert (other.contract_id, other.body["job"], other.body["journal_hash"]) == (second.id, "j2", entry.hash)
        assert (other.body["accesses"], other.body["paid"]) == (0, 0), "where nothing was asked"
        other.created_at = now() + dt.timedelta(hours=1)
        session.flush()
        assert [one.contract_id for one in receipts_of(session, bank)] == [second.id, first.id]
        assert [one.contract_id for one in receipts_of(session, bank, first.id)] == [first.id]
        mine = receipts_of(session, bank, first.id)[0]
        for ids in ("ab", "dc"):
            for id, one in zip(ids, (mine, other), strict=True):
                one.id, one.created_at = id * 32, other.created_at
                session.flush()
            assert [one.id[0] for one in receipts_of(session, bank)] == sorted(ids), "of one moment by their ids"
        with pytest.raises(DeniedError, match="needs the right 'read'"):
            receipts_of(session, replace(bank, scopes=frozenset({"offers"})))


def test_a_receipt_says_what_was_paid_and_for_what(made: Made) -> None:
    receipt, key, path = made
    body = verify(receipt, key.public)
    assert tuple(body) == FIELDS
    assert (body["currency"], body["decimals"], body["key"]) == ("EUR", 2, key.public)
    told = {name: body[name] for name in ("market", "provider", "job", "offer", "accesses", "paid", "journal_seq")}
    assert tuple(told.values()) == ("Fair", "bank", "j1", "bank-loans", 30, 60, 2)
    assert (body["version"], body["run_head"]) == ("cd" * 32, RUN_HEAD)
    assert rewritten([receipt], read_journal(path), {"j1": RUN_HEAD, "j2": "other"}) == []


@pytest.mark.parametrize("field", FIELDS)
def test_a_changed_receipt_is_none(made: Made, field: str) -> None:
    receipt, key, _ = made
    value = receipt["body"][field]
    changed = value + 1 if isinstance(value, int) else value + "0"
    with pytest.raises(LedgerError, match="was not signed with that key"):
        verify({**receipt, "body": {**receipt["body"], field: changed}}, key.public)


def test_what_is_no_receipt(made: Made, tmp_path: Path) -> None:
    receipt, key, _ = made
    other = HubKey.of(Settings(home=tmp_path / "other")).public
    partial = {"paid": 7}
    odd: list[tuple[Any, str]] = [
        (receipt, other),
        (receipt, "zz"),
        ({}, key.public),
        ({**receipt, "signature": "00"}, key.public),
        ({**receipt, "body": None}, key.public),
        ({"body": partial, "signature": key.sign(partial)}, key.public),
        ({"body": (body := {**receipt["body"], "paid": -1}), "signature": key.sign(body)}, key.public),
    ]
    for bad, public in odd:
        with pytest.raises(LedgerError, match="was not signed with that key"):
            verify(bad, public)


def entries_of(path: Path) -> list[JournalLine]:
    return [entry for entry in read_journal(path) if isinstance(entry, JournalLine)]


def sealed_anew(entries: list[JournalLine]) -> list[JournalLine]:
    head, anew = GENESIS, []
    for entry in entries:
        head = chained(head, entry.content)
        anew.append(entry._replace(hash=head))
    return anew


def test_a_rewritten_journal_is_shown_to_be_one(made: Made) -> None:
    """The operator changes a deposit of long ago and seals everything anew: no chain breaks, and the receipt tells."""
    receipt, _, path = made
    entries = entries_of(path)
    assert sealed_anew(entries) == entries
    forged = sealed_anew([entries[0]._replace(postings={"outside": -300, "cash:acme": 300}), *entries[1:]])
    sentence = "entry 2 (close:j1) is not the one that was signed for job j1: the journal was rewritten"
    assert rewritten([receipt], forged) == [sentence]
    hidden = [Hidden(entry.seq, entry.content, entry.hash) for entry in entries]
    assert rewritten([receipt], hidden) == []
    forgery = [Hidden(entry.seq, entry.content, entry.hash) for entry in forged]
    assert rewritten([receipt], forgery) == [sentence.replace(" (close:j1)", "")]


def test_a_journal_that_was_put_back(made: Made) -> None:
    receipt, _, path = made
    short = entries_of(path)[:2]
    assert rewritten([receipt], short) == ["the journal ends before entry 2, which was signed for job j1"]


def test_another_run_was_settled_than_the_one_that_is_shown(made: Made) -> None:
    receipt, _, path = made
    (fault,) = rewritten([receipt], read_journal(path), {"j1": "other"})
    assert fault == f"the run of job j1 has the head other, and {RUN_HEAD} was signed: it was rewritten"


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"job": "j7"}, "entry 2 (close:j1) does not close job j7, which the receipt says"),
        ({"run_head": "other"}, "entry 2 (close:j1) names another head of the run of job j1 than the receipt"),
        ({"paid": 61}, "entry 2 (close:j1) pays bank less than the 61 of the receipt"),
    ],
)
def test_a_hub_that_signs_something_else_than_it_writes(made: Made, changed: dict[str, Any], sentence: str) -> None:
    receipt, key, path = made
    body = {**receipt["body"], **changed}
    lie = {"body": body, "signature": key.sign(body)}
    assert rewritten([lie], read_journal(path)) == [sentence]


def test_the_key_is_made_once_and_is_its_owners(settings: Settings) -> None:
    with ThreadPoolExecutor(4) as pool:
        keys = list(pool.map(lambda _: HubKey.of(settings).public, range(8)))
    assert len(set(keys)) == 1 and len(keys[0]) == 64
    path = settings.keys / "signing.pem"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(settings.keys.stat().st_mode) == 0o700
    for content in ("no key", path.read_text().replace("MC4", "MC5")):
        path.write_text(content)
        with pytest.raises(BazaarError, match=r"signing.pem is no key of a hub: put its copy back"):
            HubKey.of(settings)


def test_another_sort_of_key_is_none_of_a_hub(settings: Settings) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    settings.keys.mkdir(parents=True)
    (settings.keys / "signing.pem").write_bytes(X25519PrivateKey.generate().private_bytes(*form))
    with pytest.raises(BazaarError, match="is no key of a hub"):
        HubKey.of(settings)


def test_a_key_that_was_changed_still_proves_what_it_has_signed(
    made: Made, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt, first, path = made
    second = keys.rotate(settings)
    third = keys.rotate(settings)
    assert HubKey.of(settings).public == third.public
    public = keys.published(settings)
    assert keys_of(public) == [third.public, second.public, first.public]
    assert verify(receipt, keys_of(public)) and rewritten([receipt], read_journal(path)) == []
    body = {**receipt["body"], "key": third.public}
    assert verify({"body": body, "signature": third.sign(body)}, keys_of(public))
    for signer in (first, second):
        with pytest.raises(LedgerError, match="was not signed with that key"):
            verify({"body": body, "signature": signer.sign(body)}, keys_of(public))
    with pytest.raises(LedgerError, match="was not signed with that key"):
        verify(receipt, third.public)
    assert stat.S_IMODE((settings.keys / "signing.pem").stat().st_mode) == 0o600
    secret = first._private.private_bytes_raw().hex()
    assert all(secret not in path.read_bytes().hex() for path in settings.keys.iterdir())

    def killed(*_: object) -> HubKey:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(HubKey, "_kept", killed)
        keys.rotate(settings)
    assert keys.published(settings) == public, "a change that was cut off has changed nothing"
    fourth = keys.rotate(settings)
    assert keys_of(keys.published(settings)) == [fourth.public, *keys_of(public)]


def test_keys_that_do_not_lead_to_each_other_are_refused(settings: Settings) -> None:
    HubKey.of(settings)
    keys.rotate(settings)
    public = keys.published(settings)
    (former,) = public["former"]
    for changed in ({"next": "00" * 32}, {"until": "later"}, {"signature": "zz"}, {"key": "00" * 32}):
        with pytest.raises(LedgerError, match="not signed for by the one before"):
            keys_of({**public, "former": [{**former, **changed}]})
    for odd in ({}, {**public, "former": [{}]}, {**public, "former": [7]}, {**public, "former": 7}):
        with pytest.raises(LedgerError, match="no keys of a hub"):
            keys_of(odd)
    (settings.keys / "former.json").write_text("nothing")
    with pytest.raises(BazaarError, match="former keys: put its copy back"):
        keys.published(settings)
