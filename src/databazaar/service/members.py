"""Who takes part: the market itself, its organisations and their people."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from databazaar.money import Currency
from databazaar.service.caller import Caller
from databazaar.service.credentials import link_for, own_person, refuse_program, require_person, revoke_of
from databazaar.service.database.tables import Market, Organisation, Person, Token, now
from databazaar.service.errors import ConflictError, InvalidError, MissingError
from databazaar.service.names import slug_of, visible

MOST_FEE = 10_000
"""Basis points: all that providers are paid, once more."""


def create_market(session: Session, name: str, currency: str, decimals: int = 2) -> Market:
    """The one market of this database. `decimals` are those of the currency: 2 for euros and cents."""
    if session.get(Market, 1) is not None:
        raise ConflictError("this database has a market already: name another database for a second one")
    if len(currency) != 3 or not (currency.isascii() and currency.isalpha() and currency.isupper()):
        raise InvalidError(f"currency = {currency!r} is not three capital letters: write one such as EUR")
    if not 0 <= decimals <= 4:
        raise InvalidError(f"decimals = {decimals} is not between 0 and 4: write 2 for euros and cents")
    made = Market(id=1, name=visible(name, "name"), currency=currency, decimals=decimals)
    session.add(made)
    return made


def market(session: Session, lock: bool = False) -> Market:
    found = session.get(Market, 1, with_for_update=lock)
    if found is None:
        raise MissingError(
            "there is no market in this database yet: make it with `bazaar serve operator EMAIL --market NAME`"
        )
    return found


def currency_of(session: Session) -> Currency:
    """How amounts are written here."""
    found = market(session)
    return Currency(found.currency, found.decimals)


def set_fee(session: Session, caller: Caller, basis_points: int) -> Market:
    """Sets the fee on what providers are paid; jobs that are funded keep the rate they have. For the operator."""
    caller.require_operator()
    if not 0 <= basis_points <= MOST_FEE:
        raise InvalidError(f"a fee of {basis_points} basis points is not between 0 and {MOST_FEE:,}: 100 are 1 %")
    found = market(session)
    found.fee_basis_points = basis_points
    return found


LONGEST_SLUG, LONGEST_EMAIL = 40, 254
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")


@dataclass(frozen=True)
class Invitation:
    """`secret` goes into a one-time link, which the inviting person passes on."""

    organisation: Organisation
    person: Person
    secret: str


def invite(
    session: Session,
    caller: Caller,
    *,
    name: str,
    slug: str,
    email: str,
    consumes: bool = False,
    provides: bool = False,
) -> Invitation:
    """A new organisation with its first person."""
    caller.require_operator()
    if not (consumes or provides):
        raise InvalidError("an organisation consumes, provides or does both: choose", place="roles")
    return _founded(session, name, slug, email, consumes=consumes, provides=provides)


def make_operator(session: Session, name: str, slug: str, email: str) -> Invitation:
    """A new organisation that operates the market. Its caller has the machine: no right is asked for."""
    return _founded(session, name, slug, email, operates=True)


def _founded(session: Session, name: str, slug: str, email: str, **roles: bool) -> Invitation:
    slug = slug_of(slug, "slug", LONGEST_SLUG)
    organisation = Organisation(slug=slug, name=visible(name, "name"), **roles)
    session.add(organisation)
    _flushed(session, f"the slug {slug!r} is taken: choose another one", "slug")
    return _joined(session, organisation, email)


def invite_person(
    session: Session, caller: Caller, *, email: str, name: str = "", organisation_id: str | None = None
) -> Invitation:
    """A colleague for one's own organisation, or by the operator for any. A token invites nobody into an organisation
    that is there already: the link would let it in."""
    require_person(caller)
    organisation = _theirs(session, caller, organisation_id)
    return _joined(session, organisation, email, name)


def _joined(session: Session, organisation: Organisation, email: str, name: str = "") -> Invitation:
    email = email.strip().lower()
    if len(email) > LONGEST_EMAIL or not email.isprintable() or not _EMAIL.fullmatch(email):
        raise InvalidError(f"{email[:60]!r} is no e-mail address: write one such as ann@example.org", place="email")
    name = visible(name, "name") if name else ""
    person = Person(organisation_id=organisation.id, email=email, name=name)
    session.add(person)
    _flushed(session, f"{email} takes part already: each person has an e-mail of their own", "email")
    return Invitation(organisation, person, link_for(session, person))


def _flushed(session: Session, otherwise: str, place: str) -> None:
    try:
        session.flush()
    except IntegrityError:
        raise ConflictError(otherwise, place=place) from None


def _theirs(session: Session, caller: Caller, organisation_id: str | None) -> Organisation:
    """The caller's own organisation, or any for the operator."""
    if organisation_id not in (None, caller.organisation_id):
        if not caller.operates:
            raise MissingError("there is no such organisation: look at your own")
        caller.require_operator()
    organisation = _organisation(session, organisation_id or caller.organisation_id)
    refuse_program(caller, organisation)
    return organisation


def _organisation(session: Session, organisation_id: str) -> Organisation:
    found = session.get(Organisation, organisation_id)
    if found is None:
        raise MissingError("there is no such organisation: look at the list of organisations")
    return found


def organisations(session: Session, caller: Caller) -> list[Organisation]:
    """All organisations for the operator; anybody else sees their own."""
    caller.require("read")
    query = select(Organisation).order_by(Organisation.created_at, Organisation.slug)
    if not caller.sees_all:
        query = query.where(Organisation.id == caller.organisation_id)
    return list(session.scalars(query))


def people(session: Session, caller: Caller, organisation_id: str | None = None) -> list[Person]:
    """The people of one's own organisation, or of any for the operator."""
    organisation = _theirs(session, caller, organisation_id)
    query = select(Person).where(Person.organisation_id == organisation.id)
    return list(session.scalars(query.order_by(Person.created_at, Person.email)))


def disable_person(session: Session, caller: Caller, person_id: str) -> Person:
    """Shuts one person out, with all their tokens. Nobody shuts themselves out: then nobody might be left."""
    person = own_person(session, caller, person_id)
    if person.id == caller.person_id:
        raise ConflictError("nobody shuts themselves out: let a colleague do it")
    person.disabled_at = person.disabled_at or now()
    revoke_of(session, person.id, "api", "link", "session")
    return person


def suspend(session: Session, caller: Caller, organisation_id: str) -> Organisation:
    """Shuts an organisation out at once, with all its tokens. What it has running ends as it was agreed."""
    caller.require_operator()
    organisation = _organisation(session, organisation_id)
    if organisation.operates:
        still = select(Organisation.id).where(Organisation.operates, Organisation.suspended_at.is_(None))
        others = set(session.scalars(still.order_by(Organisation.id).with_for_update())) - {organisation.id}
        if not others:
            raise ConflictError("this is the last operator: make another one first, with `bazaar serve operator`")
    organisation.suspended_at = organisation.suspended_at or now()
    theirs = update(Token).where(Token.organisation_id == organisation.id, Token.revoked_at.is_(None))
    session.execute(theirs.values(revoked_at=now()))
    return organisation


def restore(session: Session, caller: Caller, organisation_id: str) -> Organisation:
    """Lets a suspended organisation in again. Its tokens stay revoked: its people sign in, and issue new ones."""
    caller.require_operator()
    organisation = _organisation(session, organisation_id)
    organisation.suspended_at = None
    return organisation
