"""The arbiter is Algorithm 1: compared draw by draw with a transcription of the paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from databazaar import OSMD, Arbiter, Consumer, Provider, Uniform
from databazaar.learning.oracles import FullGradient
from databazaar.learning.task import Halving
from databazaar.market.arbiter import theory_sampler
from databazaar.randomness import draws_stream
from own_samplers import Valued
from small_markets import MakeMarket


def algorithm_1(
    n: int,
    B: int,
    K: int,
    eta: float,
    alpha: float,
    gamma: Callable[[int], float],
    w: np.ndarray,
    oracle: Callable[[int, np.ndarray], np.ndarray],
    utility: Callable[[np.ndarray], float],
    seed: int,
) -> dict[str, Any]:
    """Algorithm 1 of the paper in its own symbols; line 9 by bisection on the dual multiplier."""
    p, N = np.full(n, 1 / n), np.zeros(n, int)
    history: dict[str, list[Any]] = {"p": [p], "S": [], "gains": [], "U": [], "estimates": []}
    for t in range(B // K):
        S = np.searchsorted(np.cumsum(p), draws_stream(seed, t).random(K) * p.sum(), side="right")  # line 5
        g = {i: oracle(i, w) for i in set(S.tolist())}  # line 6
        for i in S:  # line 7
            N[i] += 1
        gain = {i: utility(w + gamma(t) * g[i]) - utility(w) for i in g}
        u = np.zeros(n)
        for i in g:  # line 8
            u[i] = np.sum(i == S) / (K * p[i]) * gain[i]
        a = np.log(p) + eta * u
        a -= a.max()

        def excess(x: float, a: np.ndarray = a) -> float:
            return float(np.maximum(alpha / n, np.exp(a - x)).sum() - 1)

        p = np.maximum(alpha / n, np.exp(a - brentq(excess, -1e-9, np.log(n) + 1e-9, xtol=1e-15)))  # line 9
        history["U"].append(utility(w))
        w = w + gamma(t) / K * sum(g[i] for i in S)  # line 10
        for key, value in (("p", p), ("S", S), ("gains", [gain[i] for i in S]), ("estimates", u)):
            history[key].append(value)
    return {**history, "w": w, "N": N}


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("B", "K"), [(60, 3), (31, 4), (9, 1), (10, 10)])
def test_equals_algorithm_1_on_a_numpy_vector(make_vector_market: MakeMarket, B: int, K: int, seed: int) -> None:
    consumer, providers = make_vector_market(budget=B, per_round=K, step=0.25)
    arbiter = Arbiter(consumer, providers, OSMD(0.7, 0.15), engine="loop", seed=seed)
    report = arbiter.run()

    def oracle(i: int, w: np.ndarray) -> np.ndarray:
        answer = providers[i].oracle
        assert callable(answer)
        return np.asarray(answer(w))

    utility = consumer.utility
    assert callable(utility)
    paper = algorithm_1(4, B, K, 0.7, 0.15, lambda t: 0.25, np.zeros(3), oracle, utility, seed)
    assert len(report.rounds) == B // K
    assert report.spent == B // K * K
    assert report.refunded == B % K
    np.testing.assert_allclose(report.distributions, paper["p"], atol=1e-9)
    for played, S, gains, U, p in zip(
        report.rounds, paper["S"], paper["gains"], paper["U"], paper["p"][:-1], strict=True
    ):
        assert [access.provider for access in played.accesses] == S.tolist()
        np.testing.assert_allclose(np.array([a.gain for a in played.accesses], float), gains, atol=1e-10)
        np.testing.assert_allclose([access.probability for access in played.accesses], p[S], atol=1e-10)
        assert played.utility == pytest.approx(U)
    assert [payout.accesses for payout in report.payouts] == paper["N"].tolist()
    np.testing.assert_allclose(arbiter.last_parameters, paper["w"], atol=1e-10)
    utilities = [*paper["U"], utility(paper["w"])]
    assert isinstance(arbiter.model, np.ndarray)
    assert utility(arbiter.model) == pytest.approx(max(utilities))  # what the paper's loop passes on the way
    assert report.final_utility == pytest.approx(utility(paper["w"]))


@pytest.mark.parametrize("engine", ["loop", "vectorized"])
def test_equals_algorithm_1_on_a_torch_model_with_a_schedule(engine: str) -> None:
    rng = np.random.default_rng(5)
    slopes = [np.array([1.0, -1.0]), np.array([1.0, -0.5]), np.array([-2.0, 2.0])]
    data = []
    for slope in slopes:
        x = rng.normal(size=(12, 2)).astype(np.float32)
        data.append((x, (x @ slope).astype(np.float32)))
    x_own = rng.normal(size=(30, 2)).astype(np.float32)
    y_own = (x_own @ slopes[0]).astype(np.float32)
    model = torch.nn.Linear(2, 1)
    start = torch.cat([model.weight.detach().ravel(), model.bias.detach()]).double().numpy()

    def split(w: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.asarray(x @ w[:2] + w[2])

    def oracle(i: int, w: np.ndarray) -> np.ndarray:
        x, y = data[i]
        error = split(w, x) - y
        return -np.append(x.T @ error, error.sum()) / len(x)

    def utility(w: np.ndarray) -> float:
        return float(np.exp(-0.5 * np.mean((split(w, x_own) - y_own) ** 2)))

    gamma = Halving(0.4, every=5)
    consumer = Consumer(model, holdout=(x_own, y_own), budget=45, per_round=3, step=gamma)
    providers = [Provider(f"p{i}", data=d, oracle=FullGradient()) for i, d in enumerate(data)]
    arbiter = Arbiter(consumer, providers, OSMD(0.5, 0.1), engine=engine, device="cpu", seed=4)
    report = arbiter.run()
    paper = algorithm_1(3, 45, 3, 0.5, 0.1, gamma, start, oracle, utility, 4)
    assert [[a.provider for a in r.accesses] for r in report.rounds] == [S.tolist() for S in paper["S"]]
    np.testing.assert_allclose(report.distributions, paper["p"], atol=1e-4)
    np.testing.assert_allclose(arbiter.last_parameters, paper["w"], atol=1e-4)
    assert [payout.accesses for payout in report.payouts] == paper["N"].tolist()


def test_same_seed_same_head_and_model_and_another_seed_another(make_torch_market: MakeMarket) -> None:
    def play(seed: int) -> tuple[str, str]:
        consumer, providers = make_torch_market(per_round=3)
        report = Arbiter(consumer, providers, seed=seed, device="cpu").run()
        return report.ledger_head, report.last_model_hash

    assert play(1) == play(1)
    assert play(1)[0] != play(2)[0]
    assert play(1)[1] != play(2)[1]


def test_a_second_run_of_the_same_arbiter_is_the_same_run(make_vector_market: MakeMarket) -> None:
    consumer, providers = make_vector_market()
    arbiter = Arbiter(consumer, providers, engine="loop")
    first, second = arbiter.run(), arbiter.run()
    assert (second.ledger_head, second.model_hash) == (first.ledger_head, first.model_hash)


def test_loop_and_vectorized_make_the_same_draws(make_torch_market: MakeMarket) -> None:
    reports = []
    for engine in ("loop", "vectorized"):
        consumer, providers = make_torch_market(budget=80)
        reports.append(Arbiter(consumer, providers, OSMD(0.5, 0.1), engine=engine, device="cpu").run())
    loop, fast = reports
    assert [[a.provider for a in r.accesses] for r in loop.rounds] == [
        [a.provider for a in r.accesses] for r in fast.rounds
    ]
    np.testing.assert_allclose(loop.distributions, fast.distributions, atol=1e-4)
    assert loop.final_utility == pytest.approx(fast.final_utility, rel=1e-4)
    assert [p.pay for p in loop.payouts] == [p.pay for p in fast.payouts]


def test_osmd_pays_the_better_providers_more(make_torch_market: MakeMarket) -> None:
    consumer, providers = make_torch_market(budget=400, flips=(0.0, 0.0, 1.0, 1.0))
    pay = [payout.pay for payout in Arbiter(consumer, providers, OSMD(1.0, 0.05), device="cpu").run().payouts]
    assert min(pay[:2]) > 2 * max(pay[2:])


def test_the_default_sampler_needs_no_rate(make_torch_market: MakeMarket) -> None:
    consumer, providers = make_torch_market(budget=60, per_round=3)
    report = Arbiter(consumer, providers, device="cpu").run()
    assert report.sampler == {"kind": "adaptive", "alpha": 0.01}
    assert report.regret_bound is None  # the theory has none for it


def test_the_sampler_of_the_theory_counts_accesses_at_the_mean_price(make_vector_market: MakeMarket) -> None:
    consumer, providers = make_vector_market(budget=60, per_round=3)
    assert theory_sampler(consumer, providers) == OSMD.from_theory(4, 60, 3)
    report = Arbiter(consumer, providers, theory_sampler(consumer, providers, switches=2), engine="loop").run()
    assert report.sampler["switches"] == 2
    assert report.regret_bound is None  # a callable: nobody knows whether it lies in [0, 1]
    consumer, providers = make_vector_market(budget=60, per_round=3, prices=[1, 2, 3, 4])
    assert theory_sampler(consumer, providers) == OSMD.from_theory(4, 24, 3)


def test_the_report_shows_the_bound_for_a_bounded_utility(make_torch_market: MakeMarket) -> None:
    consumer, providers = make_torch_market(budget=22, per_round=4)
    report = Arbiter(consumer, providers, OSMD(0.1, 0.2, switches=2), device="cpu").run()
    assert report.regret_bound == pytest.approx(OSMD(0.1, 0.2, switches=2).regret_bound(4, 20, 4))
    assert Arbiter(consumer, providers, Uniform(), device="cpu").run().regret_bound is None
    consumer, providers = make_torch_market(budget=22, per_round=4, utility="negative-loss")
    assert Arbiter(consumer, providers, OSMD(0.1, 0.2), device="cpu").run().regret_bound is None


def test_progress_is_told_after_every_round(make_vector_market: MakeMarket) -> None:
    consumer, providers = make_vector_market(budget=11, per_round=3)
    told: list[Any] = []
    report = Arbiter(consumer, providers, Valued(), engine="loop").run(tell=told.append)
    assert [p.round for p in told] == [1, 2, 3]
    assert [p.spent for p in told] == [3, 6, 9]
    assert told[-1].budget == report.budget == 11
