"""In-run training: one model and one optimizer for the whole run. An answer is some of a provider's rows.

A round deals the rows of all drawn providers, and the buyer's own, into batches, and the optimizer takes one ordinary
step on each. Provider i's part of the move is −η n_i P g_i: η is the sum of the round's rates, n_i its share of the
rows, g_i the gradient of its mean loss where the round began, and P how the optimizer scales a gradient (Adam:
1 / √(second moment + v²); SGD: 1 / (1 − momentum)). Its gain is what the part changes on the hold-out to first order:

    gain_i = η n_i ⟨g_i, P v⟩ · (−∂U/∂loss),   v = the gradient of the hold-out loss

and no more than a bounded utility can change. This is the first-order in-run Shapley value of the provider's rows (Wang
et al., Data Shapley in One Training Run, ICLR 2025). ⟨g_i, P v⟩ is the derivative of provider i's loss along P v; one
central difference gives it for all providers, with two forward passes of some of their rows and no gradient of theirs.

The model is the average of the parameters w that the optimizer moves, over about the last tenth of all steps t:

    m ← m + (w − m) · min(1, 10 / (9 + t)),

polynomial-decay averaging (Shamir and Zhang, ICML 2013). In the middle of a run, while the rate is high, it is about as
good as parameters after the rate has fallen: so the best model of a run hardly depends on how long the run is.

Departures from the market's paper (Algorithm 1): there is no local training, line 10 is the optimizer's steps, and the
gain is of first order. The derivative of a utility that has none (accuracy, AUC) is taken to be that of −loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from databazaar.codes import Code
from databazaar.engines.protocol import NO_UTILITY, out_of_memory, raised
from databazaar.errors import BazaarError
from databazaar.learning.inputs import Examples, Inputs
from databazaar.learning.oracles import BETAS, EPSILON
from databazaar.learning.own_rows import OWN_ROWS, joined
from databazaar.learning.parameter_exchange import StayingBuffers
from databazaar.learning.task import Task
from databazaar.learning.torch_state import SMALL_MODEL, seeded
from databazaar.randomness import oracle_key, sample_order
from databazaar.row_values import JudgedRows
from databazaar.training.augmentation import augmented
from databazaar.training.network import Network
from databazaar.training.parameters import Parameters, ParameterTraining, vector_of
from databazaar.training.protocol import Learned, Lesson, Memory, Model
from databazaar.utilities.exp_loss import ExpLoss

if TYPE_CHECKING:
    from databazaar.learners import InRun, Market

Batch = tuple[Inputs, Tensor, Tensor]
"""Inputs, targets, and what each row weighs in the batch's loss."""
Party = tuple[Examples, int]
"""Rows, and how often they count."""
MOVING, FIRST, SECOND, STEPS = "learner.moving", "learner.first", "learner.second", "learner.steps"
"""The parameters that the optimizer moves, and its state, by their names in a snapshot."""
TAIL = 9.0
"""The model is an average over about one in so many of all steps."""
MOMENTUM = 0.9
"""Of sgd."""
FLOOR = 0.02
"""The rate at the end of the budget, in parts of the highest."""
PROBE = 0.01
"""How far a central difference looks: by so much the hold-out loss changes to first order."""
SMALLEST, PASSES = 16, 8
"""Rows of a step, where a round has too few for its least number of steps; and how often it goes through them then."""
JUDGED, GUIDING = 12, 16
"""Of a large model a gain is of one in so many rows of the access, and a round's direction of one row of the hold-out
for so many of the round: so what the market asks beside the steps is a bounded part of a round's work."""
FEWEST_GUIDING = 256


@dataclass(frozen=True, eq=False)
class Slopes:
    """The derivative of each judged row's loss along P v, and the row's loss; `mean` is ⟨g_i, P v⟩."""

    rows: Tensor
    losses: Tensor

    @cached_property
    def mean(self) -> float:
        return float(self.rows.double().mean())


