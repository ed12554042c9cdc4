"""A market.toml with anything in it: it is a market, or one sentence says why not, and no memory is taken for it."""

from __future__ import annotations

import math
import resource
import tomllib
from copy import deepcopy
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from cli_markets import bazaar, edit, write_market
from hypothesis import given, settings
from hypothesis import strategies as st

from databazaar.config.limits import refuse_large_model, refuse_long_asks
from databazaar.config.market_file import parse_all, parse_market
from databazaar.config.template import template
from databazaar.errors import BazaarError
from databazaar.models import ModelForm
from databazaar.settings import plain

VALID: dict[str, Any] = {
    **tomllib.loads(template()),
    "consumer": {"name": "bank", "train": 0.5},
    "defence": {
        "kind": "strict",
        "alike": False,
    },
    "federation": {"folder": "federation", "deadline": 30.0, "wait": 60.0},
    "ledger": {"url": "postgresql+psycopg://host/name"},
    "stops": [{"kind": "no-progress"}, {"kind": "target-utility", "utility": 0.9}],
}


def deep(depth: int) -> list[Any]:
    nested: list[Any] = []
    for _ in range(depth):
        nested = [nested]
    return nested


NUMBERS = [0, 1, -1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, 10**30, 2**20000, -(2**20000), 10**9, 10**12]
FLOATS = [0.0, -0.0, 0.5, 1e-320, 1e300, math.nan, math.inf, -math.inf]
WORDS = [
    "",
    " ",
    ".",
    "..",
    "../../x",
    "a" * 300,
    "a" * 5000,
    "\x00",
    "\x1b[2J",
    "\u202e",
    "\ud800",
    "[/red]",
    "١٢",
    "nan",
]
WORDS += ["1e9", "9" * 24, "9" * 5000, "0.123456789", "-1", "postgresql://h:x/n", "postgresql://h:99999/n", "sqlite://"]
ODD = st.one_of(
    st.sampled_from(NUMBERS),
    st.sampled_from(FLOATS),
    st.sampled_from(WORDS),
    st.sampled_from(
        [True, None, [], {}, [[]], deep(300), deep(900), date(2024, 1, 1), {"kind": "x"}, {"kind": []}, [0] * 500]
    ),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
)


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where a value stands: of every section, list and setting."""
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [found for key, value in inner for found in ((*path, key), *places(value, (*path, key)))]


PLACES = places(VALID)


def mutated(place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed = deepcopy(VALID)
    node = changed
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = value
    return changed


@settings(max_examples=2000)
@given(st.sampled_from(PLACES), ODD, st.sampled_from(["keep", "unknown"]))
def test_a_market_or_one_sentence(place: tuple[Any, ...], value: Any, more: str) -> None:
    given_ = mutated(place, value)
    if more == "unknown":
        given_["unknown"] = value
    try:
        market = parse_market(given_)
    except BazaarError as error:
        assert str(error).startswith("market.toml: ") and len(str(error)) < 20_000
        faults = parse_all(given_)[1]
        assert faults and all(fault.startswith("market.toml: ") for fault in faults)
        return
    market.built("sampler"), market.built("oracle"), market.built("stops"), market.defence.chosen
    assert 0 <= market.budget_minor < 2**63 and market.per_round <= 100_000
    assert parse_market(plain(market)).budget_minor == market.budget_minor


@pytest.mark.parametrize(
    ("section", "line", "told"),
    [
        ("[ledger]", 'url = "postgresql://user:secret@host:port/name"', "its port is no number"),
        ("[ledger]", 'url = "sqlite:///elsewhere.sqlite"', "needs no setting"),
        ("[federation]", 'folder = "f"\ndeadline = 1e12', "must be above 0 and at most 604800"),
        ("[market]", "per_round = 1000000000", "between 1 and 100000"),
        ("[model]", 'kind = "mlp"\nhidden = [1000000000]', "between 1 and 10000000"),
        ("[model]", 'kind = "mlp"\nhidden = [10000000, 10000000]', "make the model smaller"),
        ("[oracle]", "batch_size = 1000000\nsteps = 1000000\nepochs = 1000000", "lower oracle.steps"),
        ("[market]", "budget = 9223372036854775808", "more than a ledger holds"),
        ("[market]", f"budget = 0x{'f' * 4000}", "more digits than any ledger holds"),
        ("[market]", f"seed = 0x{'f' * 4000}", "market.seed has more digits"),
        ("[data]", f'holdout = "{"a" * 3000}.csv"', "longer than a file's name can be"),
    ],
)
def test_each_is_one_sentence(section: str, line: str, told: str, tmp_path: Path) -> None:
    """Nothing of the size that is asked for is ever built."""
    path = write_market(tmp_path)
    text = path.read_text()
    names = {part.partition(" = ")[0] for part in line.splitlines()}
    head, found, rest = text.partition(section)
    if found:
        body, mark, after = rest.partition("\n\n[")
        kept = [old for old in body.splitlines() if old.partition(" = ")[0] not in names]
        text = "\n".join([f"{head}{section}", line, *kept]) + mark + after
    else:
        text += f"\n{section}\n{line}\n"
    path.write_text(text)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    done = bazaar("run", "market.toml", cwd=tmp_path)
    assert told in done.complaint and "secret" not in done.err
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000, "in KiB, with all that is imported"


def test_amounts_at_the_edge_can_be_quoted_and_checked(tmp_path: Path) -> None:
    path = write_market(tmp_path, budget='"92233720368547758.07"')
    edit(path, 'price = "1.25"', 'price = "92233720368547758.07"')
    for command in ("quote", "check"):
        done = bazaar(command, "market.toml", cwd=tmp_path)
        assert done.code == 0 and "Traceback" not in done.err, done


def test_a_model_is_measured_before_it_is_made() -> None:
    form = ModelForm("mlp", (1000,), 10, (1000,))
    refuse_large_model(form, asked=10, room=2**30)
    with pytest.raises(BazaarError, match="1000 → 1000 → 10 has 1,011,010 parameters"):
        refuse_large_model(form, asked=1000, room=2**30)
    refuse_long_asks({"north": 10**8})
    with pytest.raises(BazaarError, match="provider 'south' goes through 100,000,001 rows"):
        refuse_long_asks({"north": 1, "south": 10**8 + 1})
