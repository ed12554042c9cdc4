"""The market itself: its name, its one currency, its fee."""

from __future__ import annotations

from sqlalchemy.orm import Session

from databazaar.money import Currency
from databazaar.service.caller import Caller
from databazaar.service.database.tables import Market
from databazaar.service.errors import ConflictError, InvalidError, MissingError
from databazaar.service.wording import visible

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
    session.flush()
    return made


def market(session: Session, lock: bool = False) -> Market:
    found = session.get(Market, 1, with_for_update=lock or None)
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
    """What the operator takes on top of what providers are paid; jobs that are funded keep the rate they have."""
    caller.require_operator()
    if not 0 <= basis_points <= MOST_FEE:
        raise InvalidError(f"a fee of {basis_points} basis points is not between 0 and {MOST_FEE:,}: 100 are 1 %")
    found = market(session)
    found.fee_basis_points = basis_points
    session.flush()
    return found
