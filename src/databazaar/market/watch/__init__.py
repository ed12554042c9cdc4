"""What the arbiter measures of updates: the figures that verdicts are made of (databazaar/defence)."""

from databazaar.market.watch.watch import Watch, Watched

__all__ = ["Watch", "Watched"]
