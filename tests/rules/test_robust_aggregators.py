"""Robust aggregators: each beside its definition written out, what changes they follow, and when they break down."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import trim_mean
from torch import Tensor

from databazaar import BazaarError, Mean
from databazaar.aggregators import (
    AGGREGATORS,
    Aggregator,
    CentredClipping,
    GeometricMedian,
    Krum,
    Median,
    TrimmedMean,
)
from databazaar.aggregators.centred_clipping import RECENT
from databazaar.aggregators.geometric_median import SMOOTHING
from databazaar.aggregators.protocol import suspects
from databazaar.engines.protocol import LIMIT
from databazaar.testing import check_aggregator

Array = NDArray[np.float64]
PLAIN: list[Aggregator] = [
    Median(),
    TrimmedMean(0.2),
    TrimmedMean(),
    Krum(),
    Krum(0.5),
    Krum(0.2, keep=1),
    GeometricMedian(),
]
"""Rules that look at the updates of a round alone."""
ROBUST: list[Aggregator] = [*PLAIN, CentredClipping(), CentredClipping(0.5)]
SIZES, SEEDS = st.integers(1, 12), st.integers(0, 10**6)
FEW = settings(deadline=None, max_examples=20)
"""What is tried for every rule by itself."""


def random(rows: int, width: int = 4, seed: int = 0) -> Tensor:
    return torch.randn(rows, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def combined(aggregator: Aggregator, updates: Tensor) -> Tensor:
    """The move of a first round with a step of 1."""
    return aggregator.combine(aggregator.init(updates[0]), updates, 1.0)[1]


def slow_trimmed(updates: Array, cut: int) -> list[float]:
    columns = [sorted(column) for column in updates.T.tolist()]
    return [sum(column[cut : len(column) - cut]) / (len(column) - 2 * cut) for column in columns]


def slow_krum(updates: Array, f: int, keep: int) -> Array:
    scores = []
    for i, update in enumerate(updates):
        apart = sorted(float(((update - other) ** 2).sum()) for j, other in enumerate(updates) if j != i)
        scores.append(sum(apart[: max(len(updates) - f - 2, f)]))
    worst = sorted(scores)[keep - 1]
    kept = [update for update, score in zip(updates, scores, strict=True) if score <= worst]
    return np.asarray(np.mean(kept, axis=0))


def slow_clipping(rounds: Sequence[Array], radius: float) -> list[Array]:
    centre, seen, moves = np.zeros(rounds[0].shape[1]), list[float](), []
    for updates in rounds:
        lengths = [float(np.linalg.norm(update - centre)) for update in updates]
        known = sorted(length for length in seen[-RECENT:] + lengths if length > 0)
        reach = radius * known[(len(known) - 1) // 2]
        clipped = [
            (u - centre) * min(1.0, reach / length) for u, length in zip(updates, lengths, strict=True) if length
        ]
        centre = centre + np.sum(clipped, axis=0) / len(updates)
        seen += lengths
        moves.append(centre)
    return moves


def sum_of_distances(centre: Array, updates: Array) -> float:
    return float(sum(np.linalg.norm(update - centre) for update in updates))


@pytest.mark.parametrize("aggregator", ROBUST, ids=repr)
def test_each_keeps_the_promises(aggregator: Aggregator) -> None:
    check_aggregator(aggregator)


def test_ours_are_all_known_by_their_kind() -> None:
    assert [AGGREGATORS.find(kind) for kind in AGGREGATORS.kinds()[:6]] == [
        *(CentredClipping, GeometricMedian, Krum, Mean, Median, TrimmedMean)
    ]


@given(rows=SIZES, seed=SEEDS)
def test_the_median_is_numpys(rows: int, seed: int) -> None:
    updates = random(rows, seed=seed)
    np.testing.assert_allclose(combined(Median(), updates), np.median(updates.numpy(), axis=0), atol=1e-12)


@given(rows=SIZES, share=st.floats(0.0, 0.5), seed=SEEDS)
def test_the_trimmed_mean_is_a_mean_without_the_ends(rows: int, share: float, seed: int) -> None:
    updates, cut = random(rows, seed=seed), suspects(share, rows)
    found = combined(TrimmedMean(share), updates)
    np.testing.assert_allclose(found, slow_trimmed(updates.numpy(), cut), atol=1e-12)
    np.testing.assert_allclose(found, trim_mean(updates.numpy(), (cut + 0.5) / rows if cut else 0.0), atol=1e-12)


@given(rows=SIZES, share=st.floats(0.0, 0.5), keep=st.none() | st.integers(1, 12), seed=SEEDS)
def test_krum_keeps_those_with_others_near_them(rows: int, share: float, keep: int | None, seed: int) -> None:
    updates, f = random(rows, seed=seed), suspects(share, rows)
    kept = rows - f if keep is None else min(keep, rows - f)
    slow = slow_krum(updates.numpy(), f, kept)
    np.testing.assert_allclose(combined(Krum(share, keep), updates), slow, atol=1e-12)


@FEW
@given(rows=st.integers(3, 12), seed=SEEDS)
def test_the_geometric_median_is_nearest_to_all(rows: int, seed: int) -> None:
    updates = random(rows, seed=seed)
    array = updates.numpy()
    least = minimize(
        sum_of_distances, array.mean(0), args=(array,), method="Nelder-Mead", tol=1e-9, options={"maxiter": 4000}
    )
    assert sum_of_distances(combined(GeometricMedian(), updates).numpy(), array) <= 1.02 * least.fun
    assert sum_of_distances(combined(GeometricMedian(1000), updates).numpy(), array) <= (1 + 2 * SMOOTHING) * least.fun


@FEW
@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=15), radius=st.floats(0.1, 3.0), seed=SEEDS)
def test_centred_clipping_follows_its_definition_over_rounds(lengths: list[int], radius: float, seed: int) -> None:
    rounds = [random(length, seed=seed + number) + 1.0 for number, length in enumerate(lengths)]
    aggregator = CentredClipping(radius)
    state = aggregator.init(rounds[0][0])
    for updates, slow in zip(rounds, slow_clipping([u.numpy() for u in rounds], radius), strict=True):
        state, move = aggregator.combine(state, updates, 0.5)
        np.testing.assert_allclose(move, 0.5 * slow, atol=1e-9)


@pytest.mark.parametrize("aggregator", ROBUST, ids=repr)
@FEW
@given(rows=SIZES, seed=SEEDS)
def test_the_order_of_draws_does_not_matter(aggregator: Aggregator, rows: int, seed: int) -> None:
    updates = random(rows, seed=seed)
    mixed = updates[torch.randperm(rows, generator=torch.Generator().manual_seed(seed))]
    torch.testing.assert_close(combined(aggregator, mixed), combined(aggregator, updates))


@pytest.mark.parametrize("aggregator", PLAIN, ids=repr)
@FEW
@given(rows=SIZES, scale=st.floats(1e-3, 1e3), shift=st.floats(-10, 10), seed=SEEDS)
def test_shifting_and_stretching_all_updates_does_the_same_to_the_move(
    aggregator: Aggregator, rows: int, scale: float, shift: float, seed: int
) -> None:
    updates = random(rows, seed=seed)
    found, wanted = combined(aggregator, scale * updates + shift), scale * combined(aggregator, updates) + shift
    torch.testing.assert_close(found, wanted, atol=1e-9 * (1 + scale), rtol=1e-7)


@pytest.mark.parametrize("aggregator", [Krum(), GeometricMedian(), CentredClipping()], ids=repr)
@FEW
@given(rows=SIZES, seed=SEEDS)
def test_turning_all_updates_turns_the_move(aggregator: Aggregator, rows: int, seed: int) -> None:
    updates, turn = random(rows, seed=seed), torch.linalg.qr(random(4, seed=seed + 1)).Q
    torch.testing.assert_close(combined(aggregator, updates @ turn), combined(aggregator, updates) @ turn)


@pytest.mark.parametrize("aggregator", ROBUST, ids=repr)
@FEW
@given(rows=SIZES, scale=st.floats(1e-3, 1e3), seed=SEEDS)
def test_the_move_is_in_the_units_of_the_updates(aggregator: Aggregator, rows: int, scale: float, seed: int) -> None:
    updates = random(rows, seed=seed)
    torch.testing.assert_close(combined(aggregator, scale * updates), scale * combined(aggregator, updates))


def attacked(rows: int, share: float, length: float, seed: int) -> tuple[Tensor, Tensor]:
    """Updates of which as many as are suspected are arbitrary, some of them alike; and the others alone."""
    f = suspects(share, rows)
    good, bad = random(rows - f, seed=seed), length * random(f, seed=seed + 1)
    bad[::2] = bad[:1].clone()
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    return torch.cat([good, bad])[order], good


LENGTHS = st.sampled_from([0.1, 1.0, 3.0, 100.0, 1e8, LIMIT])


@pytest.mark.parametrize(("aggregator", "share"), [(Median(), 0.5), (TrimmedMean(), 0.3), (TrimmedMean(0.5), 0.5)])
@FEW
@given(rows=SIZES, length=LENGTHS, seed=SEEDS)
def test_coordinates_stay_between_those_of_the_honest(
    aggregator: Aggregator, share: float, rows: int, length: float, seed: int
) -> None:
    updates, good = attacked(rows, share, length, seed)
    move = combined(aggregator, updates)
    assert bool((move >= good.amin(0) - 1e-12).all() and (move <= good.amax(0) + 1e-12).all())


@pytest.mark.parametrize("share", [0.3, 0.5])
@pytest.mark.parametrize("keep", [None, 1])
@FEW
@given(rows=SIZES, length=LENGTHS, seed=SEEDS)
def test_whoever_krum_keeps_is_near_the_honest(
    share: float, keep: int | None, rows: int, length: float, seed: int
) -> None:
    """Who is kept has a score no higher than that of an honest one, which is at most `rows` widths squared; and among
    those whom it counts as near is an honest one."""
    updates, good = attacked(rows, share, length, seed)
    width = float(torch.cdist(good, good).max())
    apart = torch.linalg.vector_norm(good - combined(Krum(share, keep), updates), dim=1)
    assert float(apart.max()) <= (1 + rows**0.5) * width + 1e-9


@given(rows=SIZES, length=LENGTHS, seed=SEEDS)
def test_the_geometric_median_stays_near_the_honest(rows: int, length: float, seed: int) -> None:
    """A step of Weiszfeld's never lets the sum of distances rise; so it is bounded by where it began."""
    updates, good = attacked(rows, 0.5, length, seed)
    g, f, width = len(good), rows - len(good), float(torch.cdist(good, good).max())
    begun = (1 + rows**0.5) * width
    apart = torch.linalg.vector_norm(good - combined(GeometricMedian(), updates), dim=1)
    assert float(apart.max()) <= (2 * g * width + rows * begun) / (g - f) * 1.01 + 1e-9


