"""Prices, caps and limits as people write them: in market.toml and in Python, refused with the remedy or kept to."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_markets import bazaar, edit, write_market

from databazaar import Arbiter, BazaarError, Consumer, Progress, Provider, load_run
from databazaar.config.jobs import market_job
from databazaar.config.market_file import parse_market
from databazaar.roster import PriceChange
from databazaar.runs.close import close_run
from databazaar.runs.folder import RunFolder
from small_markets import vector_market

pytestmark = pytest.mark.usefixtures("no_figures_here")
HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "prices.md"
LIMITS = 'decimals = 2\nmost_per_access = "1.00"\nmost_per_round = "1.75"'
NORTH = 'price = "0.50"\nmost_accesses = 6\nprice_changes = [{ from_round = 3, price = "0.75" }]\nowner = "compass"'


class PowerCutError(Exception):
    """Stands in for a kill."""


def priced_market(folder: Path) -> Path:
    """North has a cap and gets dearer in the third round; south costs 1.25, which is too much."""
    market = write_market(folder, budget='"12.00"')
    edit(market, "decimals = 2", LIMITS)
    edit(market, 'file = "north.csv"\nprice = "0.50"\nowner = "compass"', f'file = "north.csv"\n{NORTH}')
    return market


def test_a_market_file_gives_the_offers_and_limits_that_it_names(tmp_path: Path) -> None:
    job = market_job(priced_market(tmp_path))
    assert job.consumer.limits == {"most_per_access": 100, "most_per_round": 175}
    north, south, east = (provider.offer for provider in job.providers)
    assert (north.most_accesses, north.price_changes) == (6, (PriceChange(2, 75),))  # the ledger's rounds begin at 0
    assert (south.most_accesses, south.price_changes) == (east.most_accesses, east.price_changes) == (None, ())


def test_a_run_of_it_keeps_to_them_and_is_audited(tmp_path: Path) -> None:
    market, run = priced_market(tmp_path), tmp_path / "run"
    assert bazaar("run", market, "--out", run, "--quiet").code == 0
    report = load_run(run).report
    north, south, _ = report.payouts
    assert (north.accesses, south.accesses) == (6, 0)
    costs = [sum(access.quoted for access in one.accesses) for one in report.rounds]
    assert max(costs) <= 175
    prices = {(one.number >= 2, a.paid) for one in report.rounds for a in one.accesses if a.provider == 0}
    assert prices <= {(False, 50), (True, 75)}
    told = bazaar("audit", run)
    assert told.code == 0 and "all as recorded" in told.out


def test_a_federated_market_has_the_same_terms(tmp_path: Path) -> None:
    market = priced_market(tmp_path)
    edit(market, '[engine]\ndevice = "cpu"', '[engine]\nkind = "federated"\n\n[federation]\nfolder = "federation"')
    job = market_job(market)
    assert job.federation is not None
    assert job.providers[0].offer.most_accesses == 6 and job.consumer.most_per_round == 175


def test_check_estimates_by_prices_and_limits_and_the_quote_says_what_they_come_to(tmp_path: Path) -> None:
    market = priced_market(tmp_path)
    told = json.loads(bazaar("check", market, "--json").out)
    assert told["faults"] == [] and told["warnings"] == []
    assert told["estimate"]["accesses"] == 24 and told["estimate"]["rounds"] == 8  # 0.50 each, three of them a round
    assert f"no faults, 0 warnings: `bazaar quote {market}` says what it costs" in bazaar("check", market).out
    quoted = {one["id"]: one for one in json.loads(bazaar("quote", market, "--json").out)["providers"]}
    assert quoted["south"]["status"] == "above most_per_access" and quoted["north"]["most_accesses"] == 6


def test_somebody_who_is_too_dear_for_a_while_is_named_with_the_rounds(tmp_path: Path) -> None:
    market = priced_market(tmp_path)
    changes = '[{ from_round = 2, price = "1.50" }, { from_round = 3, price = "0.80" }, { from_round = 5, price = 13 }]'
    edit(market, '[{ from_round = 3, price = "0.75" }]', changes)
    quoted = {one["id"]: one for one in json.loads(bazaar("quote", market, "--json").out)["providers"]}
    dear = "too dear from round 2 on, open from round 3 on, too dear from round 5 on"
    assert quoted["north"]["status"] == dear


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('most_per_access = "1.00"', 'most_per_access = "0.49"', "market.most_per_access = 0.49 EUR pays for nobody"),
        (
            'most_per_round = "1.75"',
            'most_per_round = "0.10"',
            "raise most_per_round to at least that, or leave it out",
        ),
        ('most_per_round = "1.75"', "most_per_round = 0", "market.most_per_round = 0.00 EUR pays for nobody"),
        (
            'most_per_round = "1.75"',
            "most_per_round = 1.75",
            "market.most_per_round = 1.75 must be a whole number or text",
        ),
        ('most_per_round = "1.75"', "most_per_round = -2", "market.most_per_round = -2 is negative"),
        ('most_per_round = "1.75"', f"most_per_round = {2**63}", "is more than a ledger holds: write at most"),
        ("most_accesses = 6", "most_accesses = 0", "providers[0].most_accesses = 0 must be between 1 and"),
        ("most_accesses = 6", 'most_accesses = "6"', "providers[0].most_accesses = '6' must be a whole number"),
        ("from_round = 3", "from_round = 1", "providers[0].price_changes[0].from_round = 1 must be between 2 and"),
        ("from_round = 3, ", "", "providers[0].price_changes[0].from_round is missing"),
        (
            "from_round = 3",
            "from = 3",
            "providers[0].price_changes[0].from is not a setting: use from_round, price, or remove it",
        ),
        ('price = "0.75"', 'price = "0.00"', "price_changes[0].price = '0.00' would make access free"),
        ('price = "0.75"', 'price = "free"', "providers[0].price_changes[0].price = 'free' is not an amount"),
        (
            '{ from_round = 3, price = "0.75" }',
            '{ from_round = 3, price = "0.75" }, { from_round = 3, price = 2 }',
            "providers[0].price_changes[1].from_round = 3 does not come after the one before it: put them in order",
        ),
        ('[{ from_round = 3, price = "0.75" }]', "3", "providers[0].price_changes = 3 must be a list"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_the_remedy(tmp_path: Path, old: str, new: str, words: str) -> None:
    market = priced_market(tmp_path)
    edit(market, old, new)
    assert words in bazaar("run", market, "--out", tmp_path / "run").complaint
    assert not (tmp_path / "run").exists()
    checked = json.loads(bazaar("check", market, "--json").out)
    assert any(words in fault for fault in checked["faults"])


def test_a_limit_that_pays_for_nobodys_rows_is_found_before_a_run(tmp_path: Path) -> None:
    market = priced_market(tmp_path)
    market.write_text(market.read_text(encoding="utf-8") + '\n[payment]\nkind = "price-per-row"\n', encoding="utf-8")
    edit(market, 'budget = "12.00"', 'budget = "1000.00"')
    refused = bazaar("run", market, "--out", tmp_path / "run").complaint
    assert "most_per_access = 100 pays for nobody, because an access costs 2000 or more in the first round" in refused
    checked = json.loads(bazaar("check", market, "--json").out)
    words = "pays for nobody, because an access costs 20.00 EUR or more in the first round"
    assert len(checked["faults"]) == 2 and all(words in fault for fault in checked["faults"])
    assert checked["estimate"] is None


def test_an_interrupted_run_is_closed_in_mid_round(tmp_path: Path) -> None:
    def die(progress: Progress) -> None:
        if progress.round == 3:
            raise PowerCutError

    with pytest.raises(PowerCutError):
        market_job(priced_market(tmp_path)).arbiter().run(tmp_path / "run", tell=die)
    report = close_run(tmp_path / "run")
    assert len(report.rounds) == 3 and RunFolder(tmp_path / "run").audit().ok


def test_settings_come_back_whole_from_a_recipe(tmp_path: Path) -> None:
    job = market_job(priced_market(tmp_path))
    market = parse_market(json.loads(json.dumps(job.recipe["market"])))
    assert market.limits_minor == job.consumer.limits
    assert [provider.changes_minor for provider in market.providers] == [p.offer.price_changes for p in job.providers]


def test_a_folder_whose_run_was_killed_goes_on_to_the_same_head_and_model(tmp_path: Path) -> None:
    def arbiter() -> Arbiter:
        return market_job(market).arbiter()

    def die(progress: Progress) -> None:
        if progress.round == 4:  # the fifth is reserved by then
            raise PowerCutError

    market = priced_market(tmp_path)
    whole = arbiter().run(tmp_path / "whole")
    with pytest.raises(PowerCutError):
        arbiter().run(tmp_path / "cut", tell=die)
    assert not RunFolder(tmp_path / "cut").finished
    resumed = arbiter().run(tmp_path / "cut")
    assert (resumed.ledger_head, resumed.model_hash) == (whole.ledger_head, whole.model_hash)
    assert len(whole.rounds) > 6


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"most_accesses": 0}, "provider north: most_accesses = 0 must be a whole number of at least 1, or left out"),
        ({"most_accesses": True}, "most_accesses = True must be a whole number"),
        ({"most_accesses": 2.0}, "most_accesses = 2.0 must be a whole number"),
        ({"price_changes": 5}, "price_changes = 5 must be pairs of a round and a price: write [(10, 25)]"),
        ({"price_changes": [(1, 2, 3)]}, "must be pairs of a round and a price"),
        ({"price_changes": [(0, 2)]}, "from_round = 0 of a price change must be a whole number of at least 1"),
        ({"price_changes": [(4, -1)]}, "price = -1 from round 4 on must be a whole number of minor units"),
    ],
)
def test_a_provider_that_asks_what_cannot_be_kept_is_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(BazaarError, match=re.escape(words)):
        Provider("north", **more)


@pytest.mark.parametrize("name", ["most_per_access", "most_per_round"])
@pytest.mark.parametrize("value", [0, -1, 2.5, True, "5"])
def test_a_limit_that_is_no_amount_is_refused(name: str, value: Any) -> None:
    with pytest.raises(BazaarError, match=re.escape(f"{name} = {value!r} must be a whole number of at least 1")):
        Consumer(np.zeros(2), budget=5, **{name: value})


@pytest.mark.parametrize("name", ["most_per_access", "most_per_round"])
def test_a_limit_that_pays_for_nobody_is_refused_before_the_first_round(name: str) -> None:
    _, providers = vector_market(prices=(3, 4, 5, 6))
    limits: dict[str, Any] = {name: 2}
    consumer = Consumer(np.zeros(3), budget=90, per_round=3, utility=lambda w: 0.0, **limits)
    words = f"{name} = 2 pays for nobody, because an access costs 3 or more in the first round: raise {name} to"
    with pytest.raises(BazaarError, match=re.escape(words)):
        Arbiter(consumer, providers, engine="loop")


def test_providers_and_consumers_show_what_they_ask() -> None:
    provider = Provider("north", oracle=lambda w: w, price=2, most_accesses=30, price_changes=[(10, 3), (20, 1)])
    assert "price: 2, 3 from round 10 on, 1 from round 20 on, most accesses: 30" in repr(provider)
    assert "most accesses" not in repr(Provider("south", oracle=lambda w: w))
    most: Any = np.int64(12)
    consumer = Consumer(np.zeros(2), budget=90, utility=lambda w: 0.0, most_per_round=most)
    assert "most per round" in repr(consumer) and consumer.limits == {"most_per_round": 12}
    assert consumer.with_budget(40, 2).limits == {"most_per_round": 12}
