"""A round of a market for a transformer of 100 million parameters beside a loop written by hand, on one GPU.

    python benchmarks/bench_transformer.py                     (an NVIDIA GPU with 80 GB or more)
    python benchmarks/bench_transformer.py --small --device cpu

Eight providers, of whom four are asked each round. The loop is what one writes in PyTorch without a market: for
each provider drawn, load the weights, train with torch.optim.SGD, keep the difference; then load each candidate and
judge it on the hold-out; then take the mean. It has the same samples in the same order, so that its updates can be
compared with ours. A round of ours is all of a round: draws, updates, scores, the sampler's step, and the ledger
(in memory) with the model's hash. Needs torch and NumPy alone.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from databazaar import OSMD, Arbiter, Consumer, LocalSGD, Provider
from databazaar.engines import Engine, Replies
from databazaar.learning.task import PRECISIONS, Precision, step_at
from databazaar.learning.utilities import Scores
from databazaar.ledger import Drawn as DrawnRound
from databazaar.ledger import Ledger
from databazaar.market.round import Outcome, conclude
from databazaar.market.run import MarketRun
from databazaar.randomness import oracle_key
from databazaar.training.averaging import AveragingTraining

PROVIDERS, DRAWN = 8, 4
Made = TypeVar("Made")
Weights = list[Tensor]
Drawn = list[list[int]]
Utilities = list[list[float]]


@dataclass(frozen=True)
class Size:
    """The transformer, and the work of a round."""

    words: int
    width: int
    heads: int
    layers: int
    length: int
    steps: int
    batch: int
    rows: int
    holdout: int


LARGE = Size(words=20_000, width=768, heads=12, layers=12, length=256, steps=8, batch=8, rows=128, holdout=64)
SMALL = Size(words=200, width=32, heads=2, layers=2, length=16, steps=3, batch=4, rows=12, holdout=8)


class Block(nn.Module):
    """Pre-norm attention and feed-forward, as in GPT-2."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, h: Tensor) -> Tensor:
        batch, length, width = h.shape
        parts = self.attend(self.before(h)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        h = h + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        after: Tensor = h + self.down(F.gelu(self.up(self.between(h))))
        return after


class Transformer(nn.Module):
    """Predicts each next word of a sequence; the word table is also the last layer."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(size.words, size.width), nn.Embedding(size.length, size.width)
        self.blocks = nn.Sequential(*(Block(size.width, size.heads) for _ in range(size.layers)))
        self.norm = nn.LayerNorm(size.width)
        self.register_buffer("where", torch.arange(size.length), persistent=False)
        for part in self.modules():
            if isinstance(part, nn.Linear | nn.Embedding):
                nn.init.normal_(part.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.blocks(self.words(x) + self.places(self.where)))
        outputs: Tensor = F.linear(h, self.words.weight)
        return outputs


def next_word(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean surprise of a sequence's words: one number per sequence."""
    return F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape).mean(1)


def market(size: Size, precision: Precision) -> tuple[Consumer, list[Provider]]:
    torch.manual_seed(0)
    step = torch.randint(0, size.words, (size.words,))  # a language in which every word has one successor, mostly

    def rows(count: int) -> tuple[Tensor, Tensor]:
        text = torch.randint(0, size.words, (count, size.length + 1))
        for t in range(size.length):
            follows = torch.rand(count) < 0.8
            text[:, t + 1] = torch.where(follows, step[text[:, t]], text[:, t + 1])
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()

    oracle = LocalSGD(step=0.05, batch_size=size.batch, momentum=0.9, steps=size.steps)
    consumer = Consumer(
        Transformer(size),
        budget=10**6,
        holdout=rows(size.holdout),
        utility="negative-loss",
        loss=next_word,
        per_round=DRAWN,
        precision=precision,
    )
    return consumer, [Provider(f"p{i}", rows(size.rows), oracle) for i in range(PROVIDERS)]


class ByHand:
    """The loop that one writes without a market."""

    def __init__(self, consumer: Consumer, providers: Sequence[Provider], device: torch.device) -> None:
        assert isinstance(consumer.model, nn.Module) and consumer.holdout is not None
        self.task = consumer.task
        self.device = device
        self.model = copy.deepcopy(consumer.model).to(device)
        self.data = [(x.to(device), y.to(device)) for x, y in (p.dataset for p in providers)]
        self.ids = [p.id for p in providers]
        self.oracle = providers[0].oracle
        self.holdout = consumer.holdout[0].to(device), consumer.holdout[1].to(device)
        self.batch = max(1, len(self.holdout[1]) // 4)

    def weights(self) -> Weights:
        return [p.detach().clone() for p in self.model.parameters()]

    @torch.no_grad()
    def load(self, weights: Sequence[Tensor]) -> None:
        for own, given in zip(self.model.parameters(), weights, strict=True):
            own.copy_(given)

    def update(self, start: Sequence[Tensor], provider: int, round: int) -> Weights:
        assert isinstance(self.oracle, LocalSGD)
        self.load(start)
        self.model.train()
        rate = step_at(self.oracle.step, round)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=rate, momentum=self.oracle.momentum)
        x, y = self.data[provider]
        for batch in self.oracle.batches(len(y), oracle_key(0, round, self.ids[provider])):
            rows = torch.from_numpy(batch).to(self.device)
            optimizer.zero_grad()
            with self.task.autocast(self.device):
                outputs = self.model(x[rows])
            next_word(outputs.float(), y[rows]).mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return [own.detach() - given for own, given in zip(self.model.parameters(), start, strict=True)]

    @torch.no_grad()
    def utility(self, weights: Sequence[Tensor]) -> float:
        self.load(weights)
        self.model.eval()
        x, y = self.holdout
        pieces = [slice(i, i + self.batch) for i in range(0, len(y), self.batch)]
        return -float(sum(next_word(self.model(x[rows]), y[rows]).sum() for rows in pieces)) / len(y)

    def updates(self, start: Weights, draws: Sequence[int], number: int) -> dict[int, Weights]:
        return {i: self.update(start, i, number) for i in dict.fromkeys(draws)}

    def judged(self, start: Weights, draws: Sequence[int], updates: dict[int, Weights]) -> tuple[Weights, list[float]]:
        """The weights after the round, and the utilities of its candidates."""
        found = [self.utility([w + g for w, g in zip(start, update, strict=True)]) for update in updates.values()]
        mean = [w + torch.stack([updates[i][at] for i in draws]).mean(0) for at, w in enumerate(start)]
        return mean, [*found, self.utility(mean)]


