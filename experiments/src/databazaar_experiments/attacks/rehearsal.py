"""Attacks rehearsed in somebody's own market: what each would earn there and do to the model, plain and defended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from databazaar.defence import Defence
from databazaar.errors import BazaarError
from databazaar.learning.inputs import Examples
from databazaar.market.arbiter import Arbiter
from databazaar.market.inspection.holdout_parts import halves
from databazaar.parties import Consumer, Provider
from databazaar_experiments.attacks import Attack, Backdoor, Trigger
from databazaar_experiments.attacks.kinds import Variant
from databazaar_experiments.attacks.known import outputs
from databazaar_experiments.attacks.market import Attacked, attacked_arbiter, play_attacked

TRIGGER_WIDTH = 4


@dataclass(frozen=True)
class Outcome:
    """What came of an attack, or of nobody's, with a number for each seed: what its places earn as a share of the
    budget, how good the delivered model is, how often a trigger works in it (None where it has no classes), and how
    many attackers and how many honest providers were flagged."""

    earns: tuple[float, ...]
    model: tuple[float, ...]
    trigger: tuple[float, ...] | None
    caught: tuple[int, ...]
    wronged: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """A market to be attacked, in memory. `rules` are what an Arbiter takes beside the defence.

    How good a model is, is judged by the consumer's audit rows where it has some, else by the hold-out: its accuracy,
    or for numbers the mean loss.
    """

    consumer: Consumer
    providers: Sequence[Provider]
    seeds: Sequence[int]
    rules: Mapping[str, Any]
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.consumer.holdout is None or not isinstance(self.consumer.model, nn.Module):
            raise BazaarError("attacks are rehearsed in markets with a torch model and a hold-out: give both")

    @property
    def judged_by(self) -> str:
        return "hold-out" if self.consumer.audit is None else "audit rows"

    @property
    def metric(self) -> str:
        return "accuracy" if self.consumer.classifies else "loss"

    def by_pay(self, runs: Sequence[Attacked]) -> list[str]:
        """Everybody, the best paid of these runs first."""
        paid = {provider.id: sum(run.pay.get(provider.id, 0) for run in runs) for provider in self.providers}
        return sorted(paid, key=lambda id: -paid[id])

    def refuse_impossible(self, variant: Variant, places: Sequence[str]) -> None:
        """What would only come to light once other attacks have been played."""
        if len(places) < variant.places:
            raise BazaarError(f"this attack takes {variant.places} providers: this market has {len(places)}")
        self._arbiter(self.seeds[0], Defence(), places, variant)

    def play(self, seed: int, defence: Defence, places: Sequence[str] = (), variant: Variant | None = None) -> Attacked:
        """One run; without a variant nobody attacks."""
        return play_attacked(*self._arbiter(seed, defence, places, variant))

    def _arbiter(
        self, seed: int, defence: Defence, places: Sequence[str], variant: Variant | None
    ) -> tuple[Arbiter, tuple[str, ...]]:
        settings = {**self.rules, "seed": seed, "device": self.device, "defence": defence}
        if variant is None:
            return attacked_arbiter(self.consumer, self.providers, (), None, **settings)
        attack = self._aimed(variant.attack, [provider for provider in self.providers if provider.id in places])
        leaked = self._leaked(variant.leak, seed)
        return attacked_arbiter(self.consumer, self.providers, places, attack, leaked=leaked, **settings)

    def outcome(self, runs: Sequence[Attacked], places: Sequence[str]) -> Outcome:
        """The figures of these runs; of those that nobody attacks, too."""
        x, y = self._rows()
        task, budget = self.consumer.task, self.consumer.budget
        trigger = self._trigger([provider for provider in self.providers if provider.id in places])
        attackers = [run.attackers or places for run in runs]
        caught = [sum(id in run.attackers for id in run.flagged) for run in runs]
        return Outcome(
            earns=tuple(sum(r.pay.get(id, 0) for id in who) / budget for r, who in zip(runs, attackers, strict=True)),
            model=tuple(self._judged(outputs(task, run.delivered, x), y) for run in runs),
            trigger=None if trigger is None else tuple(trigger.success(task, r.delivered, (x, y)) for r in runs),
            caught=tuple(caught),
            wronged=tuple(len(run.flagged) - count for run, count in zip(runs, caught, strict=True)),
        )

    def _rows(self) -> Examples:
        return self.consumer.holdout if self.consumer.audit is None else self.consumer.audit

    def _judged(self, found: Tensor, y: Tensor) -> float:
        if not self.consumer.classifies:
            return float(self.consumer.task.loss(found, y).mean())
        classes = found.argmax(1) if found.dim() == 2 and found.shape[1] > 1 else (found.flatten() > 0).long()
        return float((classes == y).float().mean())

    def _leaked(self, what: str, seed: int) -> Examples | None:
        if not what:
            return None
        x, y = self.consumer.holdout
        rows = torch.from_numpy(np.arange(len(y)) if what == "both" else halves(len(y), seed).scoring)
        return x[rows], y[rows]

    def _aimed(self, attack: Attack, own: Sequence[Provider]) -> Attack:
        """A backdoor gets its trigger here."""
        trigger = self._trigger(own)
        return replace(attack, trigger=trigger) if isinstance(attack, Backdoor) and trigger is not None else attack

    def _trigger(self, own: Sequence[Provider]) -> Trigger | None:
        """As large as anything in the attackers' own rows, and for the rarest of their classes, for which few models
        would take it by themselves. None where inputs have names, or there are no classes."""
        x, y = self.consumer.holdout
        rows = [provider.dataset for provider in own if provider.data is not None]
        if not isinstance(x, Tensor) or not self.consumer.classifies or y.dim() != 1 or not rows:
            return None
        largest = max(float(inputs.max()) for inputs, _ in rows if isinstance(inputs, Tensor))
        counts = torch.bincount(torch.cat([classes for _, classes in rows]))
        rarest = int(torch.where(counts > 0, counts, counts.max() + 1).argmin())
        return Trigger(min(TRIGGER_WIDTH, x[0].numel()), largest, rarest)
