"""Gain per coin, its errors and shares of money: against the obvious way, and as invariants of any run."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_samples import sample_report

from databazaar import OSMD, Arbiter, Progress, Uniform
from databazaar.money import Currency
from databazaar.runs.attribution import STRETCH, compare
from databazaar.runs.folder import RunFolder
from databazaar.runs.report import Report
from databazaar.runs.trajectory import Trajectory
from databazaar.samplers import Sampler
from known_gains import SIX, Seller, arbiter, played
from own_samplers import Valued
from small_markets import vector_market

SAMPLERS: list[Sampler] = [Valued(), OSMD(0.6, 0.2), Uniform(), Uniform(replacement=False)]


def ratio(lines: list[tuple[float, float]]) -> tuple[float | None, float | None]:
    """Σ top / Σ bottom and its standard error, written out."""
    bottom = sum(b for _, b in lines)
    if not bottom:
        return None, None
    value = sum(t for t, _ in lines) / bottom
    if len(lines) < 2:
        return value, None
    return value, math.sqrt(sum((t - value * b) ** 2 / (1 - b / bottom) for t, b in lines)) / bottom


def obvious(report: Report, place: int) -> tuple[float | None, float | None, float | None, float | None]:
    """Gain per coin with its error, and how far ahead of the others with its error, line by line."""
    unit = 10**report.currency.decimals
    by_round: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    stretch, held, after = 0, 0, sum(len(one.accesses) for one in report.rounds)
    own: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    others: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for number, one in enumerate(report.rounds):
        if held >= STRETCH and after >= STRETCH:
            stretch, held = stretch + 1, 0
        held, after = held + len(one.accesses), after - len(one.accesses)
        for access in one.accesses:
            if access.gain is None:
                continue
            for sums in (own[stretch], by_round[number]) if access.provider == place else (others[stretch],):
                sums[0] += access.gain
                sums[1] += access.paid / unit
    pairs = [(own[s], others[s]) for s in own if others[s][1]]
    ahead = [(gain - coins * (them[0] / them[1]), coins) for (gain, coins), them in pairs]
    return (*ratio([(gain, coins) for gain, coins in by_round.values()]), *ratio(ahead))


@settings(max_examples=40)
@given(n=st.integers(1, 7), seed=st.integers(0, 10**6), rounds=st.integers(0, 25), k=st.integers(1, 12))
def test_it_is_what_the_obvious_way_finds(n: int, seed: int, rounds: int, k: int) -> None:
    prices = np.random.default_rng(seed).integers(1, 500, n).tolist()
    names = [f"p{i}" for i in range(n)]
    report = sample_report(names, rounds=rounds, per_round=k, prices=prices, seed=seed, failure_rate=0.2)
    for place, one in enumerate(report.brought):
        found = (one.gain_per_coin, one.gain_per_coin_error, one.ahead, one.ahead_error)
        for mine, theirs in zip(found, obvious(report, place), strict=True):
            assert (mine is None) == (theirs is None)
            assert mine is None or theirs is None or math.isclose(mine, theirs, rel_tol=1e-9, abs_tol=1e-12)


@settings(max_examples=30)
@given(
    prices=st.lists(st.integers(1, 9) | st.just(10**9), min_size=2, max_size=5),
    budget=st.integers(9, 200),
    k=st.integers(1, 9),
    sampler=st.sampled_from(SAMPLERS),
    decimals=st.sampled_from([0, 2]),
    fails=st.sampled_from([0.0, 0.4, 1.0]),
    caps=st.lists(st.none() | st.integers(1, 5), min_size=5, max_size=5),
)
def test_what_holds_for_every_run(
    prices: list[int], budget: int, k: int, sampler: Sampler, decimals: int, fails: float, caps: list[int | None]
) -> None:
    """Shares sum to 1, and gain per coin times money is the gain: of a real run, whatever its prices and caps."""
    caps = [None, *caps]
    sellers = {
        f"p{i}": Seller(i - 1.0, price, fails=fails if i else 0.0, most_accesses=caps[i])
        for i, price in enumerate([1, *prices])
    }
    without_replacement = isinstance(sampler, Uniform) and not sampler.replacement
    per_round = min(k, len(sellers)) if without_replacement else k
    report = played(sellers, sampler, budget=budget, per_round=per_round, currency=Currency("EUR", decimals))
    unit = 10**decimals
    for share in ("share_at_start", "share_at_end"):
        parts = [getattr(one, share) for one in report.brought]
        assert math.isclose(sum(parts), 1.0, rel_tol=1e-9) and min(parts) >= 0
    assert math.isclose(sum(one.share for one in report.brought), 1.0 if report.spent else 0.0)
    assert np.allclose(Trajectory(report).shares.sum(axis=1), 1.0)
    gains = [access.gain for one in report.rounds for access in one.accesses if access.gain is not None]
    assert math.isclose(sum(one.gain for one in report.brought), sum(gains), abs_tol=1e-9)
    for one, line in zip(report.brought, report.payouts, strict=True):
        assert one.provider == line.provider and str(one.why).endswith(".") and str(one.why)[0].isalnum()
        if not line.accesses:
            assert one.gain_per_coin is one.mean_gain is one.mean_price is None and one.gain == 0
            continue
        assert one.gain_per_coin is not None and one.mean_gain is not None and one.mean_price is not None
        assert math.isclose(one.gain_per_coin * line.pay / unit, one.gain, rel_tol=1e-9, abs_tol=1e-12)
        assert math.isclose(one.mean_gain * line.accesses, one.gain, rel_tol=1e-9, abs_tol=1e-12)
        assert math.isclose(one.mean_gain, one.gain_per_coin * one.mean_price, rel_tol=1e-9, abs_tol=1e-12)
    assert report.gain_per_coin is None or math.isclose(report.gain_per_coin * report.spent / unit, sum(gains))


@pytest.mark.parametrize("scale", [1e-300, 1e-4, 1e300])
def test_reasons_do_not_depend_on_the_unit_of_the_utility(scale: float) -> None:
    report = sample_report([f"p{i}" for i in range(6)], rounds=60, per_round=5)
    larger = tuple(
        replace(one, accesses=tuple(replace(a, gain=None if a.gain is None else a.gain * scale) for a in one.accesses))
        for one in report.rounds
    )
    scaled = replace(report, rounds=larger)
    assert [one.why for one in scaled.brought] == [one.why for one in report.brought]
    for mine, theirs in zip(report.brought, scaled.brought, strict=True):
        assert mine.ahead_error is not None and theirs.ahead_error is not None
        assert math.isclose(mine.ahead_error * scale, theirs.ahead_error, rel_tol=1e-9)


def test_a_gain_beyond_all_numbers_is_not_known() -> None:
    report = sample_report(rounds=1, per_round=1, failure_rate=0.0, prices=[1, 1, 1])
    access = replace(report.rounds[0].accesses[0], gain=1e307)
    one = replace(report, rounds=(replace(report.rounds[0], accesses=(access,)),)).brought[access.provider]
    assert one.gain == 1e307 and one.gain_per_coin is None, "1e309 of a coin"


def test_who_is_asked_early_is_not_ahead_for_it() -> None:
    """Gains shrink as 1/t; both bring the same at any time, and one is asked early, the other late."""
    report = sample_report(["early", "late"], rounds=40, per_round=10, failure_rate=0.0)
    beyond = claimed = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        rounds = []
        for t, one in enumerate(report.rounds):
            who = (rng.random(10) < (0.2 if t < 20 else 0.8)).astype(int).tolist()
            gains = (rng.normal(1, 0.1, 10) / (1 + t)).tolist()
            drawn = zip(one.accesses, who, gains, strict=True)
            rounds.append(replace(one, accesses=tuple(replace(a, provider=i, gain=gain) for a, i, gain in drawn)))
        early, late = replace(report, rounds=tuple(rounds)).brought
        assert early.gain_per_coin is not None and late.gain_per_coin is not None
        assert early.ahead is not None and early.ahead_error is not None
        assert early.gain_per_coin > 1.5 * late.gain_per_coin
        beyond += abs(early.ahead) > 2 * early.ahead_error
        claimed += {early.why.kind, late.why.kind} != {"unclear"}
    assert beyond <= 4 and claimed <= 4, "chance alone exceeds two standard errors once in twenty times"


def test_a_run_that_was_interrupted_tells_what_it_has(tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        if progress.round == 30:
            raise KeyboardInterrupt

    market = arbiter({"good": Seller(3.0), "bad": Seller(-1.0)}, OSMD(10.0, 0.05), budget=1000)
    with pytest.raises(KeyboardInterrupt):
        market.run(tmp_path / "run", tell=stop)
    report = RunFolder(tmp_path / "run").report()
    assert report.status == "open" and len(report.purses) == len(report.rounds) + 1
    good, bad = report.brought
    assert (good.why.kind, bad.why.kind) == ("better", "worse")
    assert good.ahead is not None and good.ahead > 0 and good.share_at_end > 0.9


def test_before_the_first_round_there_is_nothing_to_tell() -> None:
    report = sample_report(rounds=0)
    assert report.gain_per_coin is None
    assert {one.why.sentence for one in replace(report, purses=sample_report().purses[:1]).brought} == {
        "It could have been asked, but was never drawn."
    }
    assert all(one.share_at_start == one.share_at_end for one in report.brought)
    assert compare(report).scale == 1.0


def test_pay_that_is_less_than_quoted_is_what_counts() -> None:
    """A payment rule may pay nothing for a valid reply: a gain without a coin is no gain per coin."""
    report = sample_report(["paid", "unpaid"], rounds=20, per_round=4, failure_rate=0.0)
    rounds = tuple(
        replace(one, accesses=tuple(replace(a, paid=100 * (a.provider == 0)) for a in one.accesses))
        for one in report.rounds
    )
    lines = tuple(replace(line, pay=line.pay * (line.provider == "paid")) for line in report.payouts)
    paid, unpaid = replace(report, rounds=rounds, payouts=lines, spent=lines[0].pay).brought
    assert paid.gain_per_coin is not None and unpaid.gain_per_coin is None
    assert unpaid.mean_gain is not None and unpaid.mean_price == 0.0
    assert unpaid.why.kind in ("few", "unclear")


def test_the_report_of_a_run_and_that_of_its_folder_tell_the_same(tmp_path: Path) -> None:
    """Of a ledger with caps and limits, which is of format 3, and of one without."""
    consumer, providers = vector_market(prices=[1, 2, 3, 4], budget=60)
    plain = Arbiter(consumer, providers, Valued(), engine="loop").run(tmp_path / "plain")
    assert RunFolder(tmp_path / "plain").report().brought == plain.brought
    limited = arbiter(SIX, most_per_access=20, budget=200).run(tmp_path / "limited")
    again = RunFolder(tmp_path / "limited").report().brought
    assert again == limited.brought and {one.why.kind for one in again} >= {"used-up", "too-dear", "failed"}
