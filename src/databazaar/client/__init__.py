"""Talking to a hub from Python: `Hub(address, token)`."""

from databazaar.client.connection import HubError
from databazaar.client.hub import Hub, Seen

__all__ = ["Hub", "HubError", "Seen"]
