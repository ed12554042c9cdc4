"""What the watch measures: sketches, the two parts of the hold-out, and what is remembered of answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from databazaar import Arbiter, Consumer, LocalSGD, Provider
from databazaar.ledger import Accounts
from databazaar.market.inspection import memory as memory_module
from databazaar.market.inspection.holdout_parts import halves
from databazaar.market.inspection.inspection import median_of_others
from databazaar.market.inspection.memory import PERSISTS, PERSISTS_SQUARED, SIZE, Memory, Sketch
from databazaar.market.loop import play
from databazaar.market.run import MarketRun
from databazaar_experiments.attacks import Clones, Known, MixedEngine, Noise, Replay

pytestmark = pytest.mark.slow


@given(st.integers(2, 9), st.integers(0, 10**6))
def test_the_median_of_the_others_is_that_of_what_is_left(rows: int, seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 4, (rows, 6)).astype(float)
    slow = np.stack([np.median(np.delete(values, row, axis=0), axis=0) for row in range(rows)])
    assert (median_of_others(values) == slow).all()


@given(st.integers(1, 500), st.integers(0, 99))
def test_every_row_is_in_one_part(rows: int, seed: int) -> None:
    scoring, control = halves(rows, seed)
    assert sorted([*scoring.tolist(), *control.tolist()]) == list(range(rows))
    assert len(control) - len(scoring) in (0, 1)


def test_a_sketch_keeps_inner_products_and_a_short_vector_is_its_own() -> None:
    short = torch.randn(3, SIZE)
    assert torch.equal(Sketch.of(short[0])(short), short.double())
    vectors = torch.randn(40, 5_000, generator=torch.Generator().manual_seed(0))
    vectors[1::2] += vectors[::2]
    sketched = Sketch.of(vectors[0])(vectors).numpy()
    exact, kept = (rows @ rows.T for rows in (vectors.double().numpy(), sketched))
    lengths = np.sqrt(np.outer(np.diag(exact), np.diag(exact)))
    assert sketched.shape == (40, SIZE)
    assert np.abs((kept - exact) / lengths).mean() < 2 / np.sqrt(SIZE)


def test_noise_of_any_shape_does_not_persist_and_a_signal_below_it_does() -> None:
    """The statistic is that of a martingale, also for noise along one line, which would fool a cosine of halves."""
    rng, shown = np.random.default_rng(0), dict[str, list[float]]()
    line, data = rng.normal(size=(2, 50))
    for kind in ("isotropic", "a line", "data in three times as much noise"):
        for _ in range(200):
            memory, at = Memory.of({}, 50, 0).places([7])
            for _ in range(64):
                noise = rng.normal(size=50) if kind != "a line" else rng.normal() * line
                answer = noise + (0 if kind != "data in three times as much noise" else data / 3)
                memory = memory.with_private(at, np.zeros(1, dtype=np.int64), answer[None] / np.linalg.norm(answer))
            tallies = memory.tallies[at[0]]
            shown.setdefault(kind, []).append(float(tallies[PERSISTS] / np.sqrt(tallies[PERSISTS_SQUARED])))
    for kind in ("isotropic", "a line"):
        assert abs(np.mean(shown[kind])) < 0.3 and 0.8 < np.std(shown[kind]) < 1.2, kind
    assert np.quantile(shown["data in three times as much noise"], 0.05) > 2.5


def signals_of(owners: list[int], data: np.ndarray, rounds: list[list[int]], seed: int) -> list[tuple[float, float]]:
    """What the answers of every row have shown, where those named answer in each round: with their row of `data` and
    noise as long as it."""
    rng, (rows, size) = np.random.default_rng(seed), data.shape
    memory, at = Memory.of({}, size, 0).places(list(range(rows)))
    for asked in rounds:
        answers = data[asked] + rng.normal(size=(len(asked), size)) / np.sqrt(size)
        units = answers / np.linalg.norm(answers, axis=1, keepdims=True)
        memory = memory.with_private([at[i] for i in asked], np.array(owners), units)
    found = memory.signals(at, np.array(owners), 0.0)
    assert None not in found
    return [signal for signal in found if signal is not None]


def test_noise_under_a_new_id_each_time_is_noise_of_its_owner() -> None:
    """Sixteen ids of one owner with one answer each, beside three providers with data: an id alone shows nothing."""
    owners, shown = [0, 1, 2, *[3] * 16], []
    for seed in range(100):
        data = np.zeros((19, 50))
        data[:3] = np.random.default_rng(seed).normal(size=(3, 50)) / np.sqrt(50)
        signals = signals_of(owners, data, [[0, 1, 2, 3 + round] for round in range(16)], seed)
        assert len(set(signals[3:])) == 1 and signals[0][0] / signals[0][1] > 2
        shown.append(signals[3][0] / signals[3][1])
    assert abs(np.mean(shown)) < 0.3 and 0.8 < np.std(shown) < 1.2


def test_an_owner_of_different_data_sets_shows_nearly_what_one_of_them_would() -> None:
    data = np.random.default_rng(1).normal(size=(8, 200)) / np.sqrt(200)
    rounds = [[0, 1, 2, 3 + round % 5] for round in range(100)]
    signals = signals_of([0, 1, 2, 3, 3, 3, 3, 3], data, rounds, 0)
    assert len(set(signals[3:])) == 1 and signals[3][0] > 0.6
    assert signals[3][0] / signals[3][1] > 2.5


def digits_market(seed: int = 0) -> MarketRun:
    """Six honest providers with a model of 514 numbers, one that sends noise, one that replays, and a second name."""
    rng = np.random.default_rng(seed)
    weight = rng.normal(size=(12, 2))

    def rows(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = rng.normal(size=(count, 12)).astype(np.float32)
        return torch.from_numpy(x), torch.from_numpy((x @ weight + rng.gumbel(size=(count, 2))).argmax(1))

    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(12, 34), torch.nn.Tanh(), torch.nn.Linear(34, 2))
    consumer = Consumer(model, budget=1500, per_round=9, holdout=rows(120))
    honest = [Provider(f"p{i}", rows(60), LocalSGD(0.2, 16)) for i in range(8)]
    noise = Noise(1.0).join(Known(consumer.task, (honest[6],)))
    replay = Replay().join(Known(consumer.task, (honest[7],)))
    names = Clones(2, declared=False).join(Known(consumer.task, (honest[0],)))
    providers = [*honest[1:6], *noise, *replay, *names]
    engine = MixedEngine(consumer.task, providers)
    arbiter = Arbiter(consumer, providers, engine=engine, seed=seed, defence="standard")
    run = arbiter.begin(Accounts(arbiter.rules))
    play(run, engine)
    return run


def test_verdicts_from_a_sketch_are_those_from_whole_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise is flagged, replays are void, names are merged and nobody else is judged, with 256 numbers as with all."""
    found = []
    for size in (SIZE, 10**6):
        monkeypatch.setattr(memory_module, "SIZE", size)
        run = digits_market()
        detector, ids = run.rules.detector(run.state.sampler), run.rules.terms.roster.ids
        assert run.state.watch["sums"].shape[1] == min(size, run.state.model.size)
        flagged = [id for id, is_flagged in zip(ids, detector.flagged, strict=True) if is_flagged]
        merged = {ids[i]: ids[arm] for i, arm in enumerate(detector.arm.tolist()) if arm != i}
        found.append((flagged, merged, run.accounts.book.failures.get("p7", 0) > 0))
    assert found[0] == found[1] == (["p6"], {"p0~2": "p0"}, True)
