"""Invitations, passwords, tokens: who is let in, who is not, and that two at once do not both get in."""

from __future__ import annotations

import datetime as dt
import threading
from dataclasses import replace
from typing import Any

import pytest
from argon2 import PasswordHasher
from sqlalchemy import select, update

from databazaar.service import cash, credentials, journal, members
from databazaar.service.database.tables import Organisation, Person, Token, now
from databazaar.service.errors import ConflictError, DeniedError, InvalidError, MissingError, UnknownCallerError
from desk_market import DeskMarket

PASSWORD = "correct horse battery"


def test_a_link_signs_in_once(small: DeskMarket) -> None:
    with small.database.begin() as session:
        invited = members.invite(
            session, small["hub"], name="West", slug="west", email=" Bo@West.example ", provides=True
        )
        signed = credentials.redeem_link(session, invited.secret)
        assert (signed.caller.slug, signed.caller.person_id) == ("west", invited.person.id)
        assert invited.person.email == "bo@west.example"
        assert credentials.caller_of(session, signed.session_secret, "session") == signed.caller
        with pytest.raises(UnknownCallerError):
            credentials.caller_of(session, signed.session_secret, "api")
        with pytest.raises(UnknownCallerError, match="used before"):
            credentials.redeem_link(session, invited.secret)
        for nonsense in ("", "x", "\ud800", signed.session_secret):
            with pytest.raises(UnknownCallerError):
                credentials.redeem_link(session, nonsense)


