"""Who takes part, to the last bound: the market, organisations, people, and who is shut out by what."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from databazaar.service import credentials, members
from databazaar.service.caller import Caller
from databazaar.service.credentials import new_token
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Market, Organisation, Person, Token, now
from databazaar.service.errors import ConflictError, DeniedError, InvalidError, MissingError, UnknownCallerError
from desk_market import DeskMarket
from row_locks import row_locks

HOUR = dt.timedelta(hours=1)


def weak(caller: Caller, *scopes: str) -> Caller:
    return replace(caller, scopes=frozenset(scopes))


def program(caller: Caller) -> Caller:
    return replace(caller, person_id=None)


@pytest.mark.parametrize("currency", ["EU", "EURO", "", "eur", "EUr", "E1R", "\u0410\u0411\u0412", "E R"])
def test_a_currency_is_three_capital_letters(sqlite_database: Database, currency: str) -> None:
    with sqlite_database.begin() as session:
        with pytest.raises(InvalidError, match="is not three capital letters"):
            members.create_market(session, "Harbour", currency)
        assert session.get(Market, 1) is None


@pytest.mark.parametrize(("decimals", "fine"), [(-1, False), (0, True), (4, True), (5, False)])
def test_a_currency_has_none_to_four_decimals(sqlite_database: Database, decimals: int, fine: bool) -> None:
    with sqlite_database.begin() as session:
        if not fine:
            with pytest.raises(InvalidError, match=f"decimals = {decimals} is not between 0 and 4"):
                members.create_market(session, "Harbour", "EUR", decimals)
            return
        made = members.create_market(session, " Harbour ", "EUR", decimals)
        assert (made.id, made.name, made.currency, made.decimals) == (1, "Harbour", "EUR", decimals)
        with row_locks(session) as locked:
            assert members.market(session) is made
            assert locked == []
            assert members.market(session, lock=True) is made
        assert locked == ["market"]
        assert members.currency_of(session).decimals == decimals


def test_a_market_has_cents_and_a_name_on_one_line(sqlite_database: Database) -> None:
    with sqlite_database.begin() as session:
        with pytest.raises(InvalidError, match="name must be visible"):
            members.create_market(session, "a\nb", "EUR")
        assert members.create_market(session, "Harbour", "EUR").decimals == 2
        with pytest.raises(ConflictError, match="has a market already"):
            members.create_market(session, "Harbour", "EUR")


def test_a_fee_is_at_most_all_that_providers_are_paid(small: DeskMarket) -> None:
    hub = small["hub"]
    with small.database.begin() as session:
        for fee in (10_000, 1, 0):
            assert (
                members.set_fee(session, hub, fee).fee_basis_points == fee == members.market(session).fee_basis_points
            )
        for fee in (-1, 10_001):
            with pytest.raises(InvalidError, match="is not between 0 and 10,000"):
                members.set_fee(session, hub, fee)
        for caller in (small["buyer"], weak(hub, "read", "money")):
            with pytest.raises(DeniedError):
                members.set_fee(session, caller, 100)
        assert members.market(session).fee_basis_points == 0


@pytest.mark.parametrize(("consumes", "provides"), [(True, False), (False, True), (True, True)])
def test_a_new_organisation_has_the_roles_that_it_is_given(small: DeskMarket, consumes: bool, provides: bool) -> None:
    with small.database.begin() as session:
        made = members.invite(
            session, small["hub"], name=" West ", slug="west", email="b@w", consumes=consumes, provides=provides
        )
        west = made.organisation
        assert (west.slug, west.name, west.suspended_at) == ("west", "West", None)
        assert (west.operates, west.consumes, west.provides) == (False, consumes, provides)
        assert (made.person.organisation_id, made.person.email, made.person.name) == (west.id, "b@w", "")
        caller = credentials.redeem_link(session, made.secret).caller
        assert (caller.organisation_id, caller.person_id) == (west.id, made.person.id)


def test_an_organisation_has_a_role_and_is_made_by_the_operator(small: DeskMarket) -> None:
    given: dict[str, Any] = {"name": "West", "slug": "west", "email": "b@w"}
    with small.database.begin() as session:
        with pytest.raises(InvalidError, match="consumes, provides or does both") as refused:
            members.invite(session, small["hub"], **given)
        assert refused.value.place == "roles"
        for caller in (small["buyer"], weak(small["hub"], "read")):
            with pytest.raises(DeniedError):
                members.invite(session, caller, **given, provides=True)
        made = members.make_operator(session, "Second", "second", "c@w").organisation
        assert (made.operates, made.consumes, made.provides) == (True, False, False)


@pytest.mark.parametrize(
    ("changed", "error", "place"),
    [
        ({"slug": "buyer"}, ConflictError, "slug"),
        ({"slug": "a" * 41}, InvalidError, "slug"),
        ({"name": ""}, InvalidError, "name"),
        ({"email": " ANN@buyer.example"}, ConflictError, "email"),
        ({"email": "b@" + "w" * 253}, InvalidError, "email"),
        ({"email": "b@w\u200b"}, InvalidError, "email"),
        ({"email": "b@w@w"}, InvalidError, "email"),
        ({"email": "@w"}, InvalidError, "email"),
        ({"email": "b@"}, InvalidError, "email"),
    ],
)
def test_what_is_wrong_in_an_invitation_is_told_with_its_field(
    small: DeskMarket, changed: dict[str, str], error: type[ConflictError], place: str
) -> None:
    given = {"name": "West", "slug": "west", "email": "b@w", **changed}
    with pytest.raises(error) as refused, small.database.begin() as session:
        members.make_operator(session, **given)
    assert refused.value.place == place
    with small.database.read() as session:
        assert len(members.organisations(session, small["hub"])) == 5


def test_slugs_and_addresses_may_be_as_long_as_their_bounds(small: DeskMarket) -> None:
    with small.database.begin() as session:
        made = members.make_operator(session, "West", "a" * 40, "b@" + "w" * 252)
        assert (len(made.organisation.slug), len(made.person.email)) == (40, 254)


def test_who_invites_whom(small: DeskMarket) -> None:
    hub, buyer, north = small["hub"], small["buyer"], small["north"]

    def invited(caller: Caller, local: str, of: Caller | None = None, **given: str) -> members.Invitation:
        whose = None if of is None else of.organisation_id
        return members.invite_person(session, caller, email=f"{local}@x", organisation_id=whose, **given)

    with small.database.begin() as session:
        for number, (caller, of) in enumerate([(buyer, None), (buyer, buyer), (hub, buyer)]):
            made = invited(caller, f"a{number}", of, name=" Bo ")
            assert (made.organisation.slug, made.person.name) == ("buyer", "Bo")
            assert credentials.redeem_link(session, made.secret).caller.slug == "buyer"
        made = invited(hub, "b")
        assert (made.organisation.slug, made.person.name) == ("hub", "")
        with pytest.raises(MissingError, match="look at your own"):
            invited(buyer, "c", north)
        with pytest.raises(DeniedError, match="'operate'"):
            invited(weak(hub, "read"), "c", north)
        for caller, of in ((program(buyer), None), (program(hub), north)):
            with pytest.raises(DeniedError, match="only a person"):
                invited(caller, "c", of)
        with pytest.raises(MissingError, match="list of organisations"):
            members.invite_person(session, hub, email="c@x", organisation_id="0" * 32)
        with pytest.raises(InvalidError, match="name must be visible"):
            invited(buyer, "c", name="\n")


def test_organisations_are_listed_the_oldest_first_and_are_ones_own(small: DeskMarket) -> None:
    hub, buyer = small["hub"], small["buyer"]
    with small.database.begin() as session:
        moment = now()
        for slug, age in (("buyer", 2), ("hub", 2), ("north", 3), ("rival", 3), ("south", 1)):
            session.get_one(Organisation, small[slug].organisation_id).created_at = moment - age * HOUR
        session.flush()
        listed = [one.slug for one in members.organisations(session, hub)]
        assert listed == ["north", "rival", "buyer", "hub", "south"]
        for caller in (buyer, weak(hub, "read")):
            assert [one.slug for one in members.organisations(session, caller)] == [caller.slug]
        with pytest.raises(DeniedError, match="'read'"):
            members.organisations(session, weak(hub, "operate"))


def test_people_are_listed_the_oldest_first_and_are_colleagues(small: DeskMarket) -> None:
    hub, buyer, north = small["hub"], small["buyer"], small["north"]
    with small.database.begin() as session:
        moment = now()
        for name, age in (("d", 1), ("c", 2), ("b", 2)):
            person = members.invite_person(session, buyer, email=f"{name}@x").person
            person.created_at = moment - age * HOUR
        session.get_one(Person, buyer.person_id).created_at = moment
        session.flush()
        for caller, whose in ((buyer, None), (buyer, buyer), (hub, buyer), (program(hub), buyer)):
            of = None if whose is None else whose.organisation_id
            emails = [one.email for one in members.people(session, caller, of)]
            assert emails == ["b@x", "c@x", "d@x", "ann@buyer.example"]
        with pytest.raises(MissingError):
            members.people(session, buyer, north.organisation_id)
        with pytest.raises(DeniedError, match="only a person"):
            members.people(session, program(hub))


def several_tokens(session: Session, caller: Caller) -> dict[str, Token]:
    kinds = ("api", "link", "session")
    return {
        kind: new_token(session, caller.organisation_id, caller.person_id, kind, HOUR, ["read"])[0] for kind in kinds
    }


def test_a_person_is_shut_out_with_all_their_tokens_and_nobody_else(small: DeskMarket) -> None:
    buyer = small["buyer"]
    with small.database.begin() as session:
        bo = members.invite_person(session, buyer, email="bo@x").person
        theirs = several_tokens(session, replace(buyer, person_id=bo.id))
        others = several_tokens(session, buyer)
        with pytest.raises(ConflictError, match="nobody shuts themselves out"):
            members.disable_person(session, buyer, buyer.person_id or "")
        assert members.disable_person(session, buyer, bo.id) is bo
        first = bo.disabled_at
        for token in (*theirs.values(), *others.values()):
            session.refresh(token)
        assert first is not None and all(token.revoked_at is not None for token in theirs.values())
        assert all(token.revoked_at is None for token in others.values())
        assert members.disable_person(session, small["hub"], bo.id).disabled_at == first
        with pytest.raises(MissingError):
            members.disable_person(session, small["rival"], bo.id)


def test_an_organisation_is_shut_out_with_all_its_tokens_and_let_in_again(small: DeskMarket) -> None:
    hub, buyer = small["hub"], small["buyer"]
    with small.database.begin() as session:
        theirs, others = several_tokens(session, buyer), several_tokens(session, small["rival"])
        theirs["api"].revoked_at = before = now() - HOUR
        session.flush()
        assert not members.suspend(session, hub, buyer.organisation_id).operates
        organisation = session.get_one(Organisation, buyer.organisation_id)
        first = organisation.suspended_at
        for token in (*theirs.values(), *others.values()):
            session.refresh(token)
        assert first is not None and all(token.revoked_at is not None for token in theirs.values())
        assert theirs["api"].revoked_at == before and all(token.revoked_at is None for token in others.values())
        assert members.suspend(session, hub, buyer.organisation_id).suspended_at == first
        for caller in (small["rival"], weak(hub, "read")):
            with pytest.raises(DeniedError):
                members.restore(session, caller, buyer.organisation_id)
            with pytest.raises(DeniedError):
                members.suspend(session, caller, buyer.organisation_id)
        with pytest.raises(UnknownCallerError):
            credentials.sign_in_vouched(session, "ann@buyer.example")
        assert members.restore(session, hub, buyer.organisation_id) is organisation
        assert organisation.suspended_at is None
        assert credentials.sign_in_vouched(session, "ann@buyer.example").caller.slug == "buyer"
        for deed in (members.suspend, members.restore):
            with pytest.raises(MissingError):
                deed(session, hub, "0" * 32)


def test_one_operator_is_left_that_is_not_suspended(small: DeskMarket) -> None:
    hub = small["hub"]
    with small.database.begin() as session:
        second = members.make_operator(session, "Second", "second", "b@s").organisation
        session.execute(update(Organisation).where(Organisation.id == second.id).values(suspended_at=now()))
        with pytest.raises(ConflictError, match="this is the last operator"):
            members.suspend(session, hub, hub.organisation_id)
        members.restore(session, hub, second.id)
        with row_locks(session) as locked:
            assert members.suspend(session, hub, hub.organisation_id).suspended_at is not None
        assert locked == ["organisations"]
        with pytest.raises(ConflictError, match="this is the last operator"):
            members.suspend(session, hub, second.id)
