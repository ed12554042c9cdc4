"""One registry for what people exchange: samplers, aggregators, payments, stops, utilities and others, by name.

A rule is a frozen dataclass with a `kind`, its name. It stands under that name in market.toml and in a ledger's terms,
and who reads either can build it again from its settings. Three sources are asked in turn: what this process has
registered, what the library brings, and what installed packages declare as entry points. A rule of the library is a
module of its package, under the rule's kind: databazaar/samplers/greedy.py has the kind "greedy". Another package says
in its pyproject.toml where its rule is:

    [project.entry-points."databazaar.samplers"]
    greedy = "acme_rules:Greedy"
"""

from __future__ import annotations

import difflib
import json
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points, packages_distributions
from typing import Any, TypeVar

from databazaar.errors import BazaarError, UncheckableError

Rule = TypeVar("Rule", bound=type[Any])
MODULE = "module "
"""Stands before the name of a module that no installed package has."""


class MissingRuleError(UncheckableError):
    """A rule that is not to be had here. `package` is what would bring it, where that is known."""

    def __init__(self, sentence: str, package: str | None = None) -> None:
        super().__init__(sentence)
        self.package = package


class NotReadYetError(BazaarError):
    """A rule asked for the market's rows before its tables were read."""


@dataclass(frozen=True)
class MarketFacts:
    """What a rule may know of the market that it is built for. Where a class has a method `from_market(settings,
    facts)`, market.toml's rule is built by it: some settings follow from the market. `count_rows` gives the rows that
    an access to each provider uses; amounts are in minor units."""

    budget: int
    per_round: int
    prices: Sequence[int]
    count_rows: Callable[[], Sequence[int]] | None = None

    @property
    def rows(self) -> tuple[int, ...]:
        if self.count_rows is None:
            raise NotReadYetError("the tables have not been read yet: read them, then build the rule")
        return tuple(self.count_rows())


