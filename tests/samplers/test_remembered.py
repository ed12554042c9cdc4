"""Chances that are remembered are those that would be worked out."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from databazaar import Coins, Memory, Sampler, Thrifty
from databazaar.roster import Purse, Roster
from databazaar.samplers import thrifty


@pytest.mark.parametrize("sampler", [Thrifty(), Memory(), Coins()])
def test_another_state_or_purse_is_looked_at_anew(sampler: Sampler) -> None:
    roster = Roster.of((f"p{i}", "o", 1 + i) for i in range(6))
    state = sampler.init(roster, 1000, 3)
    purses = [Purse(1000, roster.prices), Purse(4, roster.prices)]
    rng = np.random.default_rng(0)
    for round in range(30):
        purse = purses[round % 7 == 0]
        found = sampler.probabilities(state, purse)
        found[:] = -1.0  # whoever writes into an answer spoils it for nobody
        draws = sampler.draw(state, rng, 3, purse)
        kept = sampler.probabilities(state, purse)
        fresh = type(sampler)()
        np.testing.assert_array_equal(kept, fresh.probabilities(state, Purse(purse.left, purse.quotes)))
        state = sampler.update(state, draws, rng.normal(size=len(draws)), purse)
        np.testing.assert_array_equal(
            sampler.probabilities(state, purse), fresh.probabilities(state, Purse(purse.left, purse.quotes))
        )
        state[0] += 1e-3  # the same array with other numbers is another state
        np.testing.assert_array_equal(
            sampler.probabilities(state, purse), fresh.probabilities(state, Purse(purse.left, purse.quotes))
        )


def test_a_round_works_them_out_once() -> None:
    sampler, roster = Thrifty(), Roster.equal(5)
    state, purse = sampler.init(roster, 100, 2), Purse(100, roster.prices)
    with mock.patch.object(thrifty, "worth", side_effect=thrifty.worth) as worked_out:
        sampler.draw(state, np.random.default_rng(0), 2, purse)
        sampler.probabilities(state, purse)
    assert worked_out.call_count == 1
