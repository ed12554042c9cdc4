"""A rule is one file: a stranger's with its entry point, one of ours by its place alone. Neither is listed twice."""

from __future__ import annotations

import pkgutil
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module, invalidate_caches
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from databazaar import registry
from databazaar.aggregators import AGGREGATORS
from databazaar.config.jobs import market_job
from databazaar.config.market_file import parse_all, parse_market
from databazaar.config.template import template
from databazaar.payments import PAYMENTS
from databazaar.registry import Registry
from databazaar.runs.folder import RunFolder
from databazaar.samplers import SAMPLERS
from databazaar.stops import STOPS
from databazaar.utilities import UTILITIES

REGISTRIES = (SAMPLERS, AGGREGATORS, PAYMENTS, STOPS, UTILITIES)
SAMPLER = '''"""Asks whoever is first."""
from dataclasses import dataclass
from typing import ClassVar

from databazaar.samplers.uniform import Uniform
from databazaar.settings import setting


@dataclass(frozen=True)
class Greedy(Uniform):
    share: float = setting(0.5, "the share of draws that explore", at_least=0, at_most=1)
    kind: ClassVar[str] = "greedy"
'''
UTILITY = '''"""The share of a class's rows that are found."""
from dataclasses import dataclass
from typing import ClassVar

from databazaar.settings import setting
from databazaar.utilities import Utility


@dataclass(frozen=True)
class Recall(Utility):
    of: int = setting(1, "the class", at_least=0)
    kind: ClassVar[str] = "recall"
    bounded: ClassVar[bool] = True
    tasks: ClassVar[tuple[str, ...]] = ("classification",)
    meaning: ClassVar[str] = "the share of a class's rows that are found"

    def score(self, judged):
        rows = judged.targets == self.of
        return judged.where_finite((judged.answers[:, rows] == self.of).double().mean(1))
'''
RULES = '[sampler]\nkind = "greedy"\nshare = 0.25\n\n[utility]\nkind = "recall"\nof = 0\n'


def forget() -> None:
    invalidate_caches()
    for cached in (registry._installed, registry._modules_of, registry._kinds_in, registry._distributions):
        cached.cache_clear()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder from which Python imports, until the test is over."""
    folder = tmp_path / "site"
    folder.mkdir()
    before = set(sys.modules)
    monkeypatch.syspath_prepend(folder)
    yield folder
    monkeypatch.undo()
    for name in set(sys.modules) - before:
        if Path(str(getattr(sys.modules[name], "__file__", ""))).is_relative_to(tmp_path):
            del sys.modules[name]
    forget()


@pytest.fixture
def plugged_in(site: Path) -> None:
    """Somebody else's package: one file for each rule, and its metadata."""
    (site / "acme_greedy.py").write_text(SAMPLER)
    (site / "acme_recall.py").write_text(UTILITY)
    metadata = site / "acme_two-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-two\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[databazaar.samplers]\ngreedy = acme_greedy:Greedy\n[databazaar.utilities]\nrecall = acme_recall:Recall\n"
    )
    forget()


@pytest.fixture
def built_in(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in the package of samplers and one in that of utilities, as if they were ours."""
    for package, name, source in (("samplers", "greedy", SAMPLER), ("utilities", "recall", UTILITY)):
        (site / package).mkdir()
        (site / package / f"{name}.py").write_text(source)
        module = import_module(f"databazaar.{package}")
        monkeypatch.setattr(module, "__path__", [*module.__path__, str(site / package)])
    forget()


def written(folder: Path) -> Path:
    rows = "".join(f"{n % 7},{'xyz'[n % 3]},{int(n % 7 > 3)}\n" for n in range(30))
    for name in ("holdout", "north", "south"):
        (folder / f"{name}.csv").write_text(f"a,b,y\n{rows}")
    providers = "".join(f'[[providers]]\nid = "{name}"\nfile = "{name}.csv"\n' for name in ("north", "south"))
    text = f'[market]\nbudget = 12\nper_round = 2\n{RULES}[data]\nholdout = "holdout.csv"\ntarget = "y"\n{providers}'
    path = folder / "market.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("how", ["plugged_in", "built_in"])
def test_a_sampler_and_a_utility_of_one_file_each_run_in_a_market(
    how: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(how)
    job = market_job(written(tmp_path))
    assert (job.sampler.kind, job.sampler.share) == ("greedy", 0.25)  # type: ignore[attr-defined]
    report = job.arbiter().run(tmp_path / "run")
    origin = {"from": "acme-two"} if how == "plugged_in" else {}
    assert report.rules["sampler"] == {"kind": "greedy", "replacement": True, "share": 0.25, **origin}
    assert report.rules["utility"] == {"kind": "recall", "of": 0, **origin}
    assert report.spent == 12 and 0 <= report.final_utility <= 1
    assert RunFolder(tmp_path / "run").audit().ok


@pytest.mark.parametrize("how", ["plugged_in", "built_in"])
def test_their_settings_are_checked_by_what_they_declare(how: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(how)
    market: dict[str, Any] = {"market": {"budget": 12}, "data": {"holdout": "h.csv", "target": "y"}}
    market["providers"] = [{"id": "a", "file": "a.csv"}]
    wrong = {"sampler": {"kind": "greedy", "share": 2}, "utility": {"kind": "recall", "off": 1}}
    assert parse_all({**market, **wrong})[1] == [
        "market.toml: utility.off is not a setting: did you mean `of`?",
        "market.toml: sampler.share = 2 must be between 0 and 1: change it (the share of draws that explore)",
    ]


@pytest.mark.usefixtures("built_in")
def test_what_is_ours_is_in_the_template_too() -> None:
    text = template()
    assert 'or "greedy", "osmd", "uniform"' in text and "# of = 1 " in text
    parse_market(tomllib.loads(text))


@pytest.mark.parametrize("rules", REGISTRIES, ids=lambda one: one.noun)
def test_every_rule_of_a_package_is_found_by_its_kind(rules: Registry) -> None:
    """No class with a kind stands in a module where nobody would find it."""
    package = import_module(rules.group)
    modules: list[ModuleType] = [
        import_module(f"{rules.group}.{one.name}") for one in pkgutil.iter_modules(package.__path__)
    ]
    classes = {
        found
        for module in modules
        for found in vars(module).values()
        if isinstance(found, type) and found.__module__ == module.__name__ and isinstance(vars(found).get("kind"), str)
    }
    assert classes and classes == {rules.find(kind) for kind in rules.kinds() if rules.is_bundled(kind)}
