"""The benchmark of attacks, in small: its runs can be repeated, split and put together, and its markets attacked."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bench_trust
from databazaar import OSMD, Arbiter, Consumer, Provider
from databazaar.payments import PricePerRow
from databazaar_experiments.attacks import Backdoor, Clones, Honest, Leak, Price, Split
from databazaar_experiments.attacks.market import attacked_arbiter, play_attacked
from trust_markets import SHAPES, logistic, mnist


def bench(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *options: str) -> str:
    monkeypatch.setattr(sys, "argv", ["bench_trust.py", *options])
    bench_trust.main()
    return capsys.readouterr().out


def test_runs_are_written_down_once_and_make_the_same_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "runs.jsonl"
    options = ("--attack", "sign,honest-bad", "--sampler", "osmd", "--seeds", "1", "--jobs", "1", "--json", str(file))
    told = bench(capsys, monkeypatch, *options)
    lines = file.read_text().splitlines()
    assert [json.loads(line)["case"] for line in lines] == ["nobody", "honest-bad", "sign", "sign-30%", "sign-5-30%"]
    assert "### logistic, osmd" in told and "| sign-30% |" in told
    run = json.loads(lines[0])
    assert 0.75 < run["accuracy"] < 0.9 and sum(run["pay"].values()) == pytest.approx(1) and run["attackers"] == []

    def never(job: object) -> dict[str, object]:
        raise AssertionError("it is there already")

    monkeypatch.setattr(bench_trust, "played", never)
    assert bench(capsys, monkeypatch, *options) == told
    parts = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    parts[0].write_text("\n".join(lines[2:] + lines[:1]) + "\n")
    parts[1].write_text("\n".join(lines[:2]) + "\n")
    assert bench(capsys, monkeypatch, "--table", *map(str, parts)) == told
    assert "| nobody | 0.0" in bench(capsys, monkeypatch, "--table", str(file), "--model", "last_accuracy")


def test_flags_are_counted_by_who_deserves_them() -> None:
    run = {"attackers": ["place-0"], "pay": {"place-0": 0.1}, "accuracy": 0.8, "trigger": 0.25, "seed": 0}
    runs = {seed: {**run, "flagged": flagged} for seed, flagged in enumerate((["place-0"], ["place-0", "good-1"]))}
    assert bench_trust.cells("sign", runs, {0: 0.9, 1: 0.9}, "accuracy") == (
        "10.0 ± 0.0",
        "-10.0 ± 0.0",
        "25",
        "1.0 + 1 honest in 1 of 2",
    )
    assert bench_trust.cells("honest", runs, {}, "accuracy")[1::2] == ("", "0.0 + 3 honest in 2 of 2")
    assert bench_trust.cells("sign", {}, {}, "accuracy") == ("", "", "", "")


def test_an_unknown_case_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit):
        bench(capsys, monkeypatch, "--attack", "sign,theft")
    assert "no case begins with 'theft'" in capsys.readouterr().err


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Images that look like their class: a bright row for each digit."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("digits")
    made: dict[str, Any] = {}
    for part, count in (("train", 3_000), ("test", 3_000)):
        y = rng.integers(0, 10, count)
        x = rng.integers(0, 60, (count, 28, 28))
        x[np.arange(count), 2 * y, 4:24] += 120
        made |= {f"x_{part}": x.astype(np.uint8), f"y_{part}": y.astype(np.uint8)}
    np.savez(folder / "mnist.npz", **made)
    return str(folder)


def test_a_market_of_digits(digits: str) -> None:
    result = mnist(0, SHAPES["sizes"], 1, bad_place=False, data=digits).play(Backdoor(), 0, OSMD(3.0, 0.1))
    assert result.accuracy > 0.9 and result.attackers == ("place-0",) and result.rounds == 80
    assert result.trigger > 0.5


def test_private_providers_add_noise_and_bad_places_have_wrong_labels() -> None:
    market = logistic(0, SHAPES["private-1"], 1, True)
    private = [provider.id for provider in (*market.honest, *market.places) if provider.data is None]
    assert private == [*(f"good-{i}" for i in range(5)), "place-0"]


def test_what_has_leaked_pays_in_an_open_market() -> None:
    """As in the findings: who has seen the hold-out earns more than its honest neighbours."""
    market = logistic(0, SHAPES["plain"], 1, False)
    honest, leaker = (market.play(attack, 0, OSMD(3.0, 0.1), "both") for attack in (Honest(), Leak("sgd")))
    assert leaker.pay["place-0"] > 1.5 * honest.pay["place-0"]
    assert len(market.leaked("scoring", 0)[1]) == len(market.leaked("half", 0)[1]) == 150


@pytest.fixture(scope="module")
def row_market() -> tuple[Consumer, list[Provider], dict[str, Any]]:
    """Five providers of a hundred rows each, at ten a row."""
    market = logistic(0, SHAPES["plain"], 1, False)
    rules = {"sampler": OSMD(3.0, 0.1), "payment": PricePerRow(rows=(100,) * 5), "seed": 1}
    return market.consumer(budget=400_000), [*market.honest[:4], *market.places], rules


def test_an_honest_attack_is_the_market_itself(row_market: tuple[Consumer, list[Provider], dict[str, Any]]) -> None:
    consumer, everybody, rules = row_market
    played = play_attacked(*attacked_arbiter(consumer, everybody, ["good-1"], Honest(), **rules))
    arbiter = Arbiter(consumer, everybody, device="cpu", **rules)
    assert played.pay == {payout.provider: payout.pay for payout in arbiter.run().payouts if payout.pay}
    assert torch.equal(played.delivered, arbiter.parameters) and torch.equal(played.last, arbiter.last_parameters)
    assert played.attackers == ("good-1",) and played.earned == played.pay["good-1"]
    away = play_attacked(*attacked_arbiter(consumer, everybody, ["good-1"], None, **rules))
    assert away.attackers == () and away.earned == 0 and "good-1" not in away.pay


def test_attackers_are_paid_by_the_rows_that_they_have_or_claim(
    row_market: tuple[Consumer, list[Provider], dict[str, Any]],
) -> None:
    consumer, everybody, rules = row_market
    parts, noisy, dear = (
        play_attacked(*attacked_arbiter(consumer, everybody, ["good-1"], attack, **rules))
        for attack in (Split(4), Clones(2, noise=0.1), Price(2))
    )
    for played, quote in ((parts, 250), (noisy, 1_000), (dear, 2_000)):
        assert all(played.pay[id] % quote == 0 for id in played.attackers if id in played.pay) and played.earned
    assert parts.pay["good-1~2"] % 1_000 and noisy.attackers == ("good-1", "good-1~2")


def test_what_a_defence_costs_is_told_from_runs_that_were_played() -> None:
    def run(case: str, defence: str, seed: int, good: float, flagged: tuple[str, ...] = ()) -> dict[str, Any]:
        told = {"market": "logistic", "case": case, "sampler": "adaptive", "defence": defence, "seed": seed}
        pay = {"good-1": good, "bad-1": 0.01}
        return {**told, "pay": pay, "attackers": ("place",), "flagged": flagged, "accuracy": 0.8 + good / 10}

    played = [run("honest", "none", seed, 0.2 + 0.01 * seed) for seed in range(4)]
    played += [run("honest", "standard", seed, 0.1 + 0.01 * seed, ("place",) * (seed == 0)) for seed in range(4)]
    played += [run("zero", "standard", 0, 0.1, ("place",)), run("zero", "standard", 1, 0.1, ("good-1", "place"))]
    assert bench_trust.cost(played).splitlines() == [
        "logistic, adaptive, honest, standard, 4 seeds: -1.0 ± 0.0 points; good-1 -10.0 of 21.5 ± 0.6",
        "standard: an honest provider is flagged in 1 of 4 markets where nobody attacks",
        "standard: an honest provider is flagged in 1 of 2 markets where somebody attacks",
    ]
