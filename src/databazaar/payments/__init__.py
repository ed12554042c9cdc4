"""Payments decide what an access may cost, and what is paid once its gain is known. One rule a file."""

from databazaar.payments.price_per_access import PricePerAccess
from databazaar.payments.price_per_row import PricePerRow
from databazaar.payments.protocol import PAYMENTS, Payment

__all__ = ["PAYMENTS", "Payment", "PricePerAccess", "PricePerRow"]
