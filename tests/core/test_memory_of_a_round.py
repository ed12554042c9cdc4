"""How much memory a round of a large model takes, measured in a process of its own: in copies of what is trained."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ASKED = 4
MARKET = f"""
import sys
import numpy as np, torch
from databazaar import Arbiter, Consumer, LocalSGD, Provider

def market(side, layers):
    rng = np.random.default_rng(0)
    rows = lambda: (rng.normal(size=(8, side)).astype(np.float32), rng.integers(0, 2, 8))
    torch.manual_seed(0)
    parts = [part for _ in range(layers) for part in (torch.nn.Linear(side, side), torch.nn.ReLU())]
    model = torch.nn.Sequential(*parts, torch.nn.Linear(side, 2))
    consumer = Consumer(model, holdout=rows(), budget={4 * ASKED}, per_round={ASKED})
    return consumer, [Provider(f"p{{i}}", rows(), LocalSGD(1.0, 4, steps=2)) for i in range(20)]

def play(consumer, providers):
    return Arbiter(consumer, providers, engine=sys.argv[1], device="cpu").run()

def resident(what):  # not getrusage's maximum, which begins with that of the process that started this one
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(what))

torch.set_num_threads(1)
play(*market(32, 4))  # what is imported late and set up once is no part of a round
parties = market(1118, 4)
width = sum(p.numel() for p in parties[0].task.model.parameters())
before = resident("VmRSS:")
report = play(*parties)
peak = resident("VmHWM:")
print((peak - before) / (4 * width), width, [one.utility for one in report.rounds])
"""


@pytest.mark.parametrize("engine", ["loop", "vectorized"])
def test_a_round_of_a_large_model_takes_a_copy_for_each_that_is_asked_and_three_more(engine: str) -> None:
    """The updates, the model before, the best so far (the utility falls), and a model that is trained or scored. Half a
    copy of room either way: fewer would say that the market did not come to hold what it may."""
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "1048576", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", MARKET, engine], env=env, capture_output=True, text=True, check=True)
    copies = float(done.stdout.split()[0])
    assert ASKED + 2.5 < copies < ASKED + 3.5, done.stdout