@given(rows=SIZES, length=LENGTHS, seed=SEEDS)
def test_centred_clipping_takes_no_more_than_the_radius_of_anybody(rows: int, length: float, seed: int) -> None:
    aggregator = CentredClipping()
    state = aggregator.init(random(1)[0])
    for number in range(10):
        state, _ = aggregator.combine(state, random(8, seed=seed + number), 1.0)
    updates, good = attacked(rows, 0.3, length, seed)
    known = torch.cat([state[-RECENT:], torch.linalg.vector_norm(good - state[:-RECENT], dim=1)])
    _, move = aggregator.combine(state, updates, 1.0)
    assert float((move - state[:-RECENT]).norm()) <= float(known.max())
    hostile = torch.full((1, 4), length, dtype=torch.float64)
    _, alone = aggregator.combine(state, hostile, 1.0)  # a round of a single, hostile update
    assert float((alone - state[:-RECENT]).norm()) <= float(known.max())


@pytest.mark.parametrize("aggregator", [*PLAIN, CentredClipping()], ids=repr)
@pytest.mark.parametrize("rows", range(1, 12))
def test_where_all_agree_all_agree_with_them(aggregator: Aggregator, rows: int) -> None:
    update = random(1)[0]
    torch.testing.assert_close(combined(aggregator, update.expand(rows, 4)), update)


