"""The registry of rules: who is found by which name, and the sentence where nobody is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from databazaar import OSMD, Arbiter, BazaarError, PricePerAccess, TargetUtility, Uniform
from databazaar import registry as registry_module
from databazaar.registry import MissingRuleError, Registry
from small_markets import MakeMarket

SOURCE = """
from dataclasses import dataclass
from typing import ClassVar

@dataclass(frozen=True)
class {name}:
    size: int = 1
    kind: ClassVar[str] = "{kind}"
"""
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package for this test: a module, and metadata with its entry points under databazaar.toys."""
    monkeypatch.syspath_prepend(tmp_path)

    def put(package: str, module: str, source: str, **points: str) -> None:
        (tmp_path / f"{module}.py").write_text(source)
        metadata = tmp_path / f"{package}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"{kind} = {place}" for kind, place in points.items()]
        (metadata / "entry_points.txt").write_text("\n".join(["[databazaar.toys]", *lines, ""]))
        (metadata / "RECORD").write_text(f"{module}.py,,\n")
        forget()

    def forget() -> None:
        invalidate_caches()
        registry_module._installed.cache_clear()
        registry_module._distributions.cache_clear()

    yield put
    monkeypatch.undo()
    forget()


@pytest.fixture
def toys() -> Registry:
    return Registry("toy", {"roster": "databazaar.roster:Roster"})


def test_a_rule_of_an_installed_package_is_found_built_and_described(toys: Registry, install: Install) -> None:
    install("balls-and-more", "gap_balls", SOURCE.format(name="Ball", kind="ball"), ball="gap_balls:Ball")
    ball = toys.build({"kind": "ball", "size": 3})
    settings = toys.settings_of(ball)
    assert settings == {"kind": "ball", "size": 3, "from": "balls-and-more"}
    assert toys.build(settings) == ball and toys.kinds() == ["roster", "ball"]
    with pytest.raises(BazaarError, match="toy 'ball': got an unexpected keyword argument 'colour': correct its se"):
        toys.build({**settings, "colour": "red"})


def test_a_rule_without_an_entry_point_comes_from_the_package_that_has_its_module(
    toys: Registry, install: Install
) -> None:
    install("hoops", "gap_hoops", SOURCE.format(name="Hoop", kind="hoop"))
    rule = import_module("gap_hoops").Hoop()
    toys.adopt(rule)
    assert toys.settings_of(rule)["from"] == "hoops"


def test_what_is_defined_here_names_its_module_for_whoever_reads_the_ledger(toys: Registry) -> None:
    @dataclass(frozen=True)
    class Kite:
        kind: ClassVar[str] = "kite"

    toys.adopt(Kite())
    settings = toys.settings_of(Kite())
    assert settings == {"kind": "kite", "from": f"module {__name__}"}
    elsewhere = Registry("toy", {"roster": "databazaar.roster:Roster"})
    with pytest.raises(MissingRuleError, match=f"toy 'kite' was defined in module {__name__}, which no installed p"):
        elsewhere.build(settings)
    with pytest.raises(
        MissingRuleError, match=r"toy 'kite' comes from the package kites, .* `pip install kites`, then"
    ):
        elsewhere.build({"kind": "kite", "from": "kites"})


@pytest.mark.parametrize(
    ("source", "place", "words"),
    [
        (SOURCE.format(name="Ball", kind="cube"), "gap_wrong:Ball", "calls itself 'cube': give the entry point and"),
        ("Ball = 3", "gap_wrong:Ball", "calls itself None: give the entry point and the class one name"),
        ("", "gap_wrong:Ball", r"cannot be loaded \(AttributeError: .*mend or reinstall that package"),
        ("1 / 0", "gap_wrong:Ball", r"cannot be loaded \(ZeroDivisionError: division by zero\): mend or reinstall"),
        ("", "gap_nowhere:Ball", r"cannot be loaded \(ModuleNotFoundError: .*mend or reinstall that package"),
    ],
    ids=["other kind", "no kind", "no class", "raises", "no module"],
)
def test_a_broken_package_is_named(
    toys: Registry, install: Install, monkeypatch: pytest.MonkeyPatch, source: str, place: str, words: str
) -> None:
    monkeypatch.delitem(sys.modules, "gap_wrong", raising=False)
    install("wrong-toys", "gap_wrong", source, ball=place)
    for settings in ({"kind": "ball"}, {"kind": "ball", "from": "wrong-toys"}):
        with pytest.raises(MissingRuleError, match=f"toy 'ball' of the package wrong-toys {words}") as missing:
            toys.build(settings)
        assert missing.value.package == "wrong-toys"


