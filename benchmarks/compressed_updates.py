"""How far real parameters and updates can be compressed on their way, and how fast: `bench_payloads.py --compression`.

Markets of four providers with 2,000 images of MNIST each, and the market of examples/lora_market.py, are played for a
few rounds; every model that is asked about and every update that comes back is packed as messages are, and unpacked.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from databazaar import Arbiter, Consumer, LocalSGD, Provider
from databazaar.engines import Ask, Replies
from databazaar.engines.loop import LoopEngine
from databazaar.federation.payloads import PIECE
from databazaar.federation.wire import packed_piece, unpacked_piece
from databazaar.learning.models import build_model

ROUNDS, PER_ROUND, ROWS = 6, 4, 2_000


class Recording(LoopEngine):
    """Keeps what goes there and back."""

    there: list[Tensor]
    back: list[Tensor]

    def query(self, ask: Ask) -> Replies:
        replies = super().query(ask)
        self.there.append(ask.params.clone())
        self.back += [update.clone() for update in replies.updates]
        return replies


def mnist(data: Path, kind: str, hidden: tuple[int, ...] = ()) -> Arbiter:
    with np.load(data / "mnist.npz") as file:
        shape = (1, 28, 28) if kind == "cnn" else (784,)
        x = torch.from_numpy(file["x_train"][: 5 * ROWS].reshape(-1, *shape).astype(np.float32) / 255)
        y = torch.from_numpy(file["y_train"][: 5 * ROWS].astype(np.int64))
    model = build_model(kind, shape, 10, hidden=hidden)
    consumer = Consumer(model, holdout=(x[:1000], y[:1000]), budget=ROUNDS * PER_ROUND, per_round=PER_ROUND)
    oracle, own = LocalSGD(step=0.05, batch_size=32, momentum=0.5), range(ROWS, 5 * ROWS, ROWS)
    providers = [Provider(f"p{at}", (x[at : at + ROWS], y[at : at + ROWS]), oracle) for at in own]
    return Arbiter(consumer, providers, engine="loop", seed=3)


def lora() -> Arbiter:
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    from lora_market import market

    return market(budget=ROUNDS * 3)


def played(made: Callable[[], Arbiter]) -> Iterator[tuple[str, list[Tensor]]]:
    """What went there, and what came back."""
    arbiter = made()
    engine = Recording(arbiter.consumer.task, arbiter.providers, torch.device("cpu"))
    engine.there, engine.back = [], []
    Arbiter(arbiter.consumer, arbiter.providers, engine=engine, seed=3).run()
    yield "parameters", engine.there[1:]  # the first are as they were made, and a seed would do
    yield "updates", engine.back


def measure(name: str, what: str, vectors: list[Tensor]) -> None:
    plain = packed = 0
    packing = unpacking = 0.0
    for vector in vectors:
        whole = vector.numpy().data.cast("B")
        pieces = [whole[at : at + PIECE] for at in range(0, len(whole), PIECE)]
        began = time.process_time()
        sent = [packed_piece(piece) for piece in pieces]
        packing += time.process_time() - began
        began = time.process_time()
        came = b"".join(unpacked_piece(piece, len(own)) for piece, own in zip(sent, pieces, strict=True))
        unpacking += time.process_time() - began
        assert came == whole
        plain, packed = plain + len(whole), packed + sum(map(len, sent))
    small = ", which goes as a whole and is not packed" if len(whole) <= PIECE else ""
    print(
        f"{name:<18} {what:<10} {len(vectors):3} of {len(whole) / 1e6:6.2f} MB: {packed / plain:4.0%} of it, packed at "
        f"{plain / packing / 1e6:4.0f} MB/s and unpacked at {plain / unpacking / 1e6:4.0f} MB/s of CPU{small}",
        flush=True,
    )


def main(data: Path) -> None:
    torch.set_num_threads(1)
    markets: dict[str, Callable[[], Arbiter]] = {
        "MNIST, CNN": lambda: mnist(data, "cnn"),
        "MNIST, MLP 300": lambda: mnist(data, "mlp", (300,)),
        "MNIST, MLP 1200²": lambda: mnist(data, "mlp", (1200, 1200)),
        "LoRA adapter": lora,
    }
    for name, made in markets.items():
        for what, vectors in played(made):
            measure(name, what, vectors)
