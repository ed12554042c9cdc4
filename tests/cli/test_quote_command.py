"""`bazaar quote`: what a run will cost, said before anything is read that is not needed for it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from cli_markets import PROVIDERS, bazaar, contents, edit, write_market

from databazaar.config.jobs import market_job
from databazaar.config.quote import market_quote

DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "prices.md"


def quoted(market: Path) -> dict[str, Any]:
    told = bazaar("quote", market, "--json")
    assert (told.code, told.err) == (0, ""), told
    found: dict[str, Any] = json.loads(told.out)
    return found


def test_no_file_is_read_and_nothing_is_written(tmp_path: Path) -> None:
    market = write_market(tmp_path)
    for name in ("holdout", *PROVIDERS):
        (tmp_path / f"{name}.csv").unlink()
    before = contents(tmp_path)
    found = quoted(market)
    assert found == json.loads(json.dumps(market_quote(market).to_dict())) and contents(tmp_path) == before
    assert found["market"] == "Small market" and found["currency"] == {"name": "EUR", "decimals": 2}
    assert 6 <= found["rounds"]["low"] <= found["rounds"]["high"] <= 16 and found["stops"] == ["patience"]
    assert [p["id"] for p in found["providers"]] == ["north", "far east", "south"]


def test_a_quote_is_that_of_the_run(tmp_path: Path) -> None:
    """The quote from the file alone is that of the arbiter, which has all data; and the run keeps to it."""
    market = write_market(tmp_path, more='\n[[stops]]\nkind = "no-progress"\n')
    edit(market, "per_round = 4", 'per_round = 4\nmost_per_access = "2.00"\nmost_per_round = "3.00"')
    changes = 'price_changes = [{ from_round = 4, price = "1.00" }, { from_round = 6, price = "2.50" }]'
    edit(market, 'price = "1.25"', f'price = "1.25"\nmost_accesses = 7\n{changes}')
    found, arbiter = market_quote(market), market_job(market).arbiter()
    assert found == arbiter.quote() and found.stops == ("patience", "no-progress")
    (south,) = [p for p in found.providers if p.id == "south"]
    assert [tuple(change) for change in south.price_changes] == [(3, 100), (5, 250)]  # as the ledger counts rounds
    assert (south.most_accesses, south.status) == (7, "too dear from round 6 on")
    told = bazaar("quote", market)
    assert told.code == 0 and "1.00 from 4," in told.out and "2.50 from 6" in told.out
    assert "no round costs more than 3.00 EUR" in told.out
    report = arbiter.run()
    assert found.rounds.low <= len(report.rounds) <= found.rounds.high


@pytest.mark.parametrize("sampler", ['kind = "adaptive"', 'kind = "osmd"', 'kind = "uniform"'])
def test_samplers_of_the_file(tmp_path: Path, sampler: str) -> None:
    market = write_market(tmp_path)
    edit(market, 'kind = "osmd"', sampler)
    assert market_quote(market) == market_job(market).arbiter().quote()


def test_pay_by_the_row_counts_rows(tmp_path: Path) -> None:
    market = write_market(tmp_path, budget='"3000.00"', more='\n[payment]\nkind = "price-per-row"\n')
    assert {p["id"]: p["price"] for p in quoted(market)["providers"]} == {
        "north": 50 * 40,
        "south": 125 * 50,
        "far east": 50 * 60,
    }
    assert market_quote(market) == market_job(market).arbiter().quote()
    (tmp_path / "south.csv").unlink()
    assert "provider 'south'" in bazaar("quote", market).complaint


def test_a_market_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    market = write_market(tmp_path, budget='"1.00"')
    assert "cannot pay for one round" in bazaar("quote", market).complaint
    assert "does not exist" in bazaar("quote", tmp_path / "none.toml").complaint
    by_row = write_market(tmp_path, more='\n[payment]\nkind = "price-per-row"\n')  # only the rows make it too dear
    assert "market.budget = 30.00 EUR cannot pay for one round of per_round = 4" in bazaar("quote", by_row).complaint


def test_a_thousand_providers_fit_a_screen(tmp_path: Path) -> None:
    market = write_market(tmp_path, budget='"90000.00"')
    limits = 'most_per_access = "20.00"'
    edit(market, "per_round = 4", f"per_round = 4\n{limits}")
    text = market.read_text(encoding="utf-8")
    for place in range(1000):
        changes = f'price_changes = [{{ from_round = {2 + place % 3}, price = "50.00" }}]\n' if place % 10 == 0 else ""
        text += f'\n[[providers]]\nid = "p{place}"\nfile = "north.csv"\nprice = "{1 + place % 25}.00"\n{changes}'
    market.write_text(text, encoding="utf-8")
    told = bazaar("quote", market)
    assert told.code == 0 and len(told.out.splitlines()) < 50
    rows = {line.split("  ")[0].strip(): line.split() for line in told.out.splitlines()}
    assert rows["north"][1] == "0.50" and rows["p0"][1:5] == ["1.00", "50.00", "from", "2"], "the cheapest come first"
    assert "983 more providers stand in the JSON (--json)" in told.out
    assert len(quoted(market)["providers"]) == 1003


def test_names_are_no_markup_and_not_too_long(tmp_path: Path) -> None:
    market = write_market(tmp_path)
    edit(market, 'id = "north"', f'id = "[bold]nor{"t" * 40}h"')
    told = bazaar("quote", market)
    assert told.code == 0 and "[bold]norttt" in told.out and "t…" in told.out


def test_the_page_shows_what_the_command_says(tmp_path: Path) -> None:
    page = DOCS.read_text(encoding="utf-8")
    (settings,) = re.findall(r"^    \[market\]\n(?:    .*\n)+", page, re.MULTILINE)
    (seller,) = re.findall(r"^    \[\[providers\]\]\n(?:    .*\n)+", page, re.MULTILINE)
    (shown,) = re.findall(r"^    \$ bazaar quote market.toml\n((?:    .*\n|\n)+)", page, re.MULTILINE)
    other = '[[providers]]\nid = "south"\nfile = "s.csv"\nprice = "4.50"\nmost_accesses = 40\n'
    changes = 'price_changes = [{ from_round = 10, price = "6.00" }]\n'
    rest = '[data]\nholdout = "own.csv"\ntarget = "y"\ntask = "regression"\n'
    plain = [re.sub("^    ", "", part, flags=re.MULTILINE) for part in (settings, seller)]
    market = tmp_path / "market.toml"
    market.write_text("\n".join([plain[0], 'name = "x"', rest, plain[1], other + changes]), encoding="utf-8")
    told = bazaar("quote", "market.toml", cwd=tmp_path)
    assert told.out.split() == shown.split()
