"""Models that are hashed in the background: the same hashes, whoever asks and when, and failures are heard."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from databazaar import OSMD, Arbiter
from databazaar.learning.models import hash_vector
from databazaar.market import fetching, round
from databazaar.market.fetching import Fetched, goes_ahead
from small_markets import MakeMarket


def test_a_vector_on_its_way_has_the_hash_of_one_that_is_there() -> None:
    for vector in (torch.randn(1000), torch.randn(5, 7, dtype=torch.float64)[:, 3], torch.zeros(0)):
        fetched = Fetched(vector)
        assert fetched.hash == hash_vector(vector) == fetched.hash
        assert np.array_equal(fetched.array, vector.numpy())


def test_only_large_models_on_a_gpu_go_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not goes_ahead(torch.zeros(2**20))
    monkeypatch.setattr(fetching, "AHEAD", ("cpu",))
    assert goes_ahead(torch.zeros(2**20)) and not goes_ahead(torch.zeros(1000))


def test_what_fails_in_the_background_is_told_to_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(_array: object) -> str:
        raise RuntimeError("the device is lost")

    monkeypatch.setattr(fetching, "hash_array", lost)
    with pytest.raises(RuntimeError, match="the device is lost"):
        _ = Fetched(torch.zeros(3)).hash


@pytest.mark.parametrize("kind", ["torch", "vector"])
def test_a_run_whose_models_are_sent_ahead_has_the_same_ledger(
    kind: str,
    make_torch_market: MakeMarket,
    make_vector_market: MakeMarket,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make = make_torch_market if kind == "torch" else make_vector_market
    engine, sampler = "loop" if kind == "vector" else "vectorized", OSMD(eta=0.2, alpha=0.1)
    plain = Arbiter(*make(), sampler, engine=engine, device="cpu").run()
    ahead: list[torch.Tensor] = []

    def counted(vector: torch.Tensor) -> Fetched:
        ahead.append(vector)
        return Fetched(vector)

    monkeypatch.setattr(fetching, "LARGE", 1)
    monkeypatch.setattr(fetching, "AHEAD", ("cpu",))
    monkeypatch.setattr(round, "Fetched", counted)
    report = Arbiter(*make(), sampler, engine=engine, device="cpu").run()
    assert len(ahead) >= len(report.rounds) > 0
    assert (report.model_hash, report.ledger_head) == (plain.model_hash, plain.ledger_head)