def test_a_kind_that_two_packages_declare_is_refused_until_one_is_gone(toys: Registry, install: Install) -> None:
    install("acme-toys", "acme_toys", SOURCE.format(name="Ball", kind="ball"), ball="acme_toys:Ball")
    install("zeta-toys", "zeta_toys", SOURCE.format(name="Globe", kind="ball"), ball="zeta_toys:Globe")
    assert toys.kinds() == ["roster", "ball"]
    for ask in (lambda: toys.find("ball"), lambda: toys.build({"kind": "ball", "from": "acme-toys"})):
        with pytest.raises(MissingRuleError, match="by the packages acme-toys and zeta-toys: uninstall all but"):
            ask()
    rule = import_module("zeta_toys").Globe(3)
    toys.adopt(rule)  # whoever brings the rule itself has chosen
    assert toys.settings_of(rule) == {"kind": "ball", "size": 3, "from": "zeta-toys"}


def test_names_are_suggested_and_taken_names_refused(toys: Registry) -> None:
    with pytest.raises(MissingRuleError, match=r"toy kind 'rooster' is unknown: did you mean 'roster'\?"):
        toys.find("rooster")

    @dataclass(frozen=True)
    class Impostor:
        kind: ClassVar[str] = "roster"

    with pytest.raises(BazaarError, match=r"Impostor calls itself 'roster', which is the name of databazaar\.roster\."):
        toys.adopt(Impostor())
    with pytest.raises(BazaarError, match="has no settings that a ledger could hold: make it a frozen dataclass"):
        toys.settings_of(object())


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"sampler": "osmd"}, "sampler = 'osmd' is not a sampler: give an instance of one"),
        ({"sampler": OSMD}, r"sampler = OSMD is a class: give an instance, OSMD\(…\)"),
        ({"payment": 3}, "payment = 3 is not a payment"),
        ({"stops": TargetUtility(0.5)}, r"must be a list: write stops=\[…\]"),
        ({"stops": ["target-utility"]}, "stop = 'target-utility' is not a stop"),
    ],
)
def test_what_is_no_rule_is_refused_in_one_sentence(
    make_vector_market: MakeMarket, rules: dict[str, Any], words: str
) -> None:
    consumer, providers = make_vector_market()
    with pytest.raises(BazaarError, match=words):
        Arbiter(consumer, providers, engine="loop", **rules)


@dataclass(frozen=True)
class Tupled:
    """A payment whose settings a ledger cannot hold: JSON knows no tuples."""

    shares: tuple[int, ...] = (1, 2)
    kind: ClassVar[str] = "test-tupled"
    quote, settle = PricePerAccess.quote, PricePerAccess.settle


@pytest.mark.parametrize("rules", [{"payment": Tupled()}])
def test_settings_that_a_ledger_cannot_hold_are_refused_before_anything_is_written(
    make_vector_market: MakeMarket, rules: dict[str, Any], tmp_path: Path
) -> None:
    consumer, providers = make_vector_market()
    with pytest.raises(BazaarError, match="does not come back whole from a ledger"):
        Arbiter(consumer, providers, engine="loop", **rules).run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_cell_of_a_notebook_may_be_run_twice(make_vector_market: MakeMarket) -> None:
    def cell() -> Any:
        @dataclass(frozen=True)
        class Again(Tupled):
            shares: int = 1  # type: ignore[assignment]
            kind: ClassVar[str] = "test-again"

        return Again()

    consumer, providers = make_vector_market()
    for _ in range(2):
        assert Arbiter(consumer, providers, engine="loop", payment=cell()).run().spent == 24


def test_a_sampler_that_draws_too_many_or_nobody_is_refused(make_vector_market: MakeMarket) -> None:
    for draws in ([], [0, 1, 2, 3], [9]):

        @dataclass(frozen=True)
        class Wild(Uniform):
            kind: ClassVar[str] = "test-wild"

            def draw(self, *_: Any, wanted: Any = tuple(draws)) -> Any:
                return np.array(wanted, dtype=np.int64)

        consumer, providers = make_vector_market()
        with pytest.raises(BazaarError, match="it must draw between 1 and 3 of 4 providers"):
            Arbiter(consumer, providers, Wild(), engine="loop").run()


def test_prices_near_the_largest_amount_are_added_up_right(make_vector_market: MakeMarket) -> None:
    consumer, providers = make_vector_market(
        (0.0, 0.1), budget=2**62 + 2**61 + 5, per_round=2, prices=[2**62 + 1, 2**61]
    )
    for seed in range(8):
        report = Arbiter(consumer, providers, Uniform(), engine="loop", seed=seed).run()
        assert report.refunded < 2**61 and report.spent + report.refunded == 2**62 + 2**61 + 5
    with pytest.raises(BazaarError, match="more than a ledger holds"):
        make_vector_market((0.0,), prices=[2**63])
