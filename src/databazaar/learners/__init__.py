"""Learners: how the model is trained from what is bought. Here are the settings; databazaar/training works."""

from databazaar.learners.averaging import Averaging
from databazaar.learners.blending import Blending
from databazaar.learners.boosting import Boosting
from databazaar.learners.in_run import InRun
from databazaar.learners.newton import Newton
from databazaar.learners.protocol import LEARNERS, Learner, Market
from databazaar.models import Flat


def learner_for(model: object) -> Learner:
    """The learner of a model where none is named."""
    learner: Learner = LEARNERS.build({"kind": getattr(model, "learner", Flat.learner)})
    return learner


__all__ = ["LEARNERS", "Averaging", "Blending", "Boosting", "InRun", "Learner", "Market", "Newton", "learner_for"]