def test_of_two_who_use_a_link_at_once_one_comes_in(market: DeskMarket) -> None:
    with market.database.begin() as session:
        secret = credentials.issue_link(session, market["buyer"], market["buyer"].person_id or "")
    barrier, came_in = threading.Barrier(4), []

    def redeem() -> None:
        barrier.wait()
        try:
            with market.database.begin() as session:
                came_in.append(credentials.redeem_link(session, secret).caller.slug)
        except UnknownCallerError:
            came_in.append("")

    threads = [threading.Thread(target=redeem) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(came_in) == ["", "", "", "buyer"]


def test_a_newer_link_and_time_end_a_link(small: DeskMarket) -> None:
    person = small["buyer"].person_id or ""
    with small.database.begin() as session:
        first = credentials.issue_link(session, small["hub"], person)
        second = credentials.issue_link(session, small["hub"], person)
        with pytest.raises(UnknownCallerError):
            credentials.redeem_link(session, first)
        session.execute(update(Token).where(Token.kind == "link").values(expires_at=now() - dt.timedelta(seconds=1)))
        with pytest.raises(UnknownCallerError):
            credentials.redeem_link(session, second)


def test_passwords(small: DeskMarket, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown e-mail costs the same work as a wrong password, and is answered by the same sentence."""
    checked: list[str] = []
    verify = PasswordHasher.verify

    def counted(hasher: PasswordHasher, kept: str | bytes, password: str | bytes) -> Any:
        checked.append(str(kept))
        return verify(hasher, kept, password)

    monkeypatch.setattr(credentials, "_HASHER", PasswordHasher(time_cost=1, memory_cost=64, parallelism=1))
    monkeypatch.setattr(PasswordHasher, "verify", counted)
    credentials._nobodys.cache_clear()
    with small.database.begin() as session:
        link = credentials.issue_link(session, small["buyer"], small["buyer"].person_id or "")
        elsewhere = credentials.redeem_link(session, link)
        for short in ("", "elevenchars", "x" * 201):
            with pytest.raises(InvalidError, match="12 to 200"):
                credentials.set_password(session, small["buyer"], short)
        credentials.set_password(session, small["buyer"], PASSWORD)
        with pytest.raises(UnknownCallerError):
            credentials.caller_of(session, elsewhere.session_secret, "session")
        assert credentials.sign_in(session, "ANN@buyer.example ", PASSWORD).caller.slug == "buyer"
        answers = set()
        for email, tried in (
            ("ann@buyer.example", "wrong password"),
            ("ann@buyer.example", ""),
            ("nobody@buyer.example", PASSWORD),
            ("ann@rival.example", PASSWORD),
            ("", "x" * 10_000),
            ("a\0\ud800@b", PASSWORD),
        ):
            checked.clear()
            with pytest.raises(UnknownCallerError) as refused:
                credentials.sign_in(session, email, tried)
            answers.add(str(refused.value))
            assert len(checked) == 1
            assert checked[0].split("$")[1:4] == ["argon2id", "v=19", "m=64,t=1,p=1"]
        assert len(answers) == 1
        checked.clear()
        kept = credentials.kept_password(session, "ann@buyer.example")
        credentials.check_password(kept, PASSWORD)
        assert credentials.sign_in(session, "ann@buyer.example", PASSWORD, kept).caller.slug == "buyer"
        assert checked == [kept], "computed once, before the transaction"
        credentials.set_password(session, small["buyer"], "another password")
        with pytest.raises(UnknownCallerError):
            credentials.sign_in(session, "ann@buyer.example", PASSWORD, kept)
        assert credentials.kept_password(session, "nobody@buyer.example") is None
    credentials._nobodys.cache_clear()


def test_passwords_are_hashed_as_they_should_be_and_anew_where_that_has_changed(
    small: DeskMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small.database.begin() as session:
        monkeypatch.setattr(credentials, "_HASHER", PasswordHasher(time_cost=1, memory_cost=64, parallelism=1))
        credentials.set_password(session, small["buyer"], PASSWORD)
        monkeypatch.undo()
        credentials.sign_in(session, "ann@buyer.example", PASSWORD)
        kept = session.get_one(Person, small["buyer"].person_id).password or ""
        assert kept.startswith("$argon2id$v=19$m=65536,t=3,p=4$")
        assert PASSWORD not in kept


def test_somebody_the_identity_provider_vouches_for(small: DeskMarket) -> None:
    with small.database.begin() as session:
        assert credentials.sign_in_vouched(session, "ann@north.example").caller.slug == "north"
        with pytest.raises(UnknownCallerError, match="invitation"):
            credentials.sign_in_vouched(session, "ann@nowhere.example")


def test_api_tokens_are_scoped_expire_and_are_revoked(small: DeskMarket) -> None:
    with small.database.begin() as session:
        token, secret = credentials.issue_token(session, small["buyer"], label="ci", scopes=["read", "jobs"], days=1)
        assert len(secret) == 43 and secret not in repr(vars(token))
        caller = credentials.caller_of(session, secret, "api")
        assert caller.scopes == {"read", "jobs"} and caller.token_id == token.id and caller.person_id is None
        with pytest.raises(DeniedError, match="sign in"):
            credentials.issue_token(session, caller, label="more", scopes=["read"], days=1)
        for scopes, days, error in (
            (["offers"], 1, DeniedError),
            (["operate"], 1, DeniedError),
            ([], 1, InvalidError),
            (["everything"], 1, InvalidError),
            (["read"], 0, InvalidError),
            (["read"], 366, InvalidError),
        ):
            with pytest.raises(error):
                credentials.issue_token(session, small["buyer"], label="x", scopes=scopes, days=days)
        assert [t.label for t in credentials.tokens(session, small["buyer"])] == ["ci"]
        credentials.revoke_token(session, small["buyer"], token.id)
        with pytest.raises(UnknownCallerError, match="revoked"):
            credentials.caller_of(session, secret, "api")
        _, secret = credentials.issue_token(session, small["buyer"], label="old", scopes=["read"], days=1)
        session.execute(update(Token).where(Token.label == "old").values(expires_at=now()))
        with pytest.raises(UnknownCallerError):
            credentials.caller_of(session, secret, "api")


def test_the_operator_issues_tokens_for_others_within_their_roles(small: DeskMarket) -> None:
    with small.database.begin() as session:
        theirs = small["north"].organisation_id
        token, secret = credentials.issue_token(
            session, small["hub"], label="site", scopes=["offers"], days=9, organisation_id=theirs
        )
        assert token.person_id is None and credentials.caller_of(session, secret, "api").slug == "north"
        with pytest.raises(DeniedError, match="jobs"):
            credentials.issue_token(session, small["hub"], label="x", scopes=["jobs"], days=9, organisation_id=theirs)
        with pytest.raises(MissingError):
            credentials.issue_token(session, small["hub"], label="x", scopes=["read"], days=9, organisation_id="0" * 32)


def test_suspending_shuts_out_all_tokens_at_once(small: DeskMarket) -> None:
    with small.database.begin() as session:
        _, api = credentials.issue_token(session, small["buyer"], label="ci", scopes=["read"], days=9)
        link = credentials.issue_link(session, small["hub"], small["buyer"].person_id or "")
        browser = credentials.sign_in_vouched(session, "ann@buyer.example").session_secret
        members.suspend(session, small["hub"], small["buyer"].organisation_id)
        for attempt in (
            lambda: credentials.caller_of(session, api, "api"),
            lambda: credentials.caller_of(session, browser, "session"),
            lambda: credentials.redeem_link(session, link),
            lambda: credentials.sign_in_vouched(session, "ann@buyer.example"),
        ):
            with pytest.raises(UnknownCallerError):
                attempt()
        members.restore(session, small["hub"], small["buyer"].organisation_id)
        with pytest.raises(UnknownCallerError):
            credentials.caller_of(session, api, "api")
        assert credentials.sign_in_vouched(session, "ann@buyer.example").caller.slug == "buyer"


def test_the_last_operator_stays(market: DeskMarket) -> None:
    """Also where two operators suspend each other at once."""
    with market.database.begin() as session:
        with pytest.raises(ConflictError, match="last operator"):
            members.suspend(session, market["hub"], market["hub"].organisation_id)
        with pytest.raises(MissingError, match="list of organisations"):
            members.suspend(session, market["hub"], "0" * 32)
        other = members.make_operator(session, "Second", "second", "bo@second.example")
        second = credentials.redeem_link(session, other.secret).caller
    barrier, outcomes = threading.Barrier(2), []

    def shut_out(caller: Any, whom: str) -> None:
        barrier.wait()
        try:
            with market.database.begin() as session:
                members.suspend(session, caller, whom)
            outcomes.append("done")
        except ConflictError:
            outcomes.append("refused")

    pairs = ((market["hub"], second.organisation_id), (second, market["hub"].organisation_id))
    threads = [threading.Thread(target=shut_out, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["done", "refused"]
    with market.database.read() as session:
        left = select(Organisation.id).where(Organisation.operates, Organisation.suspended_at.is_(None))
        assert len(session.scalars(left).all()) == 1


def test_people_of_an_organisation(small: DeskMarket) -> None:
    with small.database.begin() as session:
        invited = members.invite_person(session, small["buyer"], email="bo@buyer.example", name="Bo")
        bo = credentials.redeem_link(session, invited.secret)
        assert [p.email for p in members.people(session, bo.caller)] == ["ann@buyer.example", "bo@buyer.example"]
        with pytest.raises(ConflictError, match="nobody shuts themselves out"):
            members.disable_person(session, bo.caller, invited.person.id)
        members.disable_person(session, small["buyer"], invited.person.id)
        with pytest.raises(UnknownCallerError):
            credentials.caller_of(session, bo.session_secret, "session")
        with pytest.raises(UnknownCallerError):
            credentials.sign_in_vouched(session, "bo@buyer.example")
        other = members.invite_person(
            session, small["hub"], email="cy@north.example", organisation_id=small["north"].organisation_id
        )
        assert other.organisation.slug == "north"


def test_an_operators_token_lets_nobody_in_and_reads_what_it_may(small: DeskMarket) -> None:
    """Else whoever finds one would stay after it is revoked, or act as somebody else."""
    with small.database.begin() as session:
        hub, settings = small["hub"], replace(small.settings, cash="manual")
        token, reading = (replace(hub, person_id=None, scopes=frozenset(to)) for to in (("operate", "read"), ("read",)))
        second = members.make_operator(session, "Second", "second", "ann@second.example")
        for person in (hub.person_id, second.person.id, small["buyer"].person_id):
            with pytest.raises(DeniedError, match="a person who has signed in"):
                credentials.issue_link(session, token, person or "")
        for organisation in (hub.organisation_id, second.organisation.id, small["buyer"].organisation_id):
            with pytest.raises(DeniedError, match="a person who has signed in"):
                members.invite_person(session, token, email="eve@x.example", organisation_id=organisation)
        credentials.issue_link(session, hub, small["buyer"].person_id or "")
        assert members.invite(session, token, name="E", slug="e", email="ann@e.example", consumes=True).secret
        assert members.disable_person(session, token, small["rival"].person_id or "").disabled_at
        cash.request(session, small["buyer"], settings, "deposit", 7)
        small.pay_in(session, "buyer", 7)
        assert [len(cash.records(session, one)) for one in (token, reading)] == [1, 0]
        assert [len(journal.accounts_of(session, one)) for one in (token, reading)] == [2, 0]
        assert ["cash:buyer" in "".join(journal.lines(session, one)) for one in (token, reading)] == [True, False]


def test_signing_out_ends_the_session(small: DeskMarket) -> None:
    with small.database.begin() as session:
        signed = credentials.sign_in_vouched(session, "ann@buyer.example")
        credentials.sign_out(session, signed.caller)
        with pytest.raises(UnknownCallerError, match="sign in again"):
            credentials.caller_of(session, signed.session_secret, "session")


UNFIT_INVITATIONS: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"slug": "buyer"}, ConflictError),
    ({"email": "Ann@Buyer.example"}, ConflictError),
    ({"slug": "West Bank"}, InvalidError),
    ({"slug": "a" * 41}, InvalidError),
    ({"slug": "-a"}, InvalidError),
    ({"name": " "}, InvalidError),
    ({"name": "a\u202eb"}, InvalidError),
    ({"name": "x" * 201}, InvalidError),
    ({"email": "nobody"}, InvalidError),
    ({"email": "a b@c"}, InvalidError),
    ({"provides": False}, InvalidError),
]


def test_what_an_invitation_must_say(small: DeskMarket) -> None:
    for changed, error in UNFIT_INVITATIONS:
        given = {"name": "West", "slug": "west", "email": "ann@west.example", "provides": True, **changed}
        with pytest.raises(error), small.database.begin() as session:
            members.invite(session, small["hub"], **given)
    with small.database.read() as session:
        assert {o.slug for o in members.organisations(session, small["hub"])} == set(small.callers)


def test_the_market_and_its_fee(small: DeskMarket) -> None:
    with small.database.begin() as session:
        assert members.currency_of(session).format(1250) == "12.50 EUR"
        assert members.set_fee(session, small["hub"], 250).fee_basis_points == 250
        for fee in (-1, 10_001):
            with pytest.raises(InvalidError, match="basis points"):
                members.set_fee(session, small["hub"], fee)
        with pytest.raises(ConflictError, match="already"):
            members.create_market(session, "Another", "EUR")
        session.delete(members.market(session))
        session.flush()
        with pytest.raises(MissingError, match="no market"):
            members.market(session)
        for currency, decimals in (("euro", 2), ("eur", 2), ("EUR", 5)):
            with pytest.raises(InvalidError):
                members.create_market(session, "Another", currency, decimals)
