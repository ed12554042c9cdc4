"""The rules of the market in market.toml: ours, those of installed packages, and the job that gets them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from databazaar import Defence, Mean, PricePerAccess, registry
from databazaar.config.jobs import from_recipe, market_job
from databazaar.config.market_file import parse_market
from databazaar.errors import BazaarError
from databazaar.learners import Averaging, InRun
from databazaar.samplers import SAMPLERS
from databazaar.settings import plain
from databazaar.stops import NoProgress, TargetUtility

MARKET: dict[str, Any] = {
    "market": {"budget": 100},
    "data": {"holdout": "holdout.csv", "target": "y"},
    "providers": [{"id": "north", "file": "north.csv"}, {"id": "south", "file": "south.csv"}],
}
PACKAGE = """
from dataclasses import dataclass
from typing import ClassVar

@dataclass(frozen=True)
class Greedy:
    warm_up: int = 3
    weights: list | None = None
    kind: ClassVar[str] = "acme-greedy"

    def __post_init__(self):
        if self.warm_up < 0:
            raise ValueError("warm_up must be\\nzero or more")

@dataclass(frozen=True)
class Median:
    kind: ClassVar[str] = "acme-median"

@dataclass(frozen=True)
class Bonus:
    share: float
    kind: ClassVar[str] = "acme-bonus"

@dataclass(frozen=True)
class Never:
    kind: ClassVar[str] = "acme-never"
"""
ENTRY_POINTS = """
[databazaar.samplers]
acme-greedy = acme_rules:Greedy
acme-absent = acme_absent:Absent
[databazaar.aggregators]
acme-median = acme_rules:Median
[databazaar.payments]
acme-bonus = acme_rules:Bonus
[databazaar.stops]
acme-never = acme_rules:Never
"""
ACME: dict[str, Any] = {
    "sampler": {"kind": "acme-greedy", "warm_up": 5, "weights": [1, 0.5]},
    "aggregator": {"kind": "acme-median"},
    "payment": {"kind": "acme-bonus", "share": 0.5},
    "stops": [{"kind": "acme-never"}, {"kind": "target-utility", "utility": 0.9}],
}


def install(folder: Path) -> None:
    (folder / "acme_rules.py").write_text(PACKAGE)
    metadata = folder / "acme_rules-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-rules\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package outside ours with one rule of each sort, installed."""
    (tmp_path / "site").mkdir()
    install(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "acme_rules", raising=False)
    monkeypatch.setattr(SAMPLERS, "_own", {})  # what tests before this one have made known to this process
    registry._installed.cache_clear()
    yield
    registry._installed.cache_clear()


def refusal(**sections: Any) -> str:
    with pytest.raises(BazaarError) as caught:
        parse_market({**MARKET, **sections}, "shop.toml")
    return str(caught.value)


def test_rules_of_ours_survive_json() -> None:
    stops = [
        {"kind": "no-progress"},
        {"kind": "target-utility", "utility": 1},
    ]
    market = parse_market({**MARKET, "aggregator": {}, "payment": {}, "stops": stops})
    assert plain(market.stops) == [
        {"kind": "no-progress"},
        {"kind": "target-utility", "utility": 1.0},
    ]
    assert parse_market(json.loads(json.dumps(plain(market)))) == market


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"aggregator": {"kind": "mode"}}, ["aggregator.kind = 'mode' must be one of 'centred-clipping',", "install"]),
        ({"aggregator": {"trim": 3}}, ["aggregator.trim is not a setting", "use kind, or remove it"]),
        ({"payment": {"kind": "gain"}}, ["payment.kind = 'gain' must be one of 'price-per-access'", "install"]),
        ({"engine": {"kind": "gpu"}}, ["engine.kind = 'gpu' must be one of 'loop', 'vectorized'", "change it"]),
        ({"payment": "free"}, ["payment = 'free' must be a section", "change it"]),
        ({"stops": {"kind": "no-progress"}}, ["stops must be a list", "in double brackets"]),
        ({"stops": [3]}, ["stops[0] = 3 must be a section", "change it"]),
        ({"stops": [{"utility": 0.9}]}, ["stops[0].kind is missing", "add `kind` to stops[0]"]),
        ({"stops": [{"kind": "target-utility"}]}, ["stops[0].utility is missing", "add `utility` to stops[0]"]),
        ({"stops": [{"kind": "no-progress", "rounds": 3}]}, ["stops[0].rounds is set from Python alone", "remove it"]),
        ({"stops": [{"kind": "no-progress", "errors": 2}]}, ["stops[0].errors is set from Python alone", "remove it"]),
        (
            {"stops": [{"kind": "target-utility", "utility": float("nan")}]},
            ["stops[0].utility = nan must be a finite number", "change it"],
        ),
        (
            {"stops": [{"kind": "no-progress"}, {"kind": "no-progress", "utility": 0.9}]},
            ['stops[1].utility is for kind = "target-utility" and stops[1].kind = "no-progress"', "remove utility"],
        ),
        ({"stops": [{"kind": "target-utility", "utlity": 3}]}, ["stops[0].utlity is not", "did you mean `utility`?"]),
        ({"stops": [{"kind": "budget"}]}, ["stops[0].kind = 'budget' is a stop of every run: remove it"]),
        ({"stops": [{"kind": "patience", "rounds": 3}]}, ["'patience' is a stop of every run: remove it"]),
        (
            {"stops": [{"kind": "never"}]},
            ["stops[0].kind = 'never' must be one of 'no-progress', 'target-utility': change it"],
        ),
    ],
)
def test_a_mistake_in_a_rule_gets_one_sentence(sections: dict[str, Any], words: list[str]) -> None:
    text = refusal(**sections)
    assert text.startswith("shop.toml: ") and "\n" not in text
    for word in words:
        assert word in text


