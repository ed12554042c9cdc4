"""[defence] in market.toml: three sets of rules by name, each rule off or on, and one sentence for each mistake."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from cli_markets import write_market

from databazaar import Defence
from databazaar.config.jobs import from_recipe, market_job
from databazaar.config.market_file import parse_market
from databazaar.defence.settings import PRESETS
from databazaar.errors import BazaarError
from databazaar.settings import plain

MARKET: dict[str, Any] = {
    "market": {"budget": 100},
    "data": {"holdout": "holdout.csv", "target": "y"},
    "providers": [{"id": "north", "file": "north.csv"}, {"id": "south", "file": "south.csv"}],
}
DOCS = Path(__file__).parents[1] / "docs" / "reference" / "market-toml.md"


def chosen(section: dict[str, Any]) -> Defence:
    return parse_market({**MARKET, "defence": section}).defence.chosen


def test_without_a_section_there_is_none() -> None:
    assert parse_market(MARKET).defence.chosen.off


@pytest.mark.parametrize("kind", PRESETS)
def test_the_sets_by_their_names(kind: str) -> None:
    assert chosen({"kind": kind}) == Defence.named(kind)


@pytest.mark.parametrize("kind", PRESETS)
def test_two_with_the_same_data_may_both_be_paid(kind: str) -> None:
    """`alike = false` switches that rule off, and a run's folder keeps it."""
    market = parse_market({**MARKET, "defence": {"kind": kind, "alike": False}})
    assert market.defence.chosen == replace(PRESETS[kind], alike=None)
    assert parse_market(json.loads(json.dumps(plain(market)))) == market


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({}, ["defence.kind is missing", '"standard"', "add `kind` to defence"]),
        ({"alike": True}, ["defence.kind is missing"]),
        ({"kind": "loose"}, ["defence.kind = 'loose' must be one of 'none', 'standard', 'strict'", "change it"]),
        ("standard", ["defence = 'standard' must be a section"]),
        ({"kind": "none", "alike": 0.5}, ["defence.alike = 0.5 must be true or false: change it"]),
        ({"kind": "strict", "cap": 0.5}, ["defence.cap is not a setting: use kind, alike, or remove it"]),
        ({"kind": "none", "kinds": 3.0}, ["defence.kinds is not a setting: did you mean `kind`?"]),
    ],
)
def test_a_mistake_gets_one_sentence(section: Any, words: list[str]) -> None:
    with pytest.raises(BazaarError) as caught:
        parse_market({**MARKET, "defence": section}, "shop.toml")
    assert str(caught.value).startswith("shop.toml: ")
    assert all(word in str(caught.value) for word in words), caught.value


def test_the_reference_has_what_each_set_sets() -> None:
    text = DOCS.read_text(encoding="utf-8")  # `rows` follows from the learner
    rows = {
        row[0]: row[1:] for row in re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \| .* \|$", text, re.MULTILINE)
    }
    for rule in (one for one in fields(Defence) if one.name in rows):
        told = tomllib.loads("\n".join(f"{name} = {rows[rule.name][at].strip('`')}" for at, name in enumerate(PRESETS)))
        meant = {name: getattr(preset, rule.name) for name, preset in PRESETS.items()}
        assert told == {name: False if value is None else value for name, value in meant.items()}, rule.name


def test_the_job_and_its_recipe_have_it(tmp_path: Path) -> None:
    job = market_job(write_market(tmp_path, more='\n[defence]\nkind = "strict"\nalike = false\n'))
    wanted = replace(Defence.named("strict"), alike=None)
    assert job.defence == job.arbiter().rules.defence == wanted == job.rules()["defence"]
    assert from_recipe(json.loads(json.dumps(job.recipe))).defence == wanted


def test_a_recipe_from_before_there_were_defences_has_none(tmp_path: Path) -> None:
    recipe = json.loads(json.dumps(market_job(write_market(tmp_path)).recipe))
    del recipe["market"]["defence"]
    job = from_recipe(recipe)
    assert job.defence.off and "defence" not in job.arbiter().terms().rules


def test_a_federated_market_takes_the_same_section(tmp_path: Path) -> None:
    path = write_market(tmp_path, more='\n[federation]\nfolder = "f"\n\n[defence]\nkind = "standard"\n')
    path.write_text(path.read_text().replace("[engine]", '[engine]\nkind = "federated"'))
    job = market_job(path)
    assert job.federation is not None and job.defence.name == "standard"


def test_a_federated_market_asks_over_32_rows_or_more_and_a_local_one_over_any(tmp_path: Path) -> None:
    path = write_market(tmp_path, more='\n[federation]\nfolder = "f"\n')
    path.write_text(path.read_text() + '\n[oracle]\nkind = "stochastic-gradient"\nbatch_size = 1\n')
    assert market_job(path).federation is None
    path.write_text(path.read_text().replace("[engine]", '[engine]\nkind = "federated"'))
    with pytest.raises(BazaarError, match=r"an ask goes over 1 of a provider's rows.* raise oracle.batch_size to 32"):
        market_job(path)