@dataclass(frozen=True, eq=False)
class InRunTraining(ParameterTraining):
    """`holdout` gives the direction in which parts are scored; `own` are training rows of the consumer's."""

    rule: InRun
    task: Task
    holdout: Examples
    own: Examples | None
    seed: int
    rounds: int
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
        return cls(*shared, rule, task, holdout, own, market.seed, market.rounds, bounded, scales_by_utility)

    def init(self, model: Model) -> Memory:
        params = vector_of(model)
        nothing = params.new_zeros(self._network.trained)
        second = {SECOND: nothing.clone()} if self.rule.optimizer == "adam" else {}
        return {MOVING: params.clone(), FIRST: nothing, **second, STEPS: params.new_zeros(1)}

    def learn(self, lesson: Lesson) -> Learned:
        values, failures = self._values(lesson)
        learned = self._learned(lesson, values, failures)
        if learned is None:  # a step has left the numbers: some rows beyond those that were judged have no loss
            bad = {
                i
                for i in values
                if not math.isfinite(self._network.mean_loss(lesson.memory[MOVING], lesson.replies.rows[i]))
            }
            failures = {**failures, **dict.fromkeys(bad, NO_UTILITY)}
            values = {i: value for i, value in values.items() if i not in bad}
            learned = self._learned(lesson, values, failures) if bad else None
        if learned is None:
            gains = self._gains(lesson, values, 0.0)
            learned = Learned(gains, failures, lesson.model, lesson.memory, lesson.unchanged)
        return learned

    def _learned(self, lesson: Lesson, values: Mapping[int, Slopes], failures: Mapping[int, Code]) -> Learned | None:
        """What the rows of those that have a value come to; None where the model that they lead to has no utility."""
        draws = lesson.drawn.draws.tolist()
        parties = [(lesson.replies.rows[i], draws.count(i)) for i in values]
        if parties and self.own is not None:
            parties.append((self._own_rows(lesson.round), 1))
        batches = [
            (augmented(x, self.rule.shift, self.rule.flip, self.seed, lesson.round, place), y, weights)
            for place, (x, y, weights) in enumerate(self._batches(lesson.round, parties))
        ]
        rates = [self._rate(lesson, step) for step in range(len(batches))]
        total = sum(times * len(y) for (_, y), times in parties)
        rate = sum(rates) / max(1, total)
        params, memory = self._moved(lesson, batches, rates)
        scores = self.evaluator.score(params[None]) if batches else lesson.unchanged
        if not (np.isfinite(scores.utility[0]) and bool(torch.isfinite(params).all())):
            return None
        gains, rows = self._gains(lesson, values, rate), self._judged_rows(lesson, values, rate)
        return Learned(gains, failures, Parameters(params), memory, scores, rows)

    def _batches(self, round: int, parties: Sequence[Party]) -> Iterator[Batch]:
        """One pass through the rows, or several where they are few for the least number of steps."""
        rows = sum(len(y) for (_, y), _ in parties)
        least = -(-self.rule.least_steps // self.rounds)
        steps = max(-(-rows // self.rule.batch_size), min(least, rows // SMALLEST))
        for number in range(min(PASSES, -(-least // steps)) if steps else 0):
            key = oracle_key(self.seed, round, f"pass {number}")
            dealt = [(_some(rows, len(rows[1]), key), times) for rows, times in parties] if number else parties
            yield from _dealt(dealt, steps)

    def _gains(self, lesson: Lesson, values: Mapping[int, Slopes], rate: float) -> dict[int, float | None]:
        """The gain of everybody asked, of whose rows each moves the model at this rate. A first-order value may be
        larger than what a bounded utility can change."""
        scale = self._scale(lesson, rate)
        gains: dict[int, float | None] = dict.fromkeys(lesson.drawn.asked)
        for i, value in values.items():
            gain = scale * value.mean * len(lesson.replies.rows[i][1])
            gains[i] = max(-1.0, min(1.0, gain)) if self.bounded else gain
        return gains

    def _judged_rows(self, lesson: Lesson, values: Mapping[int, Slopes], rate: float) -> dict[int, JudgedRows]:
        """Rows move the model one by one at this rate, so the parts of a provider's rows add up to its own."""
        if not lesson.values_rows:
            return {}
        scale = self._scale(lesson, rate)
        numbers = {i: torch.stack([value.rows, value.losses]).double().cpu().numpy() for i, value in values.items()}
        return {i: JudgedRows(scale * slopes, losses) for i, (slopes, losses) in numbers.items()}

    def _scale(self, lesson: Lesson, rate: float) -> float:
        return rate * (lesson.utility if self.scales_by_utility else 1.0)

    def _rate(self, lesson: Lesson, step: int) -> float:
        """Warm-up over the first steps of the run, and a cosine over what the money buys."""
        taken = float(lesson.memory[STEPS]) + step + 1
        falling = FLOOR + (1 - FLOOR) * (1 + math.cos(math.pi * min(lesson.spent, 1.0))) / 2
        return self.rule.rate * falling * min(1.0, taken / max(1, self.rule.warm_up))

    def _own_rows(self, round: int) -> Examples:
        assert self.own is not None
        return _some(self.own, self.rule.rows, oracle_key(self.seed, round, OWN_ROWS))

    def _values(self, lesson: Lesson) -> tuple[dict[int, Slopes], dict[int, Code]]:
        """⟨g_i, P v⟩ of each provider that has answered, and why others' rows cannot be used."""
        answered = {i: rows for i, rows in lesson.replies.rows.items() if i not in lesson.replies.failures}
        judged = {i: self._judged(rows) for i, rows in answered.items()}
        way, reach = self._direction(lesson)
        failures, found = dict(lesson.replies.failures), dict[int, Slopes]()
        together = [judged] if judged else []
        for tables in [*together, *({i: rows} for i, rows in judged.items())]:
            if tables.keys() <= found.keys():
                continue
            try:
                found |= self._slopes(lesson, way, reach, tables)
            except Exception as reason:
                if out_of_memory(reason):
                    raise
                if tables is not judged:
                    failures |= dict.fromkeys(tables, raised(reason))
        failures |= {i: NO_UTILITY for i, slopes in found.items() if not math.isfinite(slopes.mean)}
        return {i: slopes for i, slopes in found.items() if i not in failures}, failures

    def _judged(self, rows: Examples) -> Examples:
        most = len(rows[1]) if self._is_small else max(self.rule.judged, len(rows[1]) // JUDGED)
        return rows[0][:most], rows[1][:most]

    @property
    def _is_small(self) -> bool:
        """Whether passing rows through the model takes less time than all else: then all of them are looked at."""
        return self._network.trained < SMALL_MODEL

    def _slopes(self, lesson: Lesson, way: Tensor, reach: float, tables: Mapping[int, Examples]) -> dict[int, Slopes]:
        """Of the rows of all these tables at once."""
        rows, params = joined(list(tables.values())), lesson.memory[MOVING]
        losses = []
        for sign in (1.0, -1.0):
            end = params.clone()
            end[: self._network.trained] += sign * reach * way
            losses.append(self._network.row_losses(end, rows))
        slopes = (losses[0] - losses[1]) / (2 * reach) if reach else (losses[0] - losses[1]) * 0.0
        sizes = [len(y) for _, y in tables.values()]
        of_each = zip(torch.split(slopes, sizes), torch.split((losses[0] + losses[1]) / 2, sizes), strict=True)
        return {i: Slopes(*each) for i, each in zip(tables, of_each, strict=True)}

    def _direction(self, lesson: Lesson) -> tuple[Tensor, float]:
        """P v, and how far along it a central difference looks."""
        params = lesson.memory[MOVING]
        leaf = params[: self._network.trained].detach().clone().requires_grad_()
        guides, rows = self.holdout, sum(len(y) for _, y in lesson.replies.rows.values())
        if not self._is_small and len(guides[1]) > (most := max(FEWEST_GUIDING, rows // GUIDING)):
            guides = _some(guides, most, oracle_key(self.seed, lesson.round, "direction"))
        total = torch.zeros_like(leaf)
        for piece in self._network.pieces(guides):
            loss = self._network.losses(leaf, params, piece).sum() / len(guides[1])
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

    def _moved(self, lesson: Lesson, batches: Sequence[Batch], rates: Sequence[float]) -> tuple[Tensor, Memory]:
        """The average of the parameters after a round, and what is remembered."""
        memory, average = {name: kept.clone() for name, kept in lesson.memory.items()}, vector_of(lesson.model).clone()
        params, taken = memory[MOVING], float(memory[STEPS])
        trained, model = params[: self._network.trained], self._network.module.train()
        counters = {n: b.clone() for n, b in model.named_buffers() if not b.is_floating_point()}  # of this round alone
        staying = StayingBuffers(model)
        with seeded(oracle_key(self.seed, lesson.round, self.rule.kind)):  # for dropout
            for step, (batch, rate) in enumerate(zip(batches, rates, strict=True), 1):
                self._step(trained, self._gradient(trained, params, batch, counters), rate, memory)
                average.lerp_(params, min(1.0, (TAIL + 1) / (TAIL + taken + step)))
        staying.refuse_change()
        memory[STEPS] = lesson.memory[STEPS] + len(batches)
        return average, memory

    def _gradient(self, trained: Tensor, params: Tensor, batch: Batch, counters: Mapping[str, Tensor]) -> Tensor:
        """That of a batch's loss, no longer than the rule's `clip`; of a large batch, summed up in parts."""
        (x, y, weights), leaf = batch, trained.detach().requires_grad_()
        total = torch.zeros_like(trained)
        for at in range(0, len(y), self.rule.at_once):
            part = slice(at, at + self.rule.at_once)
            with self.task.autocast(params.device):
                outputs = self._trained_outputs(leaf, params, x[part], counters)
            loss = (weights[part] * self._network.each(outputs, y[part])).sum()
            total += torch.autograd.grad(loss, leaf, materialize_grads=True)[0]
        norm = torch.linalg.vector_norm(total, dtype=torch.float64)  # huge values have squares beyond float32
        return total.mul_((self.rule.clip / norm).clamp(max=1.0))

    def _trained_outputs(self, leaf: Tensor, params: Tensor, x: Inputs, counters: Mapping[str, Tensor]) -> Tensor:
        try:
            return self._network.run(leaf, params, x, counters)
        except Exception as reason:
            if out_of_memory(reason):
                raise
            raise BazaarError(
                f"the model cannot be trained on a batch of size {len(x)} ({type(reason).__name__}: {reason}): if that "
                "is too small, as for batch norm, give the consumer rows of its own, train = (x, y), or take out "
                "providers of so few"
            ) from reason

    def _step(self, trained: Tensor, gradient: Tensor, rate: float, memory: Mapping[str, Tensor]) -> None:
        """Torch's own, which writes to the parameters and to what is remembered. Its classes would do the same after a
        second of imports."""
        fused = trained.device.type in ("cpu", "cuda")
        shared: dict[str, Any] = {"lr": rate, "weight_decay": self.rule.weight_decay, "fused": fused, "maximize": False}
        if self.rule.optimizer == "sgd":
            velocity: list[Tensor | None] = [memory[FIRST]]
            sgd([trained], [gradient], velocity, momentum=MOMENTUM, dampening=0.0, nesterov=False, **shared)
        else:
            adams: dict[str, Any] = {"beta1": BETAS[0], "beta2": BETAS[1], "eps": EPSILON, "amsgrad": False, **shared}
            adamw([trained], [gradient], [memory[FIRST]], [memory[SECOND]], [], [memory[STEPS][0]], **adams)

    @cached_property
    def _network(self) -> Network:
        return Network(self.task, self.rule.at_once)


def _some(rows: Examples, most: int, key: int) -> Examples:
    """At most so many of these rows, in an order by the key."""
    x, y = rows
    places = torch.from_numpy(sample_order(key, len(y), first=min(most, len(y)))).to(y.device)
    return x[places], y[places]


def _dealt(parties: Sequence[Party], steps: int) -> Iterator[Batch]:
    """The rows of all parties as batches, each with its share of every party. The rows of a party that counts several
    times weigh so much more. Weights make the sum of a batch's losses their mean."""
    for step in range(steps):
        cut = [slice(step * len(y) // steps, (step + 1) * len(y) // steps) for (_, y), _ in parties]
        pieces = [(x[part], y[part]) for ((x, y), _), part in zip(parties, cut, strict=True)]
        x, y = joined([piece for piece in pieces if len(piece[1])])
        repeats = torch.tensor([len(piece[1]) for piece in pieces], device=y.device)
        weights = torch.tensor([float(times) for _, times in parties], device=y.device).repeat_interleave(repeats)
        yield x, y, weights / weights.sum()


def _on(device: torch.device, examples: Examples) -> Examples:
    return examples[0].to(device), examples[1].to(device)
