"""Replies that fail, prices that differ, and money that always adds up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from databazaar import OSMD, Arbiter, BazaarError, Consumer, LocalSGD, Provider, Uniform, build_model
from databazaar.engines import Ask, Engine, Replies
from databazaar.engines.protocol import DIVERGES
from databazaar.learning.oracles import FullGradient
from databazaar.ledger import Ledger, Terms, audit_entries
from databazaar.market.loop import play
from databazaar.roster import Roster, RoundBudget
from databazaar.runs.folder import RunFolder
from databazaar.samplers import Sampler
from records import record_of
from small_markets import MakeMarket

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
def test_an_invalid_reply_is_not_used_not_paid_and_logged(make_vector_market: MakeMarket, kind: str) -> None:
    answer, reason = BAD[kind]
    consumer, providers = make_vector_market((0.0, 0.2, 0.4), budget=30, oracles={1: answer}, utility=picky)
    arbiter = Arbiter(consumer, providers, OSMD(0.5, 0.3), engine="loop", seed=1)
    ledger = Ledger(arbiter.rules)
    play(arbiter.begin(ledger), arbiter.engine)
    entries = list(ledger.store.entries())
    assert audit_entries(entries).ok
    voids = [e for e in entries if e.kind == "void"]
    assert voids
    assert {e.provider for e in voids} == {"p1"}
    assert all(reason in str(e.reason) for e in voids)
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


def test_a_void_reply_counts_as_a_gain_of_zero_and_is_left_out_of_the_average(make_vector_market: MakeMarket) -> None:
    consumer, providers = make_vector_market(
        (0.0, 0.0), budget=6, per_round=6, step=1.0, oracles={0: lambda w: np.ones(3), 1: lambda w: 1 / 0}
    )
    arbiter = Arbiter(consumer, providers, OSMD(0.5, 0.1), engine="loop", seed=1)
    report = arbiter.run()
    (played,) = report.rounds
    assert {access.provider for access in played.accesses} == {0, 1}
    np.testing.assert_allclose(arbiter.last_parameters, np.ones(3))
    sampler, draws = OSMD(0.5, 0.1), np.array([a.provider for a in played.accesses])
    gains = np.array([a.gain or 0.0 for a in played.accesses])
    roster = Roster.equal(2)
    round_budget = RoundBudget(6, roster.prices)
    expected = sampler.probabilities(
        sampler.update(sampler.init(roster, 6, 6), draws, gains, round_budget), round_budget
    )
    np.testing.assert_allclose(report.distributions[-1], expected)


@pytest.mark.parametrize("budget", [6, 300])
def test_where_nobody_answers_the_run_ends_and_refunds_all(make_vector_market: MakeMarket, budget: int) -> None:
    consumer, providers = make_vector_market(
        (0.0, 0.0), budget=budget, oracles={0: lambda w: 1 / 0, 1: lambda w: w * np.nan}
    )
    report = Arbiter(consumer, providers, engine="loop", patience=4).run()
    assert report.status == "nobody-answered"
    assert len(report.rounds) == min(4, budget // 2)  # of both, though three may be drawn
    assert "nobody gave a valid reply" in report.message
    assert f"{budget} credits go back to the consumer" in report.message
    assert (report.spent, report.refunded) == (0, budget)


def test_patience_counts_silent_rounds_on_end(make_vector_market: MakeMarket) -> None:
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


def test_a_gain_that_overflows_is_voided(make_vector_market: MakeMarket) -> None:
    """Two finite utilities may lie further apart than a float can say."""

    def wide(w: np.ndarray) -> float:
        return 1.7e308 if w.max() > 0 else -1.7e308

    consumer, providers = make_vector_market((0.0, 0.5), budget=6, per_round=2, utility=wide)
    report = Arbiter(consumer, providers, OSMD(0.1, 0.1), engine="loop").run()
    assert report.status == "nobody-answered"
    assert all(a.failure is not None for r in report.rounds for a in r.accesses)


@pytest.mark.parametrize(("utility", "status"), [("exp-loss", "settled"), ("accuracy", "settled")])
def test_a_model_that_is_thrown_far_away_keeps_a_utility_and_is_settled(utility: str, status: str) -> None:
    """Updates just under the limit are valid one by one; exp(−∞) = 0 and an accuracy are utilities still."""
    x = np.array([[1e9, 0.0], [0.0, 1e9], [1e9, 1e9]])
    y = np.array([0.0, 1.0, 1.0]) if utility != "accuracy" else np.array([0, 1, 1])

    def huge(w: np.ndarray) -> np.ndarray:
        return np.full_like(w, 9e14)

    model = "linear" if utility != "accuracy" else "logistic"
    consumer = Consumer(model, holdout=(x, y), utility=utility, budget=6, per_round=2)
    report = Arbiter(consumer, [Provider("p0", oracle=huge), Provider("p1", oracle=huge)], engine="loop").run()
    assert (report.status, report.spent, report.refunded) == (status, 6, 0)


def jumpy(w: np.ndarray) -> float:
    """Has a value for w and for every single update, but none between them."""
    return float("nan") if 0.4 < np.abs(w).max() < 0.9 else float(-np.abs(w - 1).sum())


def test_an_average_without_a_utility_costs_the_longest_update_its_pay_and_the_run_goes_on(
    make_vector_market: MakeMarket, tmp_path: Path
) -> None:
    """Each of the two updates has a utility by itself and their average has none: the longer one is void."""
    oracles = {0: lambda w: np.ones(3), 1: lambda w: -1.01 * np.ones(3)}
    consumer, providers = make_vector_market(
        (0.0, 0.0), budget=60, per_round=4, step=1.0, oracles=oracles, utility=jumpy
    )
    arbiter = Arbiter(consumer, providers, OSMD(0.1, 0.5), engine="loop", seed=3)
    report = arbiter.run(tmp_path / "run")
    assert report.status == "settled" and len(report.rounds) == 15
    assert report.refunded == 60 - report.spent and report.held == 0
    dropped = [access for played in report.rounds for access in played.accesses if access.failure == DIVERGES]
    assert dropped and {access.provider for access in dropped} == {1} and not any(access.paid for access in dropped)
    assert all(played.reached is not None for played in report.rounds)
    assert np.isfinite(jumpy(arbiter.model)) and np.isfinite(report.final_utility)
    audit = RunFolder(tmp_path / "run").audit()
    assert audit.ok and audit.closed, audit.message


def test_two_colluders_neither_end_a_run_nor_keep_honest_providers_from_their_pay() -> None:
    """One throws the first layer far away and the other the last two. Each by itself has a loss; together their
    product is beyond a float32, and infinity minus infinity is no number."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3)).astype(np.float32)
    y = (x @ np.array([1.0, -2.0, 0.5]) > 0).astype(np.int64)
    model = build_model("mlp", [3], 2, hidden=[4, 4], seed=0)
    first = (3 + 1) * 4  # the numbers of the first layer
    consumer = Consumer(model, holdout=(x, y), budget=120, per_round=6)

    def colluder(begin: int, end: int | None) -> Callable[[np.ndarray], np.ndarray]:
        def throw(w: np.ndarray) -> np.ndarray:
            update = np.zeros_like(w)
            update[begin:end] = 9e14
            return update

        return throw

    honest = [Provider(f"honest{i}", (x, y), LocalSGD(0.1, 10)) for i in range(4)]
    evil = [Provider("evil0", oracle=colluder(0, first)), Provider("evil1", oracle=colluder(first, None))]
    report = Arbiter(consumer, [*honest, *evil], Uniform(), engine="loop").run()
    reasons = {access.failure for played in report.rounds for access in played.accesses if access.provider > 3}
    assert DIVERGES in reasons, "the attack is one"
    assert report.status == "settled" and len(report.rounds) == 20
    honestly = [access for played in report.rounds for access in played.accesses if access.provider < 4]
    assert all(access.paid for access in honestly)


