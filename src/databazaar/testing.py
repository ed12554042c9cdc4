"""Checks for rules, engines and transports of your own, for a test: AssertionError where a contract is broken."""

from __future__ import annotations

from databazaar.aggregators.check import check_aggregator
from databazaar.engines.check import check_engine
from databazaar.federation.transport import check_transport
from databazaar.payments.check import check_payment
from databazaar.samplers.check import check_sampler
from databazaar.stops.check import check_stop

__all__ = ["check_aggregator", "check_engine", "check_payment", "check_sampler", "check_stop", "check_transport"]
