"""Whether a run still gets better: the test's own errors are as large as it says, and it stops the right runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from databazaar import BazaarError, NoProgress
from databazaar.roster import Roster, RoundBudget
from databazaar.stops import History
from databazaar.stops.no_progress import rise
from databazaar.testing import check_stop


def history(utilities: list[float]) -> History:
    return History(len(utilities) - 1, utilities, 0, RoundBudget(100, Roster.equal(3).prices), 2)


def noise(rho: float, rounds: int, rng: np.random.Generator) -> np.ndarray:
    """White noise for ρ = 0, and else noise whose neighbours correlate by ρ, of variance 1."""
    found = rng.normal(size=rounds)
    for t in range(1, rounds):
        found[t] = rho * found[t - 1] + np.sqrt(1 - rho**2) * found[t]
    return found


def surer_than_its_error(rho: float, times: int = 1500, rounds: int = 31) -> tuple[float, float]:
    """How often a rise of pure noise exceeds its own standard error, and the spread of rises in such errors."""
    rng = np.random.default_rng(17)
    found = np.array([rise(noise(rho, rounds, rng).tolist()) for _ in range(times)])
    ratio = found[:, 0] / found[:, 1]
    return float((ratio > 1).mean()), float(ratio.std())


def test_white_noise_rises_beyond_its_error_as_often_as_students_t_says() -> None:
    often, spread = surer_than_its_error(0.0)  # 16.3 % with 29 degrees of freedom; a standard error here is 1 %
    assert 0.12 < often < 0.20
    assert 0.92 < spread < 1.15


@pytest.mark.parametrize("rho", [0.3, 0.6])
def test_noise_whose_neighbours_are_alike_is_not_taken_for_a_rise(rho: float) -> None:
    often, spread = surer_than_its_error(rho)
    assert often < 0.24
    naive = np.sqrt((1 + rho) / (1 - rho))  # the spread if residuals were taken to be independent
    assert spread < 0.5 * (1 + naive)


def test_the_line_is_that_of_least_squares() -> None:
    utilities = np.random.default_rng(4).normal(size=12) + 0.1 * np.arange(12)
    (slope, _), covariance = np.polyfit(np.arange(12), utilities, 1, cov=True)
    risen, error = rise(utilities.tolist())
    assert risen == pytest.approx(11 * slope)
    residuals = utilities - np.polyval(np.polyfit(np.arange(12), utilities, 1), np.arange(12))
    assert residuals[1:] @ residuals[:-1] <= 0, "neighbours are not alike here, so all residuals count"
    assert error == pytest.approx(11 * np.sqrt(covariance[0, 0]))


@given(slope=st.floats(1e-6, 1e3), start=st.floats(-10, 10), rounds=st.integers(4, 40))
def test_a_line_without_noise_that_rises_is_never_stopped_and_one_that_does_not_always(
    slope: float, start: float, rounds: int
) -> None:
    stop = NoProgress(rounds)
    assert stop.reason(history([start + slope * t for t in range(rounds + 1)])) is None
    assert stop.reason(history([start] * (rounds + 1))) is not None
    assert stop.reason(history([start - slope * t for t in range(rounds + 1)])) is not None


def test_noisy_runs_that_rise_go_on_and_flat_ones_end() -> None:
    rng, stop = np.random.default_rng(8), NoProgress()
    rising = [history((0.1 * np.arange(31) + noise(0.0, 31, rng)).tolist()) for _ in range(200)]
    flat = [history(noise(0.0, 31, rng).tolist()) for _ in range(200)]
    assert sum(stop.reason(run) is not None for run in rising) <= 10
    assert sum(stop.reason(run) is not None for run in flat) >= 150


def test_only_the_window_counts_and_nothing_is_said_before_it_is_full() -> None:
    stop = NoProgress(rounds=6)
    flat, climb = [0.5, 0.51] * 10, [0.01 * t for t in range(20)]
    assert stop.reason(history([*climb, *flat])) is not None
    assert stop.reason(history([*flat, *(0.5 + u for u in climb)])) is None
    for rounds in range(6):
        assert stop.reason(history(flat[: rounds + 1])) is None
    assert stop.reason(history(flat[:7])) is not None


def test_a_rise_must_be_as_large_as_is_asked_for() -> None:
    climb = [0.01 * t for t in range(11)]
    assert NoProgress(10, least=0.09).reason(history(climb)) is None
    said = NoProgress(10, least=0.11).reason(history(climb))
    assert said is not None and str(said).endswith("which is not 0.11 and more beyond chance")
    noisy = [u + 0.01 * (-1) ** t for t, u in enumerate(climb)]
    assert NoProgress(10, errors=1).reason(history(noisy)) is None
    assert NoProgress(10, errors=50).reason(history(noisy)) is not None


@pytest.mark.parametrize("stop", [NoProgress(), NoProgress(4), NoProgress(10, 0.01, 2.5)], ids=repr)
def test_check_stop_passes(stop: NoProgress) -> None:
    check_stop(stop)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"rounds": 3}, "rounds = 3 must be between 4 and"),
        ({"rounds": True}, "whole number"),
        ({"rounds": 10.0}, "whole number"),
        ({"least": float("nan")}, "least = nan must be a finite number"),
        ({"errors": "1"}, "errors = '1' must be a number"),
        ({"errors": -0.5}, "errors = -0.5 must be at least 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BazaarError, match=sentence):
        NoProgress(**settings)
