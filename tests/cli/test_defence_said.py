"""What a defence means and what it cannot do in a market is said before anything is bought, and it is true."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_markets import PROVIDERS, bazaar, edit, write_market

from databazaar import Arbiter, Consumer, Defence
from databazaar.callbacks.record import parameters
from databazaar.config.jobs import market_job
from databazaar.config.quote import market_quote
from databazaar.learners import Averaging
from databazaar.market.inspection.coverage import MarketShape, blind_spots, in_words, meaning
from databazaar.market.inspection.holdout_parts import Parts
from databazaar.runs.folder import RunFolder
from small_markets import blobs, torch_market, vector_market

STANDARD, STRICT = Defence.named("standard"), Defence.named("strict")
pytestmark = pytest.mark.usefixtures("no_figures_here")
SECTION = '\n[defence]\nkind = "standard"\n\n[learner]\nkind = "averaging"\n'
ROOMY = MarketShape([f"p{i}" for i in range(8)], 4, rows=40, parameters=96, accesses=64)


def test_a_market_with_room_for_all_rules_has_no_blind_spot() -> None:
    assert blind_spots(STANDARD, ROOMY) == blind_spots(STRICT, ROOMY) == ()
    assert blind_spots(STANDARD, MarketShape(ROOMY.owners, 4)) == (), "where nobody has looked, nothing is said"


@pytest.mark.parametrize(
    ("defence", "place", "told"),
    [
        (STANDARD, replace(ROOMY, rows=39), "screen and leak cannot work: 39 rows score updates, and two parts"),
        (STANDARD, replace(ROOMY, rows=0), "screen and leak cannot work: your utility is a function"),
        (replace(STANDARD, leak=None), replace(ROOMY, rows=39), "screen cannot work: 39 rows"),
        (STANDARD, replace(ROOMY, parameters=95), "new looks at only 5 of the last 6 public changes of the model"),
        (
            STANDARD,
            replace(ROOMY, parameters=31),
            "new and alike cannot work: in a model of 31 parameters honest updates",
        ),
        (replace(STANDARD, new=None), replace(ROOMY, parameters=31), "alike cannot work: in a model of 31 parameters"),
        (STANDARD, replace(ROOMY, per_round=2), "leak, new, data and alike cannot work: a round asks 2"),
        (STANDARD, replace(ROOMY, accesses=63), "data and alike will hardly work: there are about 7 answers of each"),
        (STRICT, replace(ROOMY, accesses=63), "or set doubt = true, because else nobody is paid beyond the floor"),
        (STRICT, replace(ROOMY, per_round=3), "data may hardly work: a round asks 3 at the most, and only rounds that"),
        (Defence(cap=0.5), replace(ROOMY, owners=["a", "b"]), "cap cannot work: with 2 to choose from"),
        (Defence(owners=True, cap=0.5), replace(ROOMY, owners=["a"] * 8), "cap cannot work: with 1 to choose from"),
    ],
)
def test_what_cannot_work_is_said_once(defence: Defence, place: MarketShape, told: str) -> None:
    (said,) = blind_spots(defence, place)
    assert told in said
    off = Defence(owners=defence.owners)
    assert blind_spots(off, place) == (), "nothing is said of rules that are off"


def test_a_round_asks_one_provider_of_an_owner() -> None:
    others, cap = blind_spots(STANDARD, replace(ROOMY, owners=["a"] * 8))
    assert "a round asks 1," in others and others.endswith("find more providers, of other owners")
    assert "with 1 to choose from" in cap
    assert blind_spots(replace(STANDARD, owners=False), replace(ROOMY, owners=["a"] * 8)) == ()


def test_two_providers_have_nobody_to_be_compared_with() -> None:
    others, cap = blind_spots(STANDARD, replace(ROOMY, owners=["a", "b"]))
    assert "leak, new, data and alike cannot work: a round asks 2" in others and "find more providers" in others
    assert cap.startswith("cap cannot work")


def test_a_defence_in_words() -> None:
    assert "8 or more answers" in meaning(STANDARD) and meaning(STANDARD).startswith("standard: ")
    assert "is paid, but to those" in meaning(STANDARD) and "comes back to you" in meaning(STRICT)
    own = Defence(owners=True, alike=0.7, leak=0.001, clip=2.0, doubt=False)
    assert meaning(own) == in_words(own) == "rules of your own (owners, alike 0.7, clip 2, leak 0.001, doubt false)"


def test_forty_rows_can_be_parted_and_fewer_not() -> None:
    rng = np.random.default_rng(0)
    for rows, parted in ((39, False), (40, True)):
        consumer = Consumer("logistic", holdout=blobs(rng, rows), budget=10)
        evaluator = consumer.evaluator(torch.device("cpu"))
        assert (Parts.of(evaluator, seed=0) is not None) == parted
        assert bool(blind_spots(STANDARD, replace(ROOMY, rows=rows))) != parted


def test_what_cannot_work_finds_nothing(tmp_path: Path) -> None:
    """Two providers, few rows: no figure of those rules stands in the ledger."""
    consumer, providers = torch_market(flips=(0.0, 1.0), budget=60, holdout=blobs(np.random.default_rng(1), 30))
    arbiter = Arbiter(consumer, providers, learner=Averaging(), defence=STANDARD)
    arbiter.run(tmp_path / "run")
    rounds = [entry.body["findings"] for entry in RunFolder(tmp_path / "run").entries() if entry.kind == "round"]
    assert len(rounds) > 20 and {name for findings in rounds for name in findings} == {"length"}


def test_check_says_that_there_is_none_and_how_to_have_one(tmp_path: Path) -> None:
    market = write_market(tmp_path)
    (line,) = [line for line in bazaar("check", market).out.splitlines() if line.startswith("Defence: ")]
    assert "none" in line and '[defence] with kind = "standard" switches it on' in line
    assert json.loads(bazaar("check", market, "--json").out)["warnings"] == []


def test_check_says_which_and_what_it_cannot_do(tmp_path: Path) -> None:
    market = write_market(tmp_path, more=SECTION)
    told = bazaar("check", market)
    assert told.code == 0 and "Defence: standard: pay beyond the floor" in told.out
    found = json.loads(bazaar("check", market, "--json").out)
    assert found["defence"].startswith("standard: ") and len(found["warnings"]) == 4
    assert "- screen and leak cannot work: 24 rows score updates" in told.out  # of 80, without train and audit
    assert "- new and alike cannot work: in a model of 12 parameters" in told.out
    assert "- cap cannot work: with 2 to choose from" in told.out  # two of the three have one owner


def test_a_quote_says_it_without_reading_a_file(tmp_path: Path) -> None:
    market = write_market(tmp_path, more=SECTION)
    arbiter = market_job(market).arbiter()
    for name in ("holdout", *PROVIDERS):
        (tmp_path / f"{name}.csv").unlink()
    found = market_quote(market)
    assert found == arbiter.quote() and found.defence == found.facts()["defence"] == meaning(STANDARD)
    assert any("cap cannot work" in warning for warning in found.warnings)
    assert "standard: pay beyond the floor" in bazaar("quote", market).out
    edit(market, 'kind = "standard"', 'kind = "none"')
    assert market_quote(market).defence == "" and "defence" not in market_quote(market).facts()


def test_a_run_says_it_and_is_audited(tmp_path: Path) -> None:
    market = write_market(tmp_path, more=SECTION, budget='"6.00"')
    told = bazaar("run", market, "--out", tmp_path / "run")
    assert told.code == 0 and "defence: standard: pay beyond the floor" in told.err
    assert "screen and leak cannot work" in told.err
    assert bazaar("audit", tmp_path / "run").code == 0


def test_init_writes_standard(tmp_path: Path) -> None:
    write_market(tmp_path).unlink()
    assert bazaar("init", tmp_path, "--own", tmp_path / "holdout.csv", "--target", "target").code == 0
    assert market_job(tmp_path / "market.toml").defence == STANDARD.of_rows()


def test_a_utility_of_ones_own_has_no_rows_to_part() -> None:
    consumer, providers = vector_market()
    assert consumer.judged_rows is None
    assert Arbiter(consumer, providers, defence=STANDARD, engine="loop").terms().holdout == {}


def test_whoever_watches_a_run_hears_of_it() -> None:
    consumer, providers = torch_market()
    told = parameters(Arbiter(consumer, providers, learner=Averaging(), defence=Defence(clip=2.0)).terms())
    assert told["defence.clip"] == "2.0" and told["defence.alike"] == "None"
    assert not any(name.startswith("defence") for name in parameters(Arbiter(consumer, providers).terms()))


def test_compare_plays_its_markets_with_the_defence_of_the_file(tmp_path: Path) -> None:
    """With a defence another pay comes out than without."""
    market = write_market(tmp_path, more='\n[defence]\nkind = "standard"\n')
    pays = []
    for kind in ("standard", "none"):
        told = bazaar("compare", market, "--methods", "market", "--out", tmp_path / kind, "--json", cwd=tmp_path)
        assert told.code == 0, told
        pays.append(json.loads(told.out)["methods"][0])
        edit(market, f'kind = "{kind}"', 'kind = "none"')
    assert pays[0] != pays[1]
