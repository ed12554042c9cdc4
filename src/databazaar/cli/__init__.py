"""The command `bazaar`."""

from databazaar.cli.app import main

__all__ = ["main"]
