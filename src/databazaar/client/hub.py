"""A hub, as its operator, its consumers and its providers use it from Python."""

from __future__ import annotations

from databazaar.client.buying import Buying
from databazaar.client.money import Money
from databazaar.client.operating import Operating
from databazaar.client.providing import Providing


class Hub(Operating, Providing, Buying, Money):
    """One hub, by its address and an API token; what it refuses is a HubError with its own sentence.

    Every POST is repeated where the line fails, under one Idempotency-Key, so nothing is done twice. Answers are
    objects of `databazaar.client.shapes`; amounts are in minor units of the market's currency.
    """
