"""Utilities say how good a model is for the consumer, by its outputs on the whole hold-out. One a file."""

from databazaar.utilities.protocol import UTILITIES, Judged, Utility

__all__ = ["UTILITIES", "Judged", "Utility"]
