"""Tokens to the last bound: who may make and end which, how long they hold, and what they let do."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace

import pytest
from argon2 import PasswordHasher
from sqlalchemy import select, update

from databazaar.service import credentials, members
from databazaar.service.credentials import digest_of, new_token
from databazaar.service.database.tables import Organisation, Person, Token, now
from databazaar.service.errors import DeniedError, InvalidError, MissingError, UnknownCallerError
from desk_market import DeskMarket

SECOND = dt.timedelta(seconds=1)


def test_a_token_holds_as_long_as_was_asked_and_keeps_no_secret(small: DeskMarket) -> None:
    with small.database.begin() as session:
        for days in (1, 365):
            before = now()
            token, secret = credentials.issue_token(
                session, small["buyer"], label="ci", scopes=["read", "jobs", "read"], days=days
            )
            lasting = token.expires_at - dt.timedelta(days=days)
            assert before - SECOND <= lasting <= now() + SECOND
            assert (token.kind, token.label, token.scopes) == ("api", "ci", ["jobs", "read"])
            assert token.organisation_id == small["buyer"].organisation_id
            assert token.person_id == small["buyer"].person_id and token.digest == digest_of(secret) != secret
        for days in (0, 366, -1):
            with pytest.raises(InvalidError, match=f"days = {days} is not between 1 and 365"):
                credentials.issue_token(session, small["buyer"], label="x", scopes=["read"], days=days)
        with pytest.raises(InvalidError, match="must name some of read, jobs, offers, money, operate"):
            credentials.issue_token(session, small["buyer"], label="x", scopes=["read", "fly"], days=1)


def test_a_token_holds_for_three_months_unless_something_else_is_asked(small: DeskMarket) -> None:
    buyer = small["buyer"]
    with small.database.begin() as session:
        before = now()
        token, _ = credentials.issue_token(session, buyer, label="ci", scopes=["read"])
        lasting = token.expires_at - dt.timedelta(days=90)
        assert before - SECOND <= lasting <= now() + SECOND
        assert new_token(session, buyer.organisation_id, None, "api", SECOND, [])[0].label == ""
        for scopes in ([], ["fly"]):
            with pytest.raises(InvalidError, match="must name some of") as refused:
                credentials.issue_token(session, buyer, label="ci", scopes=scopes)
            assert refused.value.place == "scopes"


def test_a_secret_holds_up_to_the_moment_at_which_it_expires(
    small: DeskMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small.database.begin() as session:
        token, secret = credentials.issue_token(session, small["buyer"], label="ci", scopes=["read"], days=1)
        link = credentials.issue_link(session, small["buyer"], small["buyer"].person_id or "")
        ends = session.scalars(select(Token.expires_at).where(Token.digest == digest_of(link))).one()
        for attempt, moment in (
            (lambda: credentials.caller_of(session, secret, "api"), token.expires_at),
            (lambda: credentials.redeem_link(session, link), ends),
        ):
            monkeypatch.setattr(credentials, "now", lambda moment=moment: moment)
            with pytest.raises(UnknownCallerError):
                attempt()
            monkeypatch.setattr(credentials, "now", lambda moment=moment: moment - dt.timedelta(microseconds=1))
            attempt()


def test_a_digest_is_the_sha_256_of_any_text() -> None:
    assert digest_of("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert len(digest_of("\ud800")) == 64


def test_whose_tokens_whoever_makes_them_may_make(small: DeskMarket) -> None:
    buyer, north, hub = small["buyer"], small["north"], small["hub"]
    with small.database.begin() as session:
        own, _ = credentials.issue_token(
            session, buyer, label="x", scopes=["read"], days=1, organisation_id=buyer.organisation_id
        )
        assert own.person_id == buyer.person_id
        with pytest.raises(DeniedError, match="only the market's operator"):
            credentials.issue_token(
                session, buyer, label="x", scopes=["read"], days=1, organisation_id=north.organisation_id
            )
        weak = replace(hub, scopes=frozenset({"read"}))
        with pytest.raises(DeniedError, match="'operate'"):
            credentials.issue_token(
                session, weak, label="x", scopes=["read"], days=1, organisation_id=north.organisation_id
            )
        theirs, _ = credentials.issue_token(
            session, hub, label="x", scopes=["read"], days=1, organisation_id=north.organisation_id
        )
        assert (theirs.person_id, theirs.organisation_id) == (None, north.organisation_id)


@pytest.mark.parametrize("kind", ["api", "session"])
def test_what_a_caller_is(small: DeskMarket, kind: str) -> None:
    buyer = small["buyer"]
    with small.database.begin() as session:
        lasting = dt.timedelta(hours=1)
        token, secret = new_token(session, buyer.organisation_id, buyer.person_id, kind, lasting, ["jobs", "operate"])
        caller = credentials.caller_of(session, secret, kind)  # type: ignore[arg-type]
        assert (caller.organisation_id, caller.slug, caller.token_id) == (buyer.organisation_id, "buyer", token.id)
        assert (caller.operates, caller.consumes, caller.provides) == (False, True, False)
        if kind == "api":
            assert caller.scopes == {"jobs"} and caller.person_id is None
        else:
            assert caller.scopes == {"read", "jobs", "money"} and caller.person_id == buyer.person_id
        other = "session" if kind == "api" else "api"
        with pytest.raises(UnknownCallerError):
            credentials.caller_of(session, secret, other)  # type: ignore[arg-type]
        for changed in (
            update(Token).where(Token.id == token.id).values(revoked_at=now()),
            update(Token).where(Token.id == token.id).values(revoked_at=None, expires_at=now() - SECOND),
            update(Token).where(Token.id == token.id).values(expires_at=now() + lasting, digest="0" * 64),
        ):
            session.execute(changed)
            with pytest.raises(UnknownCallerError, match="unknown, has expired or was revoked"):
                credentials.caller_of(session, secret, kind)  # type: ignore[arg-type]


@pytest.mark.parametrize("who", ["person", "organisation"])
def test_a_token_of_who_is_shut_out_holds_no_longer_although_it_is_not_revoked(small: DeskMarket, who: str) -> None:
    with small.database.begin() as session:
        _, secret = credentials.issue_token(session, small["buyer"], label="ci", scopes=["read"], days=1)
        credentials.caller_of(session, secret, "api")
        if who == "person":
            session.execute(update(Person).where(Person.id == small["buyer"].person_id).values(disabled_at=now()))
        else:
            whose = Organisation.id == small["buyer"].organisation_id
            session.execute(update(Organisation).where(whose).values(suspended_at=now()))
        with pytest.raises(UnknownCallerError):
            credentials.caller_of(session, secret, "api")


def test_who_may_end_a_token(small: DeskMarket) -> None:
    buyer, rival, hub = small["buyer"], small["rival"], small["hub"]
    with small.database.begin() as session:
        several = [credentials.issue_token(session, buyer, label=str(i), scopes=["read"], days=1)[0] for i in range(4)]
        by_itself = replace(buyer, person_id=None, token_id=several[0].id)
        for denied in (rival, replace(rival, person_id=None, token_id="x")):
            with pytest.raises(MissingError):
                credentials.revoke_token(session, denied, several[0].id)
        with pytest.raises(DeniedError, match="a token revokes itself alone"):
            credentials.revoke_token(session, by_itself, several[1].id)
        with pytest.raises(MissingError):
            credentials.revoke_token(session, buyer, "0" * 32)
        assert all(token.revoked_at is None for token in several)
        for caller, token in (
            (by_itself, several[0]),
            (buyer, several[1]),
            (hub, several[2]),
            (replace(hub, person_id=None), several[3]),
        ):
            ended = credentials.revoke_token(session, caller, token.id)
            assert ended is token and token.revoked_at is not None
        first = several[1].revoked_at
        assert credentials.revoke_token(session, buyer, several[1].id).revoked_at == first


def test_tokens_are_listed_the_newest_first_and_sessions_are_not(small: DeskMarket) -> None:
    buyer = small["buyer"]
    with small.database.begin() as session:
        made = [credentials.issue_token(session, buyer, label=label, scopes=["read"], days=1)[0] for label in "abc"]
        for age, token in enumerate(made):
            token.created_at = now() - dt.timedelta(hours=(2, 0, 1)[age])
        session.flush()
        assert [token.label for token in credentials.tokens(session, buyer)] == ["b", "c", "a"]
        for id, token in zip("zyx", made, strict=True):
            token.id, token.created_at = id * 32, made[0].created_at
        session.flush()
        assert [token.label for token in credentials.tokens(session, buyer)] == ["c", "b", "a"]
        assert credentials.tokens(session, small["rival"]) == []
        with pytest.raises(DeniedError):
            credentials.tokens(session, replace(buyer, scopes=frozenset({"jobs"})))


def test_signing_out_ends_one_session_once(small: DeskMarket) -> None:
    with small.database.begin() as session:
        one, other = (credentials.sign_in_vouched(session, "ann@buyer.example") for _ in range(2))
        credentials.sign_out(session, one.caller)
        token = session.get_one(Token, one.caller.token_id)
        ended = token.revoked_at
        credentials.sign_out(session, one.caller)
        assert ended is not None and token.revoked_at == ended
        assert credentials.caller_of(session, other.session_secret, "session") == other.caller
        credentials.sign_out(session, replace(other.caller, token_id=None))
        credentials.sign_out(session, replace(other.caller, token_id="0" * 32))
        assert credentials.caller_of(session, other.session_secret, "session") == other.caller


def test_a_new_password_ends_the_persons_other_sessions_and_links_and_nothing_else(
    small: DeskMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "_HASHER", PasswordHasher(time_cost=1, memory_cost=64, parallelism=1))
    buyer, hour = small["buyer"], dt.timedelta(hours=1)
    with small.database.begin() as session:
        gone = now() - hour

        def token(slug: str, kind: str) -> Token:
            whose = small[slug]
            return new_token(session, whose.organisation_id, whose.person_id, kind, hour, ["read"])[0]

        kept = [token("buyer", "api"), token("rival", "session"), token("rival", "link"), token("rival", "api")]
        ended = [token("buyer", "session"), token("buyer", "link")]
        before, used = token("buyer", "session"), token("buyer", "session")
        before.revoked_at = gone
        session.flush()
        credentials.set_password(session, replace(buyer, token_id=used.id), "correct horse battery")
        for one in (*kept, *ended, before, used):
            session.refresh(one)
        assert [one.revoked_at for one in (*kept, used)] == [None] * 5
        assert all(one.revoked_at is not None for one in ended) and before.revoked_at == gone
        credentials.set_password(session, replace(buyer, token_id=None), "another horse battery")
        session.refresh(used)
        assert used.revoked_at is not None
        for length, fine in ((11, False), (12, True), (200, True), (201, False)):
            if fine:
                credentials.set_password(session, buyer, "x" * length)
            else:
                with pytest.raises(InvalidError, match="12 to 200 characters"):
                    credentials.set_password(session, buyer, "x" * length)
        with pytest.raises(DeniedError):
            credentials.set_password(session, replace(buyer, person_id=None), "x" * 12)


def test_a_link_lets_its_person_in_once_and_leaves_those_of_others(small: DeskMarket) -> None:
    hub, buyer, rival = small["hub"], small["buyer"], small["rival"]
    with small.database.begin() as session:
        theirs = credentials.issue_link(session, hub, rival.person_id or "")
        before = now()
        first, second = (credentials.issue_link(session, buyer, buyer.person_id or "") for _ in range(2))
        link = session.scalars(select(Token).where(Token.digest == digest_of(second))).one()
        week = dt.timedelta(days=7)
        assert before + week - SECOND <= link.expires_at <= now() + week + SECOND
        assert (link.kind, link.scopes, link.person_id) == ("link", [], buyer.person_id)
        with pytest.raises(UnknownCallerError, match="was used before, has expired"):
            credentials.redeem_link(session, first)
        signed = credentials.redeem_link(session, second)
        assert (signed.caller.slug, signed.caller.person_id) == ("buyer", buyer.person_id)
        session.refresh(link)
        assert link.used_at is not None
        own = session.get_one(Token, signed.caller.token_id)
        half = dt.timedelta(hours=12)
        assert own.kind == "session" and before + half - SECOND <= own.expires_at <= now() + half + SECOND
        assert credentials.redeem_link(session, theirs).caller.slug == "rival"


@pytest.mark.parametrize("spoilt", [{"used_at": now()}, {"revoked_at": now()}, {"expires_at": now()}, {"kind": "api"}])
def test_a_link_that_was_spoilt_lets_nobody_in(small: DeskMarket, spoilt: dict[str, object]) -> None:
    with small.database.begin() as session:
        secret = credentials.issue_link(session, small["buyer"], small["buyer"].person_id or "")
        session.execute(update(Token).where(Token.digest == digest_of(secret)).values(**spoilt))
        with pytest.raises(UnknownCallerError, match="was used before, has expired"):
            credentials.redeem_link(session, secret)


@pytest.mark.parametrize("who", ["person", "organisation"])
def test_who_is_shut_out_signs_in_by_nothing(small: DeskMarket, who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "_HASHER", PasswordHasher(time_cost=1, memory_cost=64, parallelism=1))
    buyer = small["buyer"]
    with small.database.begin() as session:
        credentials.set_password(session, buyer, "correct horse battery")
        link = credentials.issue_link(session, buyer, buyer.person_id or "")
        if who == "person":
            session.get_one(Person, buyer.person_id).disabled_at = now()
        else:
            session.get_one(Organisation, buyer.organisation_id).suspended_at = now()
        session.flush()
        attempts: list[Callable[[], object]] = [
            lambda: credentials.redeem_link(session, link),
            lambda: credentials.sign_in(session, "ann@buyer.example", "correct horse battery"),
            lambda: credentials.sign_in_vouched(session, "ann@buyer.example"),
        ]
        for attempt in attempts:
            with pytest.raises(UnknownCallerError):
                attempt()


def test_nobodys_password_fits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the password whose hash is checked in place of none."""
    hasher = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
    monkeypatch.setattr(credentials, "_HASHER", hasher)
    monkeypatch.setattr(credentials, "_nobodys", lambda: hasher.hash("known"))
    with pytest.raises(UnknownCallerError):
        credentials.check_password(None, "known")
    credentials.check_password(hasher.hash("known"), "known")
    for wrong in (hasher.hash("other"), "no hash"):
        with pytest.raises(UnknownCallerError):
            credentials.check_password(wrong, "known")
    longest = hasher.hash("x" * 200)
    credentials.check_password(longest, "x" * 200)
    for length in (199, 201):
        with pytest.raises(UnknownCallerError):
            credentials.check_password(longest, "x" * length)


