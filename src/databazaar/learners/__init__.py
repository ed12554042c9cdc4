"""Learners: how the model is trained from what is bought. Here are the settings; databazaar/training works."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from databazaar.learners.averaging import Averaging
from databazaar.learners.blending import Blending
from databazaar.learners.boosting import Boosting
from databazaar.learners.in_run import InRun
from databazaar.learners.newton import Newton
from databazaar.learners.protocol import LEARNERS, Learner, Market
from databazaar.models import MODELS, Flat

if TYPE_CHECKING:
    from databazaar.parties import Consumer, Provider
    from databazaar.samplers import Sampler


def learner_for(model: object) -> Learner:
    """The learner that a model brings along; averaging where it brings none."""
    learner: Learner = LEARNERS.build({"kind": getattr(model, "learner", Flat.learner)})
    return learner


def default_learner(consumer: Consumer, providers: Sequence[Provider], sampler: Sampler) -> Learner:
    """The learner where none is named and rows are here: a network is trained in-run, unless something is said of
    updates (an oracle, a step), or the sampler is the paper's, whose rate η fits the gains of updates. Linear models
    are averaged: a mean of what providers have solved is as good there, and needs no rate that falls."""
    from databazaar.learning.models import form_of

    learner, form = learner_for(consumer.model), form_of(consumer.task.model)
    network = consumer.task.model is not None and consumer.holdout is not None
    in_run = network and (form is None or MODELS.find(form.kind).learner == InRun.kind)
    updates = consumer.step != 1.0 or not all(provider.sells_rows for provider in providers) or sampler.kind == "osmd"
    return InRun() if isinstance(learner, Averaging) and in_run and not updates else learner


__all__ = [
    "LEARNERS",
    "Averaging",
    "Blending",
    "Boosting",
    "InRun",
    "Learner",
    "Market",
    "Newton",
    "default_learner",
    "learner_for",
]
