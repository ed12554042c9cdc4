"""The streams of draws: they are pinned, since every audit draws again from them."""

from __future__ import annotations

import pytest

from databazaar.randomness import draws_stream


@pytest.mark.parametrize(
    ("seed", "round", "first"),
    [
        (0, 0, 0.6159041864896397),
        (7, 3, 0.0752212611466474),
        (7, 1000, 0.6987101495236696),
        (1099511627777, 5, 0.6148179730324681),
        (1606938044258990275541962092341162602522202993782792835301376, 4294967297, 0.4805640914050976),
    ],
)
def test_a_stream_of_draws_never_changes(seed: int, round: int, first: float) -> None:
    assert draws_stream(seed, round).random() == first


@pytest.mark.parametrize(("seed", "round"), [(-1, 0), (0, -1)])
def test_what_no_stream_is_made_of_is_refused_as_numpy_refuses_it(seed: int, round: int) -> None:
    with pytest.raises(ValueError, match="non-negative"):
        draws_stream(seed, round)
