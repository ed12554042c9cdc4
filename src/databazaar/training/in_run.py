"""In-run training: one model and one optimizer for the whole run. An answer is some of a provider's rows.

A round deals the rows of all drawn providers, and the buyer's own, into batches, and the optimizer takes one ordinary
step on each. Provider i's part of the move is −η n_i P g_i: η is the sum of the round's rates, n_i its share of the
rows, g_i the gradient of its mean loss where the round began, and P how the optimizer scales a gradient (Adam:
1 / √(second moment + v²); SGD: 1 / (1 − momentum)). Its gain is what the part changes on the hold-out to first order:

    gain_i = η n_i ⟨g_i, P v⟩ · (−∂U/∂loss),   v = the gradient of the hold-out loss

and no more than a bounded utility can change. This is the first-order in-run Shapley value of the provider's rows (Wang
et al., Data Shapley in One Training Run, ICLR 2025). ⟨g_i, P v⟩ is the derivative of provider i's loss along P v; one
central difference gives it, with two forward passes of some of its rows and no gradient per provider.

Departures from the market's paper (Algorithm 1): there is no local training, line 10 is the optimizer's steps, and the
gain is of first order. The derivative of a utility that has none (accuracy, AUC) is taken to be that of −loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from databazaar.codes import Code
from databazaar.engines.protocol import NO_UTILITY, out_of_memory, raised
from databazaar.errors import BazaarError
from databazaar.learning.inputs import Examples, Inputs
from databazaar.learning.models import Layout, caller
from databazaar.learning.oracles import BETAS, EPSILON, Descent
from databazaar.learning.own_rows import OWN_ROWS, joined
from databazaar.learning.parameter_exchange import StayingBuffers
from databazaar.learning.task import Task
from databazaar.learning.torch_state import seeded
from databazaar.randomness import oracle_key, sample_order
from databazaar.training.parameters import Parameters, ParameterTraining, vector_of
from databazaar.training.protocol import Learned, Lesson, Memory, Model
from databazaar.utilities.exp_loss import ExpLoss

if TYPE_CHECKING:
    from databazaar.learners import InRun, Market

Batch = tuple[Inputs, Tensor, Tensor]
"""Inputs, targets, and what each row weighs in the batch's loss."""
FIRST, SECOND, STEPS = "learner.first", "learner.second", "learner.steps"
"""The optimizer's state, by its names in a snapshot."""
MOMENTUM = 0.9
"""Of sgd."""
FLOOR = 0.02
"""The rate at the end of the budget, in parts of the highest."""
PROBE = 0.01
"""How far a central difference looks: by so much the hold-out loss changes to first order."""
SMALLEST = 16
"""Rows of a step, where a round has too few for its least number of steps."""
PIECE = 4096
"""Rows that pass the model at once where no step is taken."""


