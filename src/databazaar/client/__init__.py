"""Talking to a hub from Python: `Hub(address, token)`."""

from databazaar.client.hub import Hub
from databazaar.client.sending import HubError
from databazaar.client.watching import Seen

__all__ = ["Hub", "HubError", "Seen"]
