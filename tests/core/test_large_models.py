"""Large models: the same numbers in pieces."""

from __future__ import annotations

import pytest
import torch

from databazaar import Mean, Median, TrimmedMean
from databazaar.aggregators import Aggregator
from databazaar.engines import Replies
from databazaar.market.move import Move
from databazaar.market.state import Best, State


@pytest.mark.parametrize("aggregator", [Mean(), Median(), TrimmedMean(0.3)])
@pytest.mark.parametrize("size", [64, 1000])
def test_a_model_that_is_averaged_in_pieces_is_the_same_to_the_bit(aggregator: Aggregator, size: int) -> None:
    draw = torch.Generator().manual_seed(0)
    params, updates = torch.randn(333, generator=draw), torch.randn(20, 333, generator=draw)
    empty = torch.empty(0)
    state = State(0, params, 0.0, None, empty.double().numpy(), empty, Best(0, params, 0.0))
    asked = list(range(20))
    for own in (None, torch.randn(333, generator=draw)):
        move = Move(aggregator, state, asked, Replies(updates, {}), 0.7, own)
        good = [3, 3, *asked]
        assert torch.equal(move(good)[0], move.in_pieces(torch.tensor(good), size))
