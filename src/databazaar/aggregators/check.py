"""Whether an aggregator keeps its promises: one call, clear complaints."""

from __future__ import annotations

import torch

from databazaar.aggregators.protocol import AGGREGATORS, Aggregator, Guided
from databazaar.conformance import require, require_rebuilt


def check_aggregator(aggregator: Aggregator, *, width: int = 5, rounds: int = 20) -> None:
    """Combines random updates, from one to ten a round, and raises AssertionError at the first broken promise.

    >>> from databazaar import Mean
    >>> check_aggregator(Mean())
    """
    require_rebuilt(AGGREGATORS, aggregator)
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float32, torch.float64):
        params = torch.zeros(width, dtype=dtype)
        state = aggregator.init(params)
        require(state.dim() == 1 and state.dtype == dtype, "the state must be one vector of the parameters' type")
        for round in range(rounds):
            state = _guided(aggregator, state, torch.randn(width, generator=generator, dtype=dtype))
            updates = torch.randn(1 + 3 * round % 10, width, generator=generator, dtype=dtype)
            given, kept = updates.clone(), state.clone()
            state_after, move = aggregator.combine(state, updates, 0.5)
            again = aggregator.combine(state, updates, 0.5)
            require(move.shape == (width,) and move.dtype == dtype, f"the move must be like the parameters, got {move}")
            require(bool(torch.isfinite(move).all()), "finite updates must give a finite move")
            require(bool((updates == given).all() and (state == kept).all()), "combine must not change its arguments")
            require(bool((move == again[1]).all()), "combine must be a pure function")
            same = state_after.shape == again[0].shape and bool((state_after == again[0]).all())
            require(same, "combine must be a pure function of the state too")
            require(
                state_after.dtype == dtype and state_after.dim() == 1, "the new state must be a vector like the old"
            )
            state = state_after
        state = _guided(aggregator, aggregator.init(params), torch.ones(width, dtype=dtype))
        still = aggregator.combine(state, torch.zeros(3, width, dtype=dtype), 0.5)[1]
        require(not bool(still.any()), "updates of zero must not move the model")


def _guided(aggregator: Aggregator, state: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """The state with the reference of a round, for those that want one."""
    if not isinstance(aggregator, Guided):
        return state
    guided, again = aggregator.guide(state, reference.clone()), aggregator.guide(state, reference)
    same = guided.shape == again.shape and bool((guided == again).all())
    require(same and guided.dim() == 1 and guided.dtype == state.dtype, "guide must be a pure function to a state")
    return guided
