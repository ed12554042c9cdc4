"""Offers: datasets that providers put up, at the hub or at a site of the federation, under terms of their own.

What is shown of the data is the names and kinds of columns and how many rows there are; never a value.
"""

from databazaar.service.offers.catalogue import browse, current_version, listing, own_offers
from databazaar.service.offers.joining import join_command
from databazaar.service.offers.making import (
    change_policy,
    make_file_offer,
    make_site_offer,
    new_version,
    own_offer,
    withdraw_offer,
)

__all__ = [
    "browse",
    "change_policy",
    "current_version",
    "join_command",
    "listing",
    "make_file_offer",
    "make_site_offer",
    "new_version",
    "own_offer",
    "own_offers",
    "withdraw_offer",
]
