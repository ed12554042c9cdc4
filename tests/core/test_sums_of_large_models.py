"""The models that a round of a large model scores: one formula, to the same bits in whatever pieces."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from databazaar import Mean
from databazaar.engines import Replies
from databazaar.learning.sums import GIANT, drowned
from databazaar.market import move as moves
from databazaar.market.move import Move
from databazaar.market.state import Best, State

WIDTH, STEP = 37, 0.7


@pytest.fixture(scope="module", autouse=True)
def _any_model_is_large() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moves, "LARGE", 1)
        yield


def moved(updates: Tensor, failures: dict[int, str], own: Tensor | None = None, params: Tensor | None = None) -> Move:
    params = torch.linspace(-1, 1, updates.shape[1]) if params is None else params
    state = State(0, params, 0.0, None, np.zeros(1), torch.empty(0), Best(0, params, 0.0))
    return Move(Mean(), state, list(range(len(updates))), Replies(updates, failures), STEP, own)


def slowly(move: Move, good: list[int], gains: str) -> list[np.ndarray]:
    """Every row by its definition, in 64 bits, from updates written out draw by draw."""
    w, updates = move.state.params.double().numpy(), move.replies.updates.double().numpy()
    own = [] if move.own is None else [move.own.double().numpy()]
    rows = []
    for keeps in (True, False) if gains == "shapley" else (False,):
        for i in move.asked:
            left_out = i not in good and i not in move.replies.failures
            if gains == "shapley":
                if len(move.replies.failures) == len(move.asked):
                    rows.append(w)
                    continue
                draws = [*good, i] if left_out else good
                terms = [(1.0 if keeps else 0.0) * updates[j] if j == i else 0.5 * updates[j] for j in draws]
                terms += [0.5 * one for one in own]
            else:
                draws = [*good, i] if left_out else [j for j in good if j != i]
                terms = [updates[j] for j in draws] + own if draws else []
            rows.append(w + STEP / max(1, len(draws) + len(own)) * sum(terms, np.zeros_like(w)))
    return rows


@st.composite
def rounds(draw: st.DrawFn) -> tuple[Move, list[int]]:
    """Some asked, drawn once or more; some failed, some left out; with or without an update of the consumer's own."""
    asked, seed = draw(st.integers(1, 5)), draw(st.integers(0, 10**6))
    noise = torch.Generator().manual_seed(seed)
    updates = torch.randn(asked, WIDTH, generator=noise) * 10.0 ** draw(st.integers(-3, 3))
    kinds = draw(st.lists(st.sampled_from(["good", "failed", "left out"]), min_size=asked, max_size=asked))
    failures = {i: "not today" for i, kind in enumerate(kinds) if kind == "failed"}
    for i in failures:
        updates[i] = 0
    fine = [i for i, kind in enumerate(kinds) if kind == "good"]
    good = fine + (draw(st.lists(st.sampled_from(fine), max_size=3)) if fine else [])
    own = torch.randn(WIDTH, generator=noise) if draw(st.booleans()) else None
    return moved(updates, failures, own), draw(st.permutations(good))


@settings(deadline=None, max_examples=150)
@given(rounds(), st.sampled_from(["together", "shapley"]))
def test_every_row_is_what_its_definition_says(played: tuple[Move, list[int]], gains: str) -> None:
    move, good = played
    rows = move.halfway_with_and_without_each if gains == "shapley" else move.without_each
    found, expected = rows(good), slowly(move, good, gains)
    assert len(found) == len(expected)
    scale = 1 + float(move.replies.updates.abs().max())
    for at, (one, right) in enumerate(zip(found, expected, strict=True)):
        assert np.abs(one.double().numpy() - right).max() < 3e-6 * scale
        assert torch.equal(rows(good, slice(at, at + 1))[0], one)  # one by one, as they are scored


@settings(deadline=None, max_examples=50)
@given(rounds(), st.integers(1, WIDTH + 3))
def test_pieces_of_any_size_give_the_same_bits(played: tuple[Move, list[int]], size: int) -> None:
    move, good = played
    for provider in good[:1]:
        part = move.half(provider, False, good)
        assert torch.equal(move.summed(part, good, provider, size), move.summed(part, good, provider))


def test_the_mean_of_up_to_sixteen_draws_has_the_bits_of_the_aggregator() -> None:
    noise = torch.Generator().manual_seed(0)
    params, updates = torch.randn(4096, generator=noise), torch.randn(16, 4096, generator=noise)
    move, good = moved(updates, {}, params=params), [3, 1, 1, *range(13)]
    assert torch.equal(move(good)[0], params + Mean().combine(torch.empty(0), updates[good], STEP)[1])


@pytest.mark.parametrize("gains", ["together", "shapley"])
@pytest.mark.parametrize("times", [1, 2])
def test_an_update_that_drowns_the_others_is_not_taken_from_their_sum(gains: str, times: int) -> None:
    """Were T − c·g computed, what is left of a giant would stand in place of the others and of the model itself: and
    a model that is noise without it tells nothing of the harm that it does."""
    noise = torch.Generator().manual_seed(0)
    updates = torch.randn(4, WIDTH, generator=noise)
    updates[2] *= 1e14
    move, good = moved(updates, {}), [0, 1, *[2] * times, 3]
    rows = move.halfway_with_and_without_each if gains == "shapley" else move.without_each
    place = 4 + 2 if gains == "shapley" else 2
    without = rows(good, slice(place, place + 1))[0]
    assert np.abs(without.double().numpy() - slowly(move, good, gains)[place]).max() < 1e-6


def test_only_a_giant_drowns() -> None:
    assert not drowned([1.0, 2.0, 3.0, GIANT / 2])
    assert drowned([1.0, 2.0, 3.0, 2.1 * GIANT])
    assert drowned([1.0, 5.0 * GIANT])  # of two the smaller is the middle one
    assert not drowned([])
    assert not drowned([0.0, 0.0])
