"""Aggregators decide how a round's updates become one step of the model. One rule a file."""

from databazaar.aggregators.centred_clipping import CentredClipping
from databazaar.aggregators.geometric_median import GeometricMedian
from databazaar.aggregators.krum import Krum
from databazaar.aggregators.mean import Mean
from databazaar.aggregators.median import Median
from databazaar.aggregators.protocol import AGGREGATORS, Aggregator
from databazaar.aggregators.trimmed_mean import TrimmedMean

__all__ = [
    "AGGREGATORS",
    "Aggregator",
    "CentredClipping",
    "GeometricMedian",
    "Krum",
    "Mean",
    "Median",
    "TrimmedMean",
]
