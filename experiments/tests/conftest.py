"""These tests share two helpers with the library's own: `bazaar` called in this process, and a real browser."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

TESTS = Path(__file__).parents[2] / "tests"
sys.path += [str(TESTS), str(TESTS / "cli")]
torch.set_num_threads(1)
