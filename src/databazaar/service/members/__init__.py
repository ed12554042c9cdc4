"""Who takes part: the market itself, its organisations and their people, and how they show who they are."""

from databazaar.service.members.links import Signed, issue_link, redeem_link
from databazaar.service.members.market import create_market, currency_of, market, set_fee
from databazaar.service.members.organisations import (
    Invitation,
    disable_person,
    invite,
    invite_person,
    make_operator,
    organisations,
    people,
    restore,
    suspend,
)
from databazaar.service.members.passwords import (
    check_password,
    kept_password,
    set_password,
    sign_in,
    sign_in_vouched,
)
from databazaar.service.members.tokens import caller_of, issue_token, revoke_token, sign_out, tokens

__all__ = [
    "Invitation",
    "Signed",
    "caller_of",
    "check_password",
    "create_market",
    "currency_of",
    "disable_person",
    "invite",
    "invite_person",
    "issue_link",
    "issue_token",
    "kept_password",
    "make_operator",
    "market",
    "organisations",
    "people",
    "redeem_link",
    "restore",
    "revoke_token",
    "set_fee",
    "set_password",
    "sign_in",
    "sign_in_vouched",
    "sign_out",
    "suspend",
    "tokens",
]
