"""Whether a payment rule keeps its promises: one call, clear complaints."""

from __future__ import annotations

import numpy as np

from databazaar.conformance import require, require_rebuilt
from databazaar.payments.protocol import PAYMENTS, Payment
from databazaar.roster import Roster


def check_payment(payment: Payment, *, providers: int = 6, rounds: int = 50) -> None:
    """Settles random rounds and raises AssertionError at the first broken promise.

    >>> from databazaar import PricePerAccess
    >>> check_payment(PricePerAccess())
    """
    require_rebuilt(PAYMENTS, payment)
    rng = np.random.default_rng(0)
    for roster in (Roster.equal(providers), Roster.of((f"p{i}", f"p{i}", 10**i) for i in range(providers))):
        quotes = payment.quote(roster)
        require(
            quotes.shape == (providers,) and quotes.dtype == np.int64 and bool((quotes >= 1).all()),
            f"quote must give one whole amount of 1 or more per provider, as int64, got {quotes!r}",
        )
        require(np.array_equal(quotes, payment.quote(roster)), "quote must be a pure function")
        for _ in range(rounds):
            draws = rng.integers(0, providers, 4)
            numbers = rng.normal(scale=10.0 ** rng.integers(-6, 3), size=4).tolist()
            gains = [None if rng.random() < 0.3 else gain for gain in numbers]
            quoted = quotes[draws].tolist()
            paid = payment.settle(quoted, gains)
            require(list(paid) == list(payment.settle(quoted, gains)), "settle must be a pure function")
            require(len(paid) == 4, f"settle must give one amount per draw, got {paid}")
            for amount, quote, gain in zip(paid, quoted, gains, strict=True):
                whole = isinstance(amount, int | np.integer) and not isinstance(amount, bool)
                require(whole, f"a payment must be a whole number, got {amount!r}")
                require(0 <= amount <= quote, f"paid {amount} for a quote of {quote}: it must be 0 ≤ paid ≤ quoted")
                require(gain is not None or amount == 0, f"paid {amount} where there was no valid reply")