@dataclass(frozen=True, eq=False)
class InRunTraining(ParameterTraining):
    """`holdout` gives the direction in which parts are scored; `own` are training rows of the consumer's."""

    rule: InRun
    task: Task
    holdout: Examples
    own: Examples | None
    seed: int
    bounded: bool
    scales_by_utility: bool

    @classmethod
    def of(cls, rule: InRun, market: Market) -> InRunTraining:
        consumer, device = market.consumer, market.device
        if consumer.task.model is None or consumer.holdout is None:
            raise BazaarError(
                'learner "in-run" needs a torch model and a holdout = (x, y): give both, or use learner "averaging"'
            )
        task = consumer.task.copied(writable=True)
        assert task.model is not None
        task.model.to(device)
        own = None if consumer.train is None else _on(device, consumer.train)
        scales_by_utility = isinstance(consumer.scoring, ExpLoss)
        holdout, bounded = _on(device, consumer.holdout), consumer.bounded
        shared = consumer, market.scorer, device
        return cls(*shared, rule, task, holdout, own, market.seed, bounded, scales_by_utility)

    def init(self, model: Model) -> Memory:
        params = vector_of(model)
        nothing = params.new_zeros(self._trained)
        second = {SECOND: nothing.clone()} if self.rule.optimizer == "adam" else {}
        return {FIRST: nothing, **second, STEPS: params.new_zeros(1)}

    def learn(self, lesson: Lesson) -> Learned:
        values, failures = self._values(lesson)
        learned = self._learned(lesson, values, failures)
        if learned is None:  # a step has left the numbers: some rows beyond those that were judged have no loss
            bad = {
                i for i in values if not math.isfinite(self._mean_loss(vector_of(lesson.model), lesson.replies.rows[i]))
            }
            failures = {**failures, **dict.fromkeys(bad, NO_UTILITY)}
            values = {i: value for i, value in values.items() if i not in bad}
            learned = self._learned(lesson, values, failures) if bad else None
        if learned is None:
            gains = self._gains(lesson, values, 0.0)
            learned = Learned(gains, failures, lesson.model, lesson.memory, lesson.unchanged)
        return learned

    def _learned(self, lesson: Lesson, values: Mapping[int, float], failures: Mapping[int, Code]) -> Learned | None:
        """What the rows of those that have a value come to; None where the model that they lead to has no utility."""
        draws = lesson.drawn.draws.tolist()
        parties = [(lesson.replies.rows[i], draws.count(i)) for i in values]
        if parties and self.own is not None:
            parties.append((self._own_rows(lesson.round), 1))
        batches = list(_dealt(parties, self.rule))
        rates = [self._rate(lesson, step) for step in range(len(batches))]
        total = sum(times * len(y) for (_, y), times in parties)
        gains = self._gains(lesson, values, sum(rates) / max(1, total))
        params, memory = self._moved(lesson, batches, rates)
        scores = self.evaluator.score(params[None]) if batches else lesson.unchanged
        if not (np.isfinite(scores.utility[0]) and bool(torch.isfinite(params).all())):
            return None
        return Learned(gains, failures, Parameters(params), memory, scores)

    def _gains(self, lesson: Lesson, values: Mapping[int, float], rate: float) -> dict[int, float | None]:
        """The gain of everybody asked, of whose rows each moves the model at this rate. A first-order value may be
        larger than what a bounded utility can change."""
        scale = rate * (lesson.utility if self.scales_by_utility else 1.0)
        gains: dict[int, float | None] = dict.fromkeys(lesson.drawn.asked)
        for i, value in values.items():
            gain = scale * value * len(lesson.replies.rows[i][1])
            gains[i] = max(-1.0, min(1.0, gain)) if self.bounded else gain
        return gains

    def _rate(self, lesson: Lesson, step: int) -> float:
        """Warm-up over the first steps of the run, and a cosine over what the money buys."""
        taken = float(lesson.memory[STEPS]) + step + 1
        falling = FLOOR + (1 - FLOOR) * (1 + math.cos(math.pi * min(lesson.spent, 1.0))) / 2
        return self.rule.rate * falling * min(1.0, taken / max(1, self.rule.warm_up))

    def _own_rows(self, round: int) -> Examples:
        assert self.own is not None
        x, y = self.own
        places = sample_order(oracle_key(self.seed, round, OWN_ROWS), len(y), first=min(len(y), self.rule.rows))
        at = torch.from_numpy(places).to(y.device)
        return x[at], y[at]

    def _values(self, lesson: Lesson) -> tuple[dict[int, float], dict[int, Code]]:
        """⟨g_i, P v⟩ of each provider that has answered, and why others' rows cannot be used."""
        way, reach = self._direction(lesson)
        values, failures = dict[int, float](), dict(lesson.replies.failures)
        params = vector_of(lesson.model)
        ends = [params.clone(), params.clone()]
        for end, sign in zip(ends, (1.0, -1.0), strict=True):
            end[: self._trained] += sign * reach * way
        for i, rows in lesson.replies.rows.items():
            try:
                judged = rows[0][: self.rule.judged], rows[1][: self.rule.judged]
                ahead, back = (self._mean_loss(end, judged) for end in ends)
            except Exception as reason:
                if out_of_memory(reason):
                    raise
                failures[i] = raised(reason)
                continue
            if math.isfinite(ahead) and math.isfinite(back):
                values[i] = (ahead - back) / (2 * reach) if reach else 0.0
            else:
                failures[i] = NO_UTILITY
        return values, failures

    def _direction(self, lesson: Lesson) -> tuple[Tensor, float]:
        """P v, and how far along it a central difference looks."""
        params = vector_of(lesson.model)
        leaf = params[: self._trained].detach().clone().requires_grad_()
        total, (x, y) = torch.zeros_like(leaf), self.holdout
        for at in range(0, len(y), PIECE):
            loss = self._losses(leaf, params, (x[at : at + PIECE], y[at : at + PIECE])).sum() / len(y)
            total += torch.autograd.grad(loss, leaf, materialize_grads=True)[0]
        way = self._scaled(lesson.memory, total)
        slope = float(torch.dot(total, way))
        return way, PROBE / slope if slope > 0 and math.isfinite(slope) else 0.0

    def _scaled(self, memory: Memory, gradient: Tensor) -> Tensor:
        """P v. What Adam has seen little of counts with v's own size, so that no number is larger than 1."""
        if self.rule.optimizer == "sgd":
            return gradient / (1 - MOMENTUM)
        seen = memory[SECOND] / (1 - BETAS[1] ** max(1.0, float(memory[STEPS])))
        scaled: Tensor = gradient / ((seen + gradient.square()).sqrt() + EPSILON)
        return scaled

    @torch.no_grad()
    def _mean_loss(self, params: Tensor, rows: Examples) -> float:
        (x, y), trained = rows, params[: self._trained]
        pieces = [slice(at, at + PIECE) for at in range(0, len(y), PIECE)]
        sums = [self._losses(trained, params, (x[piece], y[piece])).double().sum() for piece in pieces]
        return float(sum(sums, torch.zeros((), dtype=torch.float64, device=y.device))) / len(y)

    def _losses(self, trained: Tensor, params: Tensor, rows: Examples) -> Tensor:
        """Each row's loss, by the model as it predicts."""
        self._model.eval()
        return self._each(self._run(trained, params, rows[0], {}), rows[1])

    def _each(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses: Tensor = self.task.loss(outputs.to(torch.float32), targets)
        return losses.flatten(1).mean(1) if losses.dim() > 1 else losses

    def _moved(self, lesson: Lesson, batches: Sequence[Batch], rates: Sequence[float]) -> tuple[Tensor, Memory]:
        rule, model = self.rule, self._model.train()
        params = vector_of(lesson.model).detach().clone()
        trained = params[: self._trained]
        memory = {name: kept.clone() for name, kept in lesson.memory.items()}
        descend = Descent(rule.optimizer, 0.0 if rule.optimizer == "adam" else MOMENTUM, rule.weight_decay)
        descend.remember("all", memory[FIRST], memory.get(SECOND), int(memory[STEPS]))
        counters = {n: b.clone() for n, b in model.named_buffers() if not b.is_floating_point()}  # of this round alone
        staying = StayingBuffers(model)
        with seeded(oracle_key(self.seed, lesson.round, self.rule.kind)):  # for dropout
            for (x, y, weights), rate in zip(batches, rates, strict=True):
                leaf = trained.detach().requires_grad_()
                with self.task.autocast(params.device):
                    outputs = self._run(leaf, params, x, counters)
                loss = (weights * self._each(outputs, y)).sum()
                (gradient,) = torch.autograd.grad(loss, leaf, materialize_grads=True)
                length = float(torch.linalg.vector_norm(gradient))
                if length > rule.clip:
                    gradient *= rule.clip / length
                descend({"all": trained}, [gradient], rate)
        staying.refuse_change()
        memory[STEPS] = memory[STEPS] + len(batches)
        return params, memory

    def _run(self, trained: Tensor, params: Tensor, x: Inputs, counters: Mapping[str, Tensor]) -> Tensor:
        """The model's outputs with these trained parameters, and with the buffers of `params`."""
        layout, named = self._layout, self._layout.unflatten(params)
        pieces = torch.split(trained, layout.sizes[: layout.trainable])
        for name, piece, shape in zip(layout.names, pieces, layout.shapes, strict=False):
            named[name] = piece.view(shape)
        return self._call({**counters, **named}, x)

    @property
    def _model(self) -> nn.Module:
        assert self.task.model is not None
        return self.task.model

    @cached_property
    def _call(self) -> Callable[[dict[str, Tensor], Inputs], Tensor]:
        return caller(self._model)

    @cached_property
    def _layout(self) -> Layout:
        return self.task.layout

    @cached_property
    def _trained(self) -> int:
        """How many numbers of the vector are trained; the others are buffers."""
        return sum(self._layout.sizes[: self._layout.trainable])


def _dealt(parties: Sequence[tuple[Examples, int]], rule: InRun) -> Iterator[Batch]:
    """The rows of all parties as batches, each with its share of every party. The rows of a party that counts several
    times weigh so much more. Weights make the sum of a batch's losses their mean."""
    rows = sum(len(y) for (_, y), _ in parties)
    steps = max(-(-rows // rule.batch_size), min(rule.least_steps, rows // SMALLEST))
    for step in range(steps):
        cut = [slice(step * len(y) // steps, (step + 1) * len(y) // steps) for (_, y), _ in parties]
        pieces = [(x[part], y[part]) for ((x, y), _), part in zip(parties, cut, strict=True)]
        x, y = joined([piece for piece in pieces if len(piece[1])])
        repeats = torch.tensor([len(piece[1]) for piece in pieces], device=y.device)
        weights = torch.tensor([float(times) for _, times in parties], device=y.device).repeat_interleave(repeats)
        yield x, y, weights / weights.sum()


def _on(device: torch.device, examples: Examples) -> Examples:
    return examples[0].to(device), examples[1].to(device)
