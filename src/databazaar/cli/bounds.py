"""Numbers of the command line that no machine can use."""

from __future__ import annotations

from databazaar.errors import BazaarError

LARGEST = 1e9
LARGEST_SEED = 2**63 - 1
LARGEST_BUDGET = 10**9
"""Of the demos, whose accesses cost one each."""


def refuse_odd_privacy(cap: float | None, noise: float, clip: float, delta: float) -> None:
    """What `bazaar provider join` is told of differential privacy, each in one sentence.

    >>> refuse_odd_privacy(4.0, 1.0, float("inf"), 1e-5)
    Traceback (most recent call last):
    databazaar.errors.BazaarError: --clip inf: give a number above 0 and up to 1e+09
    """
    for option, value in (("--epsilon-cap", cap), ("--noise", noise), ("--clip", clip)):
        if value is not None and not 0 < value <= LARGEST:
            raise BazaarError(f"{option} {value:g}: give a number above 0 and up to {LARGEST:g}")
    if not 0 < delta < 1:
        raise BazaarError(f"--delta {delta:g}: give a number between 0 and 1, such as 1e-05")