class Registry:
    """The rules of one sort. `noun` names one of them; `bundled` are ours: a package with one module for each kind, or
    the places of classes, module:class, by kind."""

    def __init__(self, noun: str, bundled: str | Mapping[str, str]) -> None:
        self.noun = noun
        self.group = bundled if isinstance(bundled, str) else f"databazaar.{noun}s"
        self._bundled = bundled
        self._own: dict[str, type[Any]] = {}

    def register(self, rule: Rule) -> Rule:
        """Makes a rule known to this process, as a decorator. Other processes know it only by an entry point."""
        self._own[rule.kind] = rule
        return rule

    def adopt(self, rule: Any) -> None:
        """Makes the class of a rule known to this process, where its name is free or is its own."""
        if isinstance(rule, type):
            raise BazaarError(f"{self.noun} = {rule.__name__} is a class: give an instance, {rule.__name__}(…)")
        if not isinstance(getattr(rule, "kind", None), str):
            raise BazaarError(f"{self.noun} = {rule!r} is not a {self.noun}: give an instance of one, with a `kind`")
        try:
            known = self.find(rule.kind)
        except MissingRuleError:
            self.register(type(rule))
            return
        again = (known.__module__, known.__qualname__) == (type(rule).__module__, type(rule).__qualname__)
        if known is not type(rule) and again:  # a notebook's cell that was run twice
            self.register(type(rule))
        elif known is not type(rule):
            raise BazaarError(
                f"{self.noun} {type(rule).__name__} calls itself {rule.kind!r}, which is the name of "
                f"{known.__module__}.{known.__qualname__}: give it a `kind` of its own"
            )

    def kinds(self) -> list[str]:
        """Every name that is known here: ours first, then others by the alphabet."""
        ours = _kinds_in(self._bundled) if isinstance(self._bundled, str) else tuple(self._bundled)
        return [*ours, *sorted({*self._own, *_installed(self.group)} - set(ours))]

    def __iter__(self) -> Iterator[str]:
        return iter(self.kinds())

    def is_bundled(self, kind: str) -> bool:
        return kind not in self._own and self._find_bundled(kind) is not None

    def _find_bundled(self, kind: str) -> type[Any] | None:
        if isinstance(self._bundled, str):
            return _rule_in(self._bundled, kind)
        if kind not in self._bundled:
            return None
        module, _, name = self._bundled[kind].partition(":")
        found: type[Any] = getattr(import_module(module), name)
        return found

    def find(self, kind: str) -> type[Any]:
        """The class of that name."""
        if kind in self._own:
            return self._own[kind]
        bundled = self._find_bundled(kind)
        if bundled is not None:
            return bundled
        declared = _installed(self.group).get(kind, ())
        if len(declared) > 1:
            packages = " and ".join(_package(entry) for entry in declared)
            raise MissingRuleError(
                f"{self.noun} kind {kind!r} is declared by the packages {packages}: uninstall all but one", packages
            )
        if declared:
            return self._load(declared[0])
        close = difflib.get_close_matches(str(kind), self.kinds(), n=1)
        remedy = f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(self.kinds())}"
        raise MissingRuleError(f"{self.noun} kind {kind!r} is unknown: {remedy}")

    def _load(self, entry: EntryPoint) -> type[Any]:
        package = _package(entry)
        try:
            found: type[Any] = entry.load()
        except Exception as reason:
            text = " ".join(str(reason).split())[:200]
            raise MissingRuleError(
                f"{self.noun} {entry.name!r} of the package {package} cannot be loaded "
                f"({type(reason).__name__}: {text}): mend or reinstall that package",
                package,
            ) from None
        if getattr(found, "kind", None) != entry.name:
            raise MissingRuleError(
                f"{self.noun} {entry.name!r} of the package {package} calls itself {getattr(found, 'kind', None)!r}: "
                "give the entry point and the class one name",
                package,
            )
        return found

    def build(self, settings: Mapping[str, Any]) -> Any:
        """The rule that `settings_of` described, or market.toml. A `from` says which package it came from."""
        given = dict(settings)
        kind, package = given.pop("kind", None), given.pop("from", None)
        try:
            rule = self.find(kind)
        except MissingRuleError as missing:
            if package is None or missing.package is not None:
                raise
            raise MissingRuleError(self._where_it_is(str(kind), str(package)), package) from None
        try:
            return rule(**given)
        except TypeError as reason:
            text = str(reason).removeprefix(f"{rule.__name__}.__init__() ").removeprefix("__init__() ")
            raise BazaarError(f"{self.noun} {kind!r}: {text}: correct its settings") from None

    def _where_it_is(self, kind: str, package: str) -> str:
        if package.startswith(MODULE):
            return (
                f"{self.noun} {kind!r} was defined in {package}, which no installed package has: put it into a package "
                f"with an entry point under {self.group}, or import it and ask from Python"
            )
        return (
            f"{self.noun} {kind!r} comes from the package {package}, which is not installed here: "
            f"`pip install {package}`, then try again"
        )

    def settings_of(self, rule: Any) -> dict[str, Any]:
        """The rule as plain data: its kind, its settings and, where it is not ours, the package that brings it.

        >>> from databazaar.stops import STOPS, TargetUtility
        >>> STOPS.settings_of(TargetUtility(0.9))
        {'kind': 'target-utility', 'utility': 0.9}
        """
        if not is_dataclass(rule) or isinstance(rule, type) or not hasattr(rule, "kind"):
            raise BazaarError(
                f"{self.noun} {type(rule).__name__} has no settings that a ledger could hold: "
                "make it a frozen dataclass with a `kind`"
            )
        package = None if self.is_bundled(rule.kind) else self._origin(type(rule))
        return {"kind": rule.kind, **asdict(rule), **({} if package is None else {"from": package})}

    def refuse_unwritable(self, rule: Any) -> None:
        """Refuses a rule that would not come back whole from the settings that a ledger holds of it."""
        try:
            rebuilt = self.build(json.loads(json.dumps(self.settings_of(rule), allow_nan=False)))
        except (TypeError, ValueError, BazaarError) as reason:
            rebuilt, why = None, f" ({reason})"
        else:
            why = ""
        if rebuilt != rule:
            raise BazaarError(
                f"{self.noun} {rule.kind!r} does not come back whole from a ledger{why}: let its settings be numbers, "
                "text, true or false, or lists and tables of those"
            )

    def _origin(self, rule: type[Any]) -> str:
        """The package that a class comes from: by its entry point, by its module, or else only the module."""
        top = rule.__module__.partition(".")[0]
        for entry in _installed(self.group).get(rule.kind, ()):
            if entry.dist is not None and entry.module.partition(".")[0] == top:
                return entry.dist.name
        packages = _distributions().get(top)
        return packages[0] if packages else f"{MODULE}{rule.__module__}"


ENGINES = Registry(
    "engine",
    {
        "loop": "databazaar.engines.loop:LoopEngine",
        "vectorized": "databazaar.engines.vectorized:VectorizedEngine",
        "ray": "databazaar.engines.ray_engine:RayEngine",
        "federated": "databazaar.federation.engine:FederatedEngine",
    },
)
"""Every engine by its kind. An engine is no rule, and imports torch: so its class is named here, and found when it is
used. `make(task, providers, device, **settings)` makes one."""

HELPERS = ("protocol",)
"""Modules of a package of rules that have none."""


@cache
def _modules_of(package: str) -> frozenset[str]:
    found = pkgutil.iter_modules(import_module(package).__path__)
    return frozenset(module.name for module in found if module.name not in HELPERS)


def _rule_in(package: str, kind: object) -> type[Any] | None:
    """The class of that kind in the module of its name. Only modules that the package has are imported."""
    name = str(kind).replace("-", "_")
    if name not in _modules_of(package):
        return None
    module = import_module(f"{package}.{name}")
    own = (one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__)
    return next((one for one in own if vars(one).get("kind") == kind), None)


@cache
def _kinds_in(package: str) -> tuple[str, ...]:
    kinds = (name.replace("_", "-") for name in sorted(_modules_of(package)))
    return tuple(kind for kind in kinds if _rule_in(package, kind) is not None)


@cache
def _installed(group: str) -> dict[str, list[EntryPoint]]:
    """What packages declare, by kind: each should be declared by one of them."""
    declared: dict[str, list[EntryPoint]] = {}
    for entry in sorted(entry_points(group=group), key=_package):
        declared.setdefault(entry.name, []).append(entry)
    return declared


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value


@cache
def _distributions() -> Mapping[str, list[str]]:
    return packages_distributions()