@pytest.mark.parametrize("aggregator", [*PLAIN, CentredClipping()], ids=repr)
def test_one_update_is_taken_whole(aggregator: Aggregator) -> None:
    torch.testing.assert_close(combined(aggregator, random(1)), random(1)[0])


@pytest.mark.parametrize("aggregator", PLAIN, ids=repr)
def test_of_two_updates_the_mean_is_taken(aggregator: Aggregator) -> None:
    updates = random(2) * torch.tensor([[1.0], [100.0]])
    torch.testing.assert_close(combined(aggregator, updates), updates.mean(0))


def test_of_three_updates_krum_keeps_the_pair() -> None:
    updates = torch.tensor([[0.0, 0.0], [9.0, 9.0], [1.0, 0.0]])
    assert combined(Krum(), updates).tolist() == [0.5, 0.0]


@pytest.mark.parametrize("aggregator", ROBUST, ids=repr)
def test_single_precision_is_enough_for_a_large_model(aggregator: Aggregator) -> None:
    """With one update as long as an engine lets through."""
    updates = random(7, 200_000)
    updates[3] *= LIMIT / 10
    single, double = combined(aggregator, updates.float()).double(), combined(aggregator, updates)
    assert single.isfinite().all()
    assert float((single - double).norm() / double.norm()) < 1e-4


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda: TrimmedMean(0.6), "aggregator trimmed-mean: share = 0.6 must be between 0 and 0.5"),
        (lambda: TrimmedMean(True), "share = True must be a number"),
        (lambda: Krum(-0.1), "aggregator krum: share = -0.1 must be between"),
        (lambda: Krum(keep=0), "aggregator krum: keep = 0 must be at least 1"),
        (lambda: GeometricMedian(0), "iterations = 0 must be between 1 and 1000"),
        (lambda: CentredClipping(0.0), "aggregator centred-clipping: radius = 0.0 must be above 0"),
        (lambda: CentredClipping(float("nan")), "radius = nan must be a finite number"),
    ],
)
def test_bad_settings_are_refused(build: type[Aggregator], complaint: str) -> None:
    with pytest.raises(BazaarError, match=complaint):
        build()
