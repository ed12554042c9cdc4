"""Stopping rules: what each says, how they compose, and that every one ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from databazaar import BazaarError
from databazaar.valuation import (
    BackCheck,
    GhorbaniZou,
    MaxPermutations,
    MaxSeconds,
    Rule,
    StandardErrorBelow,
)
from databazaar.valuation.result import Cost
from databazaar.valuation.stopping import History, capped


def history(*estimates: list[float], errors: float = 1.0, **spent: Any) -> History:
    rows = [np.array(row) for row in estimates]
    return History(rows, np.full(len(rows[-1]), errors), Cost(**{"permutations": len(rows), **spent}))


def test_back_check_is_the_mean_relative_change_over_providers_of_some_value() -> None:
    rule = BackCheck(length=2, tolerance=0.1)
    assert rule.reason(history([1.0, 2.0, 0.0], [1.0, 2.0, 0.0])) is None  # too early
    # |1.1 − 1.0|/1.1 and |2.0 − 2.2|/2.0, the third is worth nothing: mean 0.0955
    moved = history([1.0, 2.2, 5.0], [9.0, 9.0, 9.0], [1.1, 2.0, 0.0])
    assert rule.reason(moved) is not None
    assert BackCheck(2, 0.0954).reason(moved) is None
    assert rule.reason(history([0.0], [0.0], [0.0])) == "all values are zero"
    assert rule.reason(history([1.0], [0.0], [0.0])) is None


def test_ghorbani_zou_looks_at_every_permutation_of_its_window() -> None:
    rule = GhorbaniZou(tolerance=0.1, window=3)
    calm = [[1.0, 1.0]] * 4
    assert rule.reason(history(*calm)) is not None
    assert rule.reason(history(*calm[:3])) is None
    assert rule.reason(history([1.0, 1.0], [1.0, 1.3], [1.0, 1.0], [1.0, 1.0])) is None
    assert BackCheck(3, 0.1).reason(history([1.0, 1.0], [1.0, 1.3], [1.0, 1.0], [1.0, 1.0])) is not None
    assert rule.reason(history([1.0, 1.3], *calm)) is not None  # what lies before the window does not count


def test_the_others_say_what_they_count() -> None:
    h = history([1.0], errors=0.5, permutations=7, seconds=3.0)
    assert StandardErrorBelow(0.6).reason(h) is not None and StandardErrorBelow(0.5).reason(h) is None
    for rule, more in (
        (MaxPermutations(7), MaxPermutations(8)),
        (MaxSeconds(3), MaxSeconds(3.1)),
    ):
        assert "cap of" in str(rule.reason(h)) and more.reason(h) is None
        assert rule.permutations_left(h) == 0 and 0 < more.permutations_left(h) <= 1
    assert StandardErrorBelow(10).reason(history([1.0], permutations=1)) is None


def test_rules_compose() -> None:
    h = history([1.0], permutations=5, seconds=1.0)
    yes, no = MaxPermutations(5), MaxSeconds(2)
    assert (yes | no).reason(h) == (no | yes).reason(h) == "the cap of 5 permutations"
    assert (yes & no).reason(h) is (no & yes).reason(h) is None
    assert (yes & MaxSeconds(1)).reason(h) == "the cap of 5 permutations and the cap of 1 seconds"
    assert (BackCheck(30) | GhorbaniZou(window=9)).memory == 31
    assert (yes | no).permutations_left(h) == 0 and (yes & no).permutations_left(h) == 5


@pytest.mark.parametrize("rule", [BackCheck(), GhorbaniZou(), StandardErrorBelow(1)])
def test_every_rule_ends(rule: Rule) -> None:
    restless = np.random.default_rng(0).normal(size=(120, 1)).tolist()
    late = history(*restless, errors=9.0, permutations=10_000)
    assert rule.reason(late) is None
    assert capped(rule).reason(late) == "the cap of 10,000 permutations"
    assert capped(rule & MaxPermutations(5)).reason(late) is not None
    assert capped(rule | MaxSeconds(5)).ends


def test_settings_that_make_no_sense_are_refused() -> None:
    for make in (lambda: BackCheck(0), lambda: GhorbaniZou(-1.0), lambda: MaxPermutations(0), lambda: MaxSeconds(-1)):
        with pytest.raises(BazaarError, match="must be positive"):
            make()
