"""Gains of a move that is a sum of parts in predictions, one a provider: what trees and linear models share.

With scores f of the hold-out, move v = Σ v_i and m = f + v/2, party i gains U(m + v_i/2) − U(m − v_i/2): the Shapley
value of the game whose coalitions S reach f + Σ_{i in S} v_i where U is quadratic along the moves, as in
training/averaging.py. Gains `alone` are U(f + v_i) − U(f).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.errors import BazaarError
from databazaar.learning.inputs import Examples
from databazaar.learning.own_rows import joined
from databazaar.learning.utilities import OutputScorer, Scores
from databazaar.parties import Consumer
from databazaar.training.protocol import Lesson
from databazaar.utilities import Utility
from databazaar.utilities.exp_loss import ExpLoss

Numbers = NDArray[np.float64]


def own_rows(consumer: Consumer) -> Examples:
    """All of the consumer's rows but the audit's."""
    assert consumer.holdout is not None
    return consumer.holdout if consumer.train is None else joined([consumer.train, consumer.holdout])


def output_scorer(consumer: Consumer, learner: str) -> OutputScorer:
    """What judges a model by its outputs for the hold-out."""
    if not isinstance(consumer.scoring, Utility) or consumer.holdout is None:
        raise BazaarError(f'learner "{learner}" scores predictions: use one of the named utilities')
    return OutputScorer(consumer.task.loss, consumer.holdout[1].cpu(), consumer.scoring)


def judged(scorer: OutputScorer, scores: Numbers) -> Scores:
    """Of models with these scores of the hold-out [models, rows, outputs]."""
    return scorer.judge(_outputs(torch.from_numpy(scores)))


def _outputs(scores: Tensor) -> Tensor:
    return scores[..., 0] if scores.shape[-1] == 1 else scores


def row_losses(consumer: Consumer, scores: Numbers, y: Tensor) -> Numbers:
    """Of rows with these scores [rows, outputs]."""
    losses: Numbers = consumer.task.loss(_outputs(torch.from_numpy(scores)), y.cpu()).numpy()
    return losses


def slopes(consumer: Consumer, scores: Numbers, gradients: Numbers) -> Numbers:
    """The derivative of the utility by the scores of the hold-out [rows, outputs]; that of −loss where it has none.
    `gradients` are the negative ones of its rows' losses."""
    assert consumer.holdout is not None
    exponential = isinstance(consumer.scoring, ExpLoss)
    scale = float(np.exp(-row_losses(consumer, scores, consumer.holdout[1]).mean())) if exponential else 1.0
    return scale / len(gradients) * gradients


def gains_in_predictions(
    scorer: OutputScorer, scores: Numbers, parts: Numbers, lesson: Lesson, counted: Sequence[int]
) -> dict[int, float]:
    """Of each provider that counts, per draw. Their `parts` come first, in this order; others' follow."""
    theirs, draws = parts[: len(counted)], lesson.drawn.draws.tolist()
    if lesson.gains == "alone":
        gains = judged(scorer, scores + theirs).utility - lesson.utility
    else:
        middle = scores + parts.sum(0) / 2
        both = judged(scorer, np.concatenate([middle + theirs / 2, middle - theirs / 2])).utility
        gains = (both[: len(counted)] - both[len(counted) :]) / [draws.count(i) for i in counted]
    finite = np.nan_to_num(gains, posinf=0.0, neginf=0.0).tolist()
    return dict(zip(counted, finite, strict=True))
