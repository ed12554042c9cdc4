"""Large models: candidates are formed and scored one after the other, to the same numbers as all at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from databazaar import OSMD, Adaptive, Arbiter, BazaarError, Provider, Report
from databazaar.aggregators import Aggregator, Median
from databazaar.engines import vectorized
from databazaar.learners import Averaging
from databazaar.samplers import Sampler
from databazaar.training import averaging
from own_samplers import Valued
from small_markets import torch_market


def bought(sampler: Sampler, aggregator: Aggregator | None, engine: str) -> Report:
    consumer, providers = torch_market(flips=(0.0, 0.2, 0.6), budget=24, per_round=3)
    providers.append(Provider("broken", oracle=lambda w: w * np.float32(np.nan)))
    own = providers[:-1] if engine == "vectorized" else providers
    rules: dict[str, Any] = {"learner": Averaging(), "aggregator": aggregator, "engine": engine}
    return Arbiter(consumer, own, sampler, **rules, device="cpu", seed=3).run()


@pytest.mark.parametrize("engine", ["vectorized", "loop"])
@pytest.mark.parametrize("aggregator", [None, Median()])
@pytest.mark.parametrize("sampler", [OSMD(0.3, 0.2), Valued(), Adaptive()], ids=lambda sampler: sampler.kind)
def test_candidates_one_by_one_are_worth_what_they_are_worth_together(
    sampler: Sampler, aggregator: Aggregator | None, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = bought(sampler, aggregator, engine)
    for module in (averaging, vectorized):
        monkeypatch.setattr(module, "LARGE", 1)
    stacks = list[int]()
    parts = averaging.Proposed.parts

    def counted(own: averaging.Proposed) -> Iterator[torch.Tensor]:
        for stack in parts(own):
            stacks.append(len(stack))
            yield stack

    monkeypatch.setattr(averaging.Proposed, "parts", counted)
    one_by_one = bought(sampler, aggregator, engine)
    assert set(stacks) == {1}
    pays = [[payout.pay for payout in report.payouts] for report in (one_by_one, together)]
    assert pays[0] == pays[1]
    gains = [[a.gain for played in report.rounds for a in played.accesses] for report in (one_by_one, together)]
    assert [gain is None for gain in gains[0]] == [gain is None for gain in gains[1]]
    one, other = (np.array([gain for gain in some if gain is not None]) for some in gains)
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_memory_that_runs_out_is_told_in_one_sentence() -> None:
    consumer, providers = torch_market()
    arbiter = Arbiter(consumer, providers, engine="loop")

    def query(ask: object) -> object:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory")

    arbiter.engine.query = query  # type: ignore[assignment, method-assign]
    with pytest.raises(BazaarError, match=r"memory ran out in the middle of a round .* lower per_round"):
        arbiter.run()
    assert torch.is_grad_enabled()
