"""Replies that fail, prices that differ, and money that always adds up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from databazaar import OSMD, Arbiter, Ask, BazaarError, Consumer, FullGradient, LocalSGD, Provider, Replies, Uniform
from databazaar.ledger import Ledger, audit_entries
from databazaar.market.arbiter import drive
from databazaar.randomness import draws_stream

BAD: dict[str, tuple[Callable[[np.ndarray], Any], str]] = {
    "NaN": (lambda w: w * np.nan, "NaN"),
    "infinity": (lambda w: w + np.inf, "infinity"),
    "1e38": (lambda w: np.full_like(w, 1e38), "beyond"),
    "shape": (lambda w: np.zeros(len(w) + 1), "shape"),
    "list": (lambda w: [0.0] * len(w), "list"),
    "object": (lambda w: w.astype(object), "object"),
    "exception": (lambda w: 1 / 0, "ZeroDivisionError"),
    "utility": (lambda w: np.full_like(w, 1e14), "no finite utility"),
    "surrogate": (lambda w: (_ for _ in ()).throw(OSError("no file \udce9.csv")), "OSError"),
}


def picky(w: np.ndarray) -> float:
    """Has no value for parameters that are far away."""
    return float("nan") if np.abs(w).max() > 1e6 else float(np.exp(-0.5 * ((w - 1) ** 2).sum()))


@pytest.mark.parametrize("kind", list(BAD))
def test_an_invalid_reply_is_not_used_not_paid_and_logged(make_vector_market, kind: str) -> None:
    answer, reason = BAD[kind]
    consumer, providers = make_vector_market((0.0, 0.2, 0.4), budget=30, oracles={1: answer}, utility=picky)
    arbiter = Arbiter(consumer, providers, OSMD(0.5, 0.3), engine="loop", seed=1)
    ledger = Ledger(arbiter.terms())
    drive(arbiter.play(ledger), arbiter._engine, consumer.evaluator(torch.device("cpu")))
    entries = list(ledger.store.entries())
    assert audit_entries(entries).ok
    voids = [e for e in entries if e.kind == "void"]
    assert voids
    assert {e.provider for e in voids} == {"p1"}
    assert all(reason in e.body["reason"] for e in voids)
    assert "p1" not in {e.provider for e in entries if e.kind == "post"}
    report = arbiter.run()
    bad = report.payouts[1]
    assert (bad.accesses, bad.pay, bad.failures) == (0, 0, len(voids))
    assert report.status == "settled"
    assert report.spent == 30 - len(voids)
    assert report.refunded == len(voids)
    assert np.isfinite(arbiter.model).all()
    for played in report.rounds:
        for access in played.accesses:
            assert (access.gain is None) == (access.provider == 1) == (access.paid == 0)
            assert (access.failure is not None) == (access.provider == 1)


def test_a_void_reply_counts_as_a_gain_of_zero_and_is_left_out_of_the_average(make_vector_market) -> None:
    consumer, providers = make_vector_market(
        (0.0, 0.0), budget=6, per_round=6, step=1.0, oracles={0: lambda w: np.ones(3), 1: lambda w: 1 / 0}
    )
    arbiter = Arbiter(consumer, providers, OSMD(0.5, 0.1), engine="loop", seed=1)
    report = arbiter.run()
    (played,) = report.rounds
    assert {access.provider for access in played.accesses} == {0, 1}
    np.testing.assert_allclose(arbiter.model, np.ones(3))
    sampler, draws = OSMD(0.5, 0.1), np.array([a.provider for a in played.accesses])
    gains = np.array([a.gain or 0.0 for a in played.accesses])
    expected = sampler.probabilities(sampler.update(sampler.init(2), draws, gains))
    np.testing.assert_allclose(report.distributions[-1], expected)


@pytest.mark.parametrize("budget", [6, 300])
def test_where_nobody_answers_the_run_ends_and_refunds_all(make_vector_market, budget: int) -> None:
    consumer, providers = make_vector_market(
        (0.0, 0.0), budget=budget, oracles={0: lambda w: 1 / 0, 1: lambda w: w * np.nan}
    )
    report = Arbiter(consumer, providers, engine="loop", patience=4).run()
    assert report.status == "nobody answered"
    assert len(report.rounds) == min(4, budget // 3)
    assert "nobody gave a valid reply" in report.message
    assert f"{budget} credits go back to the consumer" in report.message
    assert (report.spent, report.refunded) == (0, budget)


def test_patience_counts_silent_rounds_on_end(make_vector_market) -> None:
    calls: list[int] = []

    def moody(w: np.ndarray) -> np.ndarray:
        calls.append(1)
        if len(calls) % 3:
            raise OSError("asleep")
        return np.ones(3)

    consumer, providers = make_vector_market((0.0,), budget=12, per_round=1, oracles={0: moody})
    report = Arbiter(consumer, providers, engine="loop", patience=3).run()
    assert report.status == "settled"
    assert len(report.rounds) == 12
    assert report.spent == 4


def test_a_gain_that_overflows_is_voided(make_vector_market) -> None:
    """Two finite utilities may lie further apart than a float can say."""

    def wide(w: np.ndarray) -> float:
        return 1.7e308 if w.max() > 0 else -1.7e308

    consumer, providers = make_vector_market((0.0, 0.5), budget=6, per_round=2, utility=wide)
    report = Arbiter(consumer, providers, OSMD(0.1, 0.1), engine="loop").run()
    assert report.status == "nobody answered"
    assert all(a.failure is not None for r in report.rounds for a in r.accesses)


@pytest.mark.parametrize("utility", ["exp-loss", "accuracy", "negative-loss"])
def test_a_model_that_diverges_ends_in_a_sentence_and_not_in_a_traceback(utility: str) -> None:
    """Updates just under the limit are valid one by one, and throw the model where its loss is infinite."""
    x = np.array([[1e9, 0.0], [0.0, 1e9], [1e9, 1e9]])
    y = np.array([0.0, 1.0, 1.0]) if utility != "accuracy" else np.array([0, 1, 1])

    def huge(w: np.ndarray) -> np.ndarray:
        return np.full_like(w, 9e14)

    model = "linear" if utility != "accuracy" else "logistic"
    consumer = Consumer(model, holdout=(x, y), utility=utility, budget=6, per_round=2)
    arbiter = Arbiter(consumer, [Provider("p0", oracle=huge), Provider("p1", oracle=huge)], engine="loop")
    try:
        report = arbiter.run()
    except BazaarError as sentence:
        assert "utility" in str(sentence)
    else:
        assert report.spent + report.refunded == 6


@pytest.mark.parametrize("when", [2, 3])
def test_a_final_model_without_a_utility_ends_in_a_sentence(make_vector_market, when: int) -> None:
    """The last average may have no utility although each of its updates had one."""
    calls: list[int] = []

    def utility(w: np.ndarray) -> float:
        calls.append(1)
        return float("nan") if len(calls) == when else 0.5

    consumer, providers = make_vector_market((0.0,), budget=1, per_round=1, utility=utility)
    arbiter = Arbiter(consumer, providers, engine="loop")
    try:
        report = arbiter.run()
    except BazaarError as sentence:
        assert "utility" in str(sentence)
    else:
        assert report.spent + report.refunded == 1


@given(
    st.lists(st.integers(1, 12), min_size=3, max_size=3),
    st.integers(1, 80),
    st.integers(1, 4),
    st.integers(0, 20),
    st.sampled_from([OSMD(0.5, 0.1), Uniform()]),
)
def test_unequal_prices(make_vector_market, prices, budget, per_round, seed, sampler) -> None:
    budget = max(budget, per_round * min(prices))
    consumer, providers = make_vector_market((0.0, 0.3, 1.0), budget=budget, per_round=per_round, prices=prices)
    arbiter = Arbiter(consumer, providers, sampler, engine="loop", seed=seed)
    ledger = Ledger(arbiter.terms())
    drive(arbiter.play(ledger), arbiter._engine, consumer.evaluator(torch.device("cpu")))
    entries = list(ledger.store.entries())
    audit = audit_entries(entries)
    assert audit.ok, audit.first_broken
    spent, cost = 0, dict(zip(["p0", "p1", "p2"], prices, strict=True))
    for entry in entries:
        if entry.kind == "reserve":
            assert entry.amount == cost[entry.provider]
            spent += entry.amount
            assert spent <= budget
    closing = entries[-1].body
    assert closing["spent"] == spent
    assert closing["refunded"] == budget - spent
    if len(set(prices)) == 1:
        assert audit.rounds == budget // (per_round * prices[0])
    # and the run did not stop early: the draws of the next round cost more than is left
    p = audit.distributions[-1]
    next_draws = sampler.draw(
        np.log(p) if isinstance(sampler, OSMD) else p, draws_stream(seed, audit.rounds), per_round
    )
    assert sum(prices[i] for i in next_draws) > budget - spent


def test_one_owner_may_run_several_providers(make_vector_market) -> None:
    consumer, providers = make_vector_market((0.0, 0.1, 0.2), budget=60, owners=["ann", "ann", "bob"])
    report = Arbiter(consumer, providers, engine="loop").run()
    assert [payout.owner for payout in report.payouts] == ["ann", "ann", "bob"]
    assert sum(payout.pay for payout in report.payouts) == 60
    assert len({payout.provider for payout in report.payouts}) == 3


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"budget": 2, "per_round": 3}, "budget = 2 cannot pay"),
        ({"budget": 0}, "budget = 0"),
        ({"budget": 2.5}, "budget = 2.5"),
        ({"budget": True}, "budget = True"),
        ({"per_round": 0}, "per_round = 0"),
        ({"step": 0}, "step = 0"),
        ({"prices": [1, 1, 1, 0]}, "price = 0"),
        ({"prices": [1, 1, 1, -3]}, "price = -3"),
        ({"prices": [1, 1, 1, 1.5]}, "price = 1.5"),
    ],
)
def test_bad_settings_are_refused_by_name(make_vector_market, change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BazaarError, match=sentence):
        Arbiter(*make_vector_market(**change), engine="loop")


def test_providers_must_be_there_and_have_ids_of_their_own(make_vector_market) -> None:
    consumer, providers = make_vector_market()
    with pytest.raises(BazaarError, match="at least one provider"):
        Arbiter(consumer, [], engine="loop")
    with pytest.raises(BazaarError, match="two providers are called p0"):
        Arbiter(consumer, [*providers, providers[0]], engine="loop")


class Recorder:
    """An engine of the user's own, which notes what it was asked."""

    name, device = "recorder", torch.device("cpu")

    def __init__(self) -> None:
        self.asks: list[Ask] = []

    def query(self, ask: Ask) -> Replies:
        self.asks.append(ask)
        return Replies(torch.ones(len(ask.providers), len(ask.params), dtype=ask.params.dtype), {})

    def close(self) -> None: ...


def test_an_engine_of_ones_own_is_asked_each_provider_once(make_vector_market) -> None:
    engine = Recorder()
    consumer, providers = make_vector_market((0.0, 0.0), budget=40, per_round=4)
    report = Arbiter(consumer, providers, engine=engine, seed=3).run()
    for ask, played in zip(engine.asks, report.rounds, strict=True):
        assert len(set(ask.providers)) == len(ask.providers)
        assert set(ask.providers) == {a.provider for a in played.accesses}
        assert (ask.round, ask.seed) == (played.number, 3)


def test_every_built_in_oracle_trains(make_torch_market) -> None:
    for oracle in (FullGradient(), LocalSGD(0.1, 4, epochs=2, momentum=0.5)):
        consumer, providers = make_torch_market(budget=80)
        mine = [Provider(p.id, data=p.data, oracle=oracle) for p in providers[:2]]
        report = Arbiter(consumer, mine, device="cpu").run()
        assert report.final_utility > report.rounds[0].utility + 0.1
