"""Stops decide when a run ends. One rule a file; the first that has a reason ends the run."""

from databazaar.stops.budget import Budget
from databazaar.stops.no_progress import NoProgress
from databazaar.stops.patience import Patience
from databazaar.stops.protocol import STOPS, History, Stop
from databazaar.stops.target_utility import TargetUtility

__all__ = ["STOPS", "Budget", "History", "NoProgress", "Patience", "Stop", "TargetUtility"]
