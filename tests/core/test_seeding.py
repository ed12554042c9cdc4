"""Random numbers from a seed: torch's own, whether an accelerator is there or not."""

from __future__ import annotations

import pytest
import torch

from databazaar.learning.torch_state import seeded


@pytest.mark.parametrize("accelerator", [False, True])
@pytest.mark.parametrize("seed", [0, 7, -(2**63), 2**63 - 1])
def test_they_are_torchs_and_what_follows_is_as_if_nothing_had_been_drawn(
    seed: int, accelerator: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: accelerator)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        expected = torch.rand(5)
        torch.manual_seed(3)
        undisturbed = torch.rand(5)
        torch.manual_seed(3)
        with seeded(seed):
            assert torch.equal(torch.rand(5), expected)
        assert torch.equal(torch.rand(5), undisturbed)
