"""What a run will cost, before it begins."""

from databazaar.market.quoting.quote import Quote, quote

__all__ = ["Quote", "quote"]
