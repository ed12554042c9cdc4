"""What is paid now, and what is held back: exploration is paid for, to the coin and in the mean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from databazaar.defence import Defence, Findings
from databazaar.defence.detector import CLEARED, LEAK, OPEN, DetectorState
from databazaar.defence.shares import Accesses, now_and_held
from databazaar.roster import Roster

DATA = Defence(owners=True, data=2.5, screen=3.0)
NOTHING = Findings()


def court_of(providers: int, **columns: Any) -> DetectorState:
    new = DetectorState.new(Roster.equal(providers), owners=True)
    return replace(new, **{name: np.array(values) for name, values in columns.items()})


def settle(detector: DetectorState, chance: float, defence: Defence = DATA, **more: Any) -> tuple[list[int], list[int]]:
    """One access of 100 to the first of two providers, with α = 0.1."""
    accesses = Accesses([0], [100], [more.get("due", 100)], [chance])
    return now_and_held(defence, detector, accesses, more.get("findings", NOTHING), 0.1)[1:]


def test_who_is_open_gets_the_floor_and_the_rest_is_held_back() -> None:
    assert settle(court_of(2), 0.5) == ([10], [90])
    assert settle(court_of(2), 0.05) == ([100], [0])  # drawn as seldom as by exploration alone
    assert settle(court_of(2), 0.01) == ([100], [0])
    assert settle(court_of(2), 0.5, due=0) == ([0], [0])
    assert settle(court_of(2, standing=[CLEARED, OPEN]), 0.5) == ([100], [0])
    assert settle(court_of(2, standing=[LEAK, OPEN]), 0.5) == ([10], [0])
    assert settle(court_of(2), 0.5, Defence(owners=True, leak=0.01)) == ([100], [0])  # nothing is held without a test
    assert settle(court_of(2, standing=[LEAK, OPEN]), 0.5, Defence(leak=0.01)) == ([10], [0])


def test_an_answer_that_was_left_out_is_paid_in_full_or_the_floor() -> None:
    harm, strict = Findings(harm=[3.5]), replace(DATA, pay_left_out=False)
    cleared = court_of(2, standing=[CLEARED, OPEN])
    assert settle(cleared, 0.5, findings=harm) == ([100], [0])
    assert settle(cleared, 0.5, strict, findings=harm) == ([10], [0])
    assert settle(cleared, 0.5, strict, findings=Findings(harm=[2.5])) == ([100], [0])
    assert settle(cleared, 0.5, replace(strict, screen=None), findings=harm) == ([100], [0])
    assert settle(court_of(2), 0.5, findings=harm) == ([10], [90])
    assert settle(court_of(2), 0.5, strict, findings=harm) == ([10], [0])


def test_the_figures_are_of_those_asked_in_the_order_of_the_draws() -> None:
    """Whoever is drawn twice is asked once, and has one figure."""
    strict, detector = replace(DATA, pay_left_out=False), court_of(3, standing=[CLEARED] * 3)
    accesses = Accesses([2, 0, 2, 1], [100] * 4, [100] * 4, [0.5] * 4)
    findings = Findings(harm=[9.0, 0.0, None])
    after, paid, held = now_and_held(strict, detector, accesses, findings, 0.3)
    assert (paid, held) == ([20, 100, 20, 100], [0, 0, 0, 0])
    assert after.asked.tolist() == [100, 100, 200]


@given(
    quotes=st.lists(st.integers(0, 40), min_size=1, max_size=60),
    chance=st.floats(0.001, 1.0),
    alpha=st.floats(0.001, 1.0),
    flagged=st.booleans(),
)
def test_whole_coins_add_up_to_the_floor(quotes: list[int], chance: float, alpha: float, flagged: bool) -> None:
    """What is below a coin is not lost: after any number of accesses at most one coin is owed, and none too many."""
    detector = court_of(2, standing=[LEAK if flagged else OPEN, OPEN])
    paid, held = list[int](), list[int]()
    for quote in quotes:
        detector, now, back = now_and_held(DATA, detector, Accesses([0], [quote], [quote], [chance]), NOTHING, alpha)
        paid, held = paid + now, held + back
    floor = sum(quotes) * min(1.0, alpha / 2 / chance)
    assert -1e-6 <= floor - sum(paid) <= 1 + 1e-6
    assert all(0 <= now <= quote for now, quote in zip(paid, quotes, strict=True))
    assert [a + b for a, b in zip(paid, held, strict=True)] == (paid if flagged else quotes)
    assert 0 <= detector.rest[0] <= 1 and detector.asked[0] == sum(quotes)


@settings(max_examples=25)
@given(
    clones=st.integers(1, 6),
    others=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    standing=st.sampled_from([OPEN, LEAK]),
)
def test_in_the_mean_an_arm_is_paid_what_exploration_alone_would_have_paid(
    clones: int, others: int, seed: int, standing: float
) -> None:
    """However often its providers are drawn, and however many there are of them."""
    n, alpha, quote = clones + others, 0.2, 10**6
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(n))
    detector = court_of(n, arm=[0] * clones + list(range(clones, n)), standing=[standing] * clones + [CLEARED] * others)
    mean = 0.0
    for i in range(clones):
        _, (now,), _ = now_and_held(DATA, detector, Accesses([i], [quote], [quote], [float(p[i])]), NOTHING, alpha)
        mean += float(p[i]) * now / quote
    assert mean <= alpha / (others + 1) + 1e-5
    explored = alpha / (others + 1) / clones
    assert mean == pytest.approx(sum(min(float(p[i]), explored) for i in range(clones)), abs=1e-5)
