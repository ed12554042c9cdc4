"""What a run is played with, as its ledger's first entry says it: another environment may give other last digits."""

from __future__ import annotations

import platform

import numpy as np
import torch

from databazaar import __version__


def environment_of(device: torch.device) -> dict[str, str]:
    """The program, what it computes with, and where."""
    where = f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)
    return {
        "databazaar": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "device": where,
        "threads": str(torch.get_num_threads()),
    }


def in_words(environment: dict[str, str]) -> str:
    """One line for people.

    >>> in_words({"databazaar": "0.5.0", "device": "cpu"})
    'databazaar 0.5.0, device cpu'
    """
    return ", ".join(f"{name} {value}" for name, value in environment.items())
