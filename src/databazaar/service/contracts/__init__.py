"""Contracts: for one job, what a provider lets the consumer have, of which version of its data, and at which price."""

from databazaar.service.contracts.asking import Needs, conclude, request
from databazaar.service.contracts.deciding import decide, expire_due
from databazaar.service.contracts.looking import earnings, own_contract, own_contracts, requests
from databazaar.service.contracts.schemas import keep_schema, schema_of

__all__ = [
    "Needs",
    "conclude",
    "decide",
    "earnings",
    "expire_due",
    "keep_schema",
    "own_contract",
    "own_contracts",
    "request",
    "requests",
    "schema_of",
]
