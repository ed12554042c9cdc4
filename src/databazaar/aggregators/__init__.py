"""Aggregators decide how a round's updates become one step of the model. One rule a file."""

from databazaar.aggregators.mean import Mean
from databazaar.aggregators.protocol import AGGREGATORS, Aggregator

__all__ = ["AGGREGATORS", "Aggregator", "Mean"]
