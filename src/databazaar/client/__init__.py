"""Talking to a hub from Python: `Hub(address, token)`."""
