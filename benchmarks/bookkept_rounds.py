"""Rounds of which nothing but their bookkeeping is played, for whoever measures that."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from databazaar import OSMD, Arbiter, Consumer, Provider
from databazaar.ledger import Drawn, Ledger, Settlement
from databazaar.ledger.sql import SqlStore
from databazaar.market.state import Best, State
from databazaar.training.parameters import Parameters


class Rounds:
    """A run's bookkeeping, round after round, with a model that moves and no training: what the rules and the ledger do
    between an engine's answers and the next question. With `improving`, each model is the best so far."""

    def __init__(
        self, folder: Path, parameters: int, *, improving: bool = True, providers: int = 20, per_round: int = 4
    ) -> None:
        parties = [Provider(f"p{i}", oracle=lambda w: w, price=1) for i in range(providers)]
        consumer = Consumer(np.zeros(3, dtype=np.float32), utility=lambda w: 0.0, budget=10**9, per_round=per_round)
        self.rules = Arbiter(consumer, parties, OSMD(0.01, 0.1), engine="loop").rules
        self.ledger = Ledger(self.rules, SqlStore.file(folder / "ledger.sqlite", "run"))
        self.models = [Parameters(torch.rand(parameters)) for _ in range(2)]
        self.moved = [
            Parameters(model.vector.view(-1)) for model in self.models
        ]  # the same numbers, and not the best model
        self.improving = improving
        self.state = State(0, self.models[0], 0.0, None, self.rules.start(), {}, self.best(0))
        self.drawn = self.draw()

    def best(self, round: int) -> Best:
        return Best(round, self.models[round % 2], round)

    def draw(self) -> Drawn:
        drawn = self.rules.draw(self.state.sampler, self.ledger.book)
        self.ledger.reserve(self.state.round, drawn)
        return drawn

    def play(self) -> None:
        """Settles the round under way and reserves the next: one transaction."""
        state, drawn, number = self.state, self.drawn, self.state.round
        chances, gains = drawn.probabilities.tolist(), [0.1 / (1 + number)] * len(drawn.draws)
        settled = self.rules.settle(state.sampler, drawn, gains, chances, None)
        result = Settlement(gains, [None] * len(gains), chances, settled.paid, number, None, number + 1, None)
        best = self.best(number + 1) if self.improving else state.best
        model = best.model if self.improving else self.moved[(number + 1) % 2]
        self.state = State(number + 1, model, number + 1, None, settled.state, state.memory, best)
        self.ledger.settle(number, drawn, result, self.state)
        self.drawn = self.draw()
