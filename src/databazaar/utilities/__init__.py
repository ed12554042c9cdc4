"""Utilities say how good a model is for the consumer, by its outputs on the whole hold-out. One a file."""

from databazaar.utilities.protocol import FUNCTION, UTILITIES, Judged, Utility, utility_of

__all__ = ["FUNCTION", "UTILITIES", "Judged", "Utility", "utility_of"]
