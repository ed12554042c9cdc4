"""The streams of draws: seeded many rounds at once, they are NumPy's own to the last bit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from databazaar.randomness import AT_ONCE, draws_stream, stream

SEEDS = st.integers(0, 2**32) | st.integers(2**60, 2**70) | st.integers(2**190, 2**200)
ROUNDS = st.integers(0, 3 * AT_ONCE) | st.integers(2**32 - 3, 2**33)


@given(seed=SEEDS, round=ROUNDS)
def test_draws_come_from_the_stream_that_numpy_makes_of_seed_round_and_purpose(seed: int, round: int) -> None:
    ours, theirs = draws_stream(seed, round), stream(seed, round, "draws")
    assert ours.bit_generator.state == theirs.bit_generator.state
    assert ours.random(3).tolist() == theirs.random(3).tolist()


@pytest.mark.parametrize(("seed", "round"), [(-1, 0), (0, -1)])
def test_what_no_stream_is_made_of_is_refused_as_numpy_refuses_it(seed: int, round: int) -> None:
    with pytest.raises(ValueError, match="non-negative"):
        draws_stream(seed, round)
