"""Who comes to the market: the consumer with its model, utility and budget, and providers with their oracles."""

from databazaar.parties.consumer import Consumer
from databazaar.parties.provider import Provider

__all__ = ["Consumer", "Provider"]