@pytest.mark.usefixtures("acme")
def test_rules_of_an_installed_package_are_taken_with_their_settings() -> None:
    market = parse_market({**MARKET, **ACME})
    assert plain(market.sampler) == ACME["sampler"]
    assert parse_market(json.loads(json.dumps(plain(market)))) == market
    other = {**ACME["sampler"], "weights": [1, 0.25]}
    assert parse_market({**MARKET, **ACME, "sampler": other}) != market


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize(
    ("sections", "words"),
    [
        (
            {"sampler": {"kind": "acme-greedy", "warm": 5}},
            ["sampler.warm is not a setting: did you mean `warm_up`?"],
        ),
        (
            {"sampler": {"kind": "acme-greedy", "warm_up": -1}},
            ["sampler: 'acme-greedy': warm_up must be zero or more:"],
        ),
        (
            {"sampler": {"kind": "acme-greedy", "warm_up": date(2030, 1, 1)}},
            ["sampler.warm_up = datetime.date(2030, 1, 1) must be a whole number", "change it"],
        ),
        (
            {"sampler": {"kind": "acme-greedy", "weights": [1.0, float("inf")]}},
            ["sampler.weights = [1.0, inf] must be text, a finite number", "change it"],
        ),
        (
            {"sampler": {"kind": "acme-gredy"}},
            ["must be one of 'adaptive', 'osmd', 'uniform', 'acme-absent', 'acme-greedy'"],
        ),
        (
            {"sampler": {"kind": "acme-absent"}},
            ["sampler: 'acme-absent' of the package acme-rules cannot be loaded", "mend or reinstall"],
        ),
        ({"payment": {"kind": "acme-bonus"}}, ["payment.share is missing: add `share` to payment"]),
        (
            {"stops": [{"kind": "no-progress"}, {"kind": "acme-never", "x": 1}]},
            ["stops[1].x is not a setting: use kind, or remove it"],
        ),
    ],
)
def test_a_mistake_in_a_packages_rule_gets_one_sentence(sections: dict[str, Any], words: list[str]) -> None:
    text = refusal(**sections)
    assert text.startswith("shop.toml: ") and "\n" not in text
    for word in words:
        assert word in text


@pytest.mark.process
def test_a_package_is_loaded_only_where_its_kind_is_named(tmp_path: Path) -> None:
    install(tmp_path)
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from databazaar.config.market_file import parse_market
market = {MARKET!r}
parse_market(market)
print("acme_rules" in sys.modules)
parse_market({{**market, **{ACME!r}}})
print("acme_rules" in sys.modules, {{"torch", "pandas"}} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["False", "True set()"]


def written(folder: Path, rules: str = "") -> Path:
    for name in ("holdout", "north", "south"):
        (folder / f"{name}.csv").write_text("a,b,y\n1,x,0\n2,y,1\n3,x,0\n")
    providers = "".join(f'[[providers]]\nid = "{name}"\nfile = "{name}.csv"\n' for name in ("north", "south"))
    path = folder / "market.toml"
    path.write_text(f'[market]\nbudget = 20\n{rules}\n[data]\nholdout = "holdout.csv"\ntarget = "y"\n{providers}')
    return path


OURS = {"learner": InRun(), "aggregator": Mean(), "payment": PricePerAccess(), "stops": (), "defence": Defence()}


def test_a_job_without_rules_has_the_papers(tmp_path: Path) -> None:
    assert market_job(written(tmp_path)).rules() == OURS


def test_a_job_builds_the_stops_that_the_file_names(tmp_path: Path) -> None:
    rules = """[[stops]]
kind = "target-utility"
utility = 0.9
[[stops]]
kind = "no-progress"
"""
    job = market_job(written(tmp_path, rules), {"market": {"seed": 7}})
    assert job.rules() == {**OURS, "stops": (TargetUtility(0.9), NoProgress())}
    again = from_recipe(json.loads(json.dumps(job.recipe)))
    assert (again.rules(), again.seed) == (job.rules(), 7)


def test_a_recipe_with_settings_that_are_gone_says_what_to_do(tmp_path: Path) -> None:
    recipe = json.loads(json.dumps(market_job(written(tmp_path)).recipe))
    recipe["market"]["model"]["image"] = None  # every model had it once
    with pytest.raises(BazaarError, match=r"run\.json does not fit this version .*model\.image.* or run anew"):
        from_recipe(recipe)


@pytest.mark.usefixtures("acme")
def test_a_job_builds_the_rules_of_a_package(tmp_path: Path) -> None:
    rules = """[sampler]
kind = "acme-greedy"
warm_up = 5
[aggregator]
kind = "acme-median"
[payment]
kind = "acme-bonus"
share = 0.5
[[stops]]
kind = "acme-never"
"""
    job = market_job(written(tmp_path, rules))
    built = (job.sampler, job.aggregator, job.payment, *job.stops)
    assert [rule.kind for rule in built if rule] == ["acme-greedy", "acme-median", "acme-bonus", "acme-never"]
    assert (job.sampler.warm_up, job.payment.share) == (5, 0.5)  # type: ignore[attr-defined, union-attr]
    assert job.rules() == {
        "learner": Averaging(),
        "aggregator": job.aggregator,
        "payment": job.payment,
        "stops": job.stops,
        "defence": Defence(),
    }