def test_a_utility_that_is_lost_ends_a_run_in_good_order(make_vector_market: MakeMarket, tmp_path: Path) -> None:
    """A utility of the consumer's own that has a value before the first round, and none ever after."""
    values = iter([0.0])
    consumer, providers = make_vector_market((0.0, 0.5), budget=60, per_round=2, utility=lambda w: next(values, np.nan))
    report = Arbiter(consumer, providers, engine="loop", patience=3).run(tmp_path / "run")
    assert (report.status, report.spent, report.refunded) == ("nobody-answered", 0, 60)
    assert report.final_utility == 0.0 and RunFolder(tmp_path / "run").audit().ok


def test_a_first_model_without_a_utility_is_refused_before_anybody_is_asked(make_vector_market: MakeMarket) -> None:
    consumer, providers = make_vector_market(utility=lambda w: float("nan"), oracles={0: lambda w: 1 / 0})
    with pytest.raises(BazaarError, match="own utility is nan before the first round"):
        Arbiter(consumer, providers, engine="loop").run()


@given(
    st.lists(st.integers(1, 12), min_size=3, max_size=3),
    st.integers(1, 80),
    st.integers(1, 4),
    st.integers(0, 20),
    st.sampled_from([OSMD(0.5, 0.1), Uniform()]),
)
def test_unequal_prices(
    make_vector_market: MakeMarket, prices: list[int], budget: int, per_round: int, seed: int, sampler: Sampler
) -> None:
    budget = max(budget, per_round * min(prices))
    consumer, providers = make_vector_market((0.0, 0.3, 1.0), budget=budget, per_round=per_round, prices=prices)
    arbiter = Arbiter(consumer, providers, sampler, engine="loop", seed=seed)
    ledger = Ledger(arbiter.rules)
    play(arbiter.begin(ledger), arbiter.engine)
    entries = list(ledger.store.entries())
    audit = audit_entries(entries)
    assert audit.ok, audit.first_broken
    spent, cost = 0, dict(zip(["p0", "p1", "p2"], prices, strict=True))
    for entry in entries:
        if entry.kind == "reserve":
            assert entry.provider is not None and entry.amount == cost[entry.provider]
            spent += entry.amount
            assert spent <= budget
    closing = entries[-1].body
    assert closing["spent"] == spent
    assert closing["refunded"] == budget - spent
    assert closing["stop"]["kind"] == "budget"
    if len(set(prices)) == 1:
        assert audit.rounds == budget // (per_round * prices[0])
    else:  # the run went on while anybody was affordable
        assert budget - spent < min(prices)
    left = budget
    for played in record_of(audit).rounds:  # nobody was left out whom the rest of the round would still have paid for
        asked = [access.provider for access in played.accesses]
        cost_of_round = sum(prices[i] for i in asked)
        assert len(asked) == per_round or len(set(prices)) > 1
        assert all(access.probability > 0 for access in played.accesses)
        left -= cost_of_round
        assert left >= 0


