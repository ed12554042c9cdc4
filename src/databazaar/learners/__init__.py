"""Learners: how the model is trained from what is bought. Here are the settings; databazaar/training works."""

from databazaar.learners.averaging import Averaging
from databazaar.learners.in_run import InRun
from databazaar.learners.protocol import LEARNERS, Learner, Market

__all__ = ["LEARNERS", "Averaging", "InRun", "Learner", "Market"]
