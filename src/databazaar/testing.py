"""Checks for rules and engines of your own: call one in a test; it raises AssertionError where a contract is broken."""

from __future__ import annotations

from databazaar.aggregators.check import check_aggregator
from databazaar.engines.check import check_engine
from databazaar.payments.check import check_payment
from databazaar.samplers.check import check_sampler
from databazaar.stops.check import check_stop

__all__ = ["check_aggregator", "check_engine", "check_payment", "check_sampler", "check_stop"]