def test_with_unequal_prices_cheap_rounds_follow_the_one_that_did_not_fit(make_vector_market: MakeMarket) -> None:
    """Two draws of the dear one do not fit any more; the market goes on with the cheap one to the last coin."""
    consumer, providers = make_vector_market((0.0, 0.1), budget=50, per_round=2, prices=[2, 20])
    report = Arbiter(consumer, providers, Uniform(), engine="loop", seed=1).run()
    assert (report.spent, report.refunded) == (50, 0)
    dear = [any(a.provider == 1 for a in r.accesses) for r in report.rounds]
    assert any(dear) and not any(dear[-3:])
    assert report.distributions[-2].tolist() == [1.0, 0.0]


def test_one_owner_may_run_several_providers(make_vector_market: MakeMarket) -> None:
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
def test_bad_settings_are_refused_by_name(
    make_vector_market: MakeMarket, change: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(BazaarError, match=sentence):
        Arbiter(*make_vector_market(**change), engine="loop")


@pytest.mark.parametrize(
    "setting", [{"seed": -1}, {"seed": 1.0}, {"seed": True}, {"seed": None}, {"patience": 0}, {"patience": "10"}]
)
def test_a_seed_and_patience_are_whole_numbers(make_vector_market: MakeMarket, setting: dict[str, Any]) -> None:
    ((name, value),) = setting.items()
    with pytest.raises(BazaarError, match=f"^{name} = {value!r} must be a whole number of at least"):
        Arbiter(*make_vector_market(), engine="loop", **setting)
    assert Arbiter(*make_vector_market(), engine="loop", seed=np.int64(3)).terms().seed == 3  # type: ignore[arg-type]


def test_the_terms_are_known_beforehand_and_stand_at_the_head_of_the_ledger(
    make_vector_market: MakeMarket,
) -> None:
    arbiter = Arbiter(*make_vector_market(owners=["ann", "ann", "bob", "eve"]), engine="loop")
    agreed = arbiter.terms()
    ledger = Ledger(arbiter.rules)
    play(arbiter.begin(ledger), arbiter.engine)
    first = next(iter(ledger.store.entries()))
    assert first.body == agreed.body() and Terms.from_body(first.body) == agreed


def test_providers_must_be_there_and_have_ids_of_their_own(make_vector_market: MakeMarket) -> None:
    consumer, providers = make_vector_market()
    with pytest.raises(BazaarError, match="at least one provider"):
        Arbiter(consumer, [], engine="loop")
    with pytest.raises(BazaarError, match="two providers are called p0"):
        Arbiter(consumer, [*providers, providers[0]], engine="loop")


class Recorder(Engine):
    """An engine of the user's own, which notes what it was asked."""

    name, device = "recorder", torch.device("cpu")

    def __init__(self) -> None:
        self.asks: list[Ask] = []

    def query(self, ask: Ask) -> Replies:
        self.asks.append(ask)
        return Replies(torch.ones(len(ask.providers), len(ask.params), dtype=ask.params.dtype), {})


def test_what_is_no_engine_is_refused(make_vector_market: MakeMarket) -> None:
    with pytest.raises(BazaarError, match=r"inherit from databazaar\.engines\.Engine"):
        Arbiter(*make_vector_market(), engine=object())  # type: ignore[arg-type]


def test_an_engine_of_ones_own_is_asked_each_provider_once(make_vector_market: MakeMarket) -> None:
    engine = Recorder()
    consumer, providers = make_vector_market((0.0, 0.0), budget=40, per_round=4)
    report = Arbiter(consumer, providers, engine=engine, seed=3).run()
    for ask, played in zip(engine.asks, report.rounds, strict=True):
        assert len(set(ask.providers)) == len(ask.providers)
        assert set(ask.providers) == {a.provider for a in played.accesses}
        assert (ask.round, ask.seed) == (played.number, 3)


def test_every_built_in_oracle_trains(make_torch_market: MakeMarket) -> None:
    for oracle in (FullGradient(), LocalSGD(0.1, 4, epochs=2, momentum=0.5)):
        consumer, providers = make_torch_market(budget=80)
        mine = [Provider(p.id, data=p.data, oracle=oracle) for p in providers[:2]]
        report = Arbiter(consumer, mine, device="cpu").run()
        assert report.final_utility > report.rounds[0].utility + 0.1