def test_whom_a_person_a_program_and_the_operator_may_reach(small: DeskMarket) -> None:
    buyer, rival, hub = small["buyer"], small["rival"], small["hub"]
    with small.database.begin() as session:
        assert credentials.own_person(session, buyer, buyer.person_id or "").id == buyer.person_id
        assert credentials.own_person(session, hub, rival.person_id or "").id == rival.person_id
        for person in (rival.person_id or "", "0" * 32):
            with pytest.raises(MissingError, match="there is no such person"):
                credentials.own_person(session, buyer, person)
        with pytest.raises(MissingError):
            credentials.own_person(session, hub, "0" * 32)
        program = replace(hub, person_id=None)
        assert credentials.own_person(session, program, rival.person_id or "").id == rival.person_id
        for asking, whose in ((program, hub), (replace(buyer, person_id=None), buyer)):
            with pytest.raises(DeniedError, match="only a person who has signed in"):
                credentials.own_person(session, asking, whose.person_id or "")
        second = members.make_operator(session, "Second", "second", "bo@second.example").person
        assert credentials.own_person(session, hub, second.id) is second
        with pytest.raises(DeniedError, match="only a person who has signed in"):
            credentials.own_person(session, program, second.id)
        with pytest.raises(DeniedError, match="'operate'"):
            credentials.own_person(session, replace(hub, scopes=frozenset({"read"})), rival.person_id or "")


def test_a_program_does_not_list_its_colleagues(small: DeskMarket) -> None:
    with small.database.begin() as session:
        assert [person.email for person in members.people(session, small["buyer"])] == ["ann@buyer.example"]
        with pytest.raises(DeniedError, match="only a person who has signed in"):
            members.people(session, replace(small["buyer"], person_id=None))