class Clock:
    """Seconds by name, with the device's work done; the first round, which makes graphs and tables, is left out."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.rounds: list[float] = []
        self.parts: dict[str, float] = {}

    def __call__(self, name: str, work: Callable[[], Made]) -> Made:
        begun = self.now()
        made = work()
        if self.rounds:
            self.parts[name] = self.parts.get(name, 0.0) + self.now() - begun
        return made

    def now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def tell(self, name: str, precision: str, more: str = "") -> None:
        steady = self.rounds[1:] or self.rounds
        print(
            f"{name:20} {precision:8} {statistics.median(steady):7.3f} s a round (best {min(steady):.3f}, first "
            f"{self.rounds[0]:.2f}) {self._peak():6.1f} GiB  {more}"
        )
        told = [f"{part} {1000 * total / len(steady):.0f} ms" for part, total in self.parts.items()]
        print(f"{'':20} {', '.join(told)}" if told else "", end="\n" if told else "", flush=True)

    def _peak(self) -> float:
        if self._device.type != "cuda":
            return 0.0
        found = torch.cuda.max_memory_allocated() / 2**30
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return found


def by_hand(size: Size, precision: Precision, device: torch.device, drawn: Drawn) -> Utilities:
    """The same rounds by the loop: the utilities of each round's candidates."""
    consumer, providers = market(size, precision)
    loop, clock, utilities = ByHand(consumer, providers, device), Clock(device), []
    weights = loop.weights()
    for number, draws in enumerate(drawn):
        begun = clock.now()
        updates = clock("updates", partial(loop.updates, weights, draws, number))
        weights, found = clock("score", partial(loop.judged, weights, draws, updates))
        clock.rounds.append(clock.now() - begun)
        utilities.append(found)
    clock.tell("by hand", precision)
    return utilities


def ours(size: Size, precision: Precision, device: torch.device, kind: str, rounds: int) -> tuple[Drawn, Utilities]:
    """Who was drawn in each round, and the utilities of its candidates."""
    consumer, providers = market(size, precision)
    arbiter = Arbiter(consumer, providers, OSMD(eta=0.01, alpha=0.5), engine=kind, device=str(device))
    run, clock, engine = arbiter.begin(Ledger(arbiter.rules)), Clock(device), arbiter.engine
    draws: Drawn = []
    utilities: Utilities = []
    for _ in range(rounds):  # as market/loop.py plays one
        begun = clock.now()
        drawn = clock("draw", partial(_drawn, run))
        replies = clock("updates", partial(_heard, run, engine, drawn))
        found = list[float]()
        state, settlement = clock("score", partial(_concluded, run, drawn, replies, found))
        clock("settle", partial(run.accounts.settle, run.state.round, drawn, settlement, state))
        run.state = state
        clock.rounds.append(clock.now() - begun)
        draws.append(drawn.draws.tolist())
        utilities.append(found)
        del replies, state, settlement
    clock.tell(f"engine {kind}", precision, ", ".join(getattr(engine, "stacks", {}).values()))
    arbiter.close()
    return draws, utilities


def _drawn(run: MarketRun) -> DrawnRound:
    drawn = run.rules.draw(run.state.sampler, run.accounts.book)
    run.accounts.reserve(run.state.round, drawn)
    return drawn


def _heard(run: MarketRun, engine: Engine, drawn: DrawnRound) -> Replies:
    question = run.question(drawn)
    return run.heard(drawn, question, engine.query(question))


def _concluded(run: MarketRun, drawn: DrawnRound, replies: Replies, found: list[float]) -> Outcome:
    """What the round comes to; the utilities of its candidates are noted."""
    assert isinstance(run.training, AveragingTraining)
    evaluator, own = run.training.evaluator, run.round(drawn, replies)
    score = evaluator.score

    def noted(stack: torch.Tensor) -> Scores:
        scores = score(stack)
        found.extend(scores.utility.tolist())
        return scores

    evaluator.score = noted  # type: ignore[method-assign]
    try:
        return conclude(own)
    finally:
        evaluator.score = score  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--engines", nargs="+", default=["loop", "vectorized"])
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    chosen = parser.parse_args()
    size, device = SMALL if chosen.small else LARGE, torch.device(chosen.device)
    numbers = sum(p.numel() for p in Transformer(size).parameters())
    print(f"{numbers:,} parameters, {PROVIDERS} providers, {DRAWN} asked; torch {torch.__version__}, {device}")
    for precision in chosen.precisions:
        for kind in chosen.engines:
            drawn, utilities = ours(size, precision, device, kind, chosen.rounds)
            theirs = by_hand(size, precision, device, drawn)
            gap = max(float(np.abs(np.subtract(*pair)).max()) for pair in zip(utilities, theirs, strict=True))
            print(f"{'':20} largest difference of a utility {gap:.1e}; the last is {utilities[-1][-1]:.4f}", flush=True)


if __name__ == "__main__":
    main()
