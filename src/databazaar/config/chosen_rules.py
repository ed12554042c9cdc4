"""What market.toml chooses by its `kind`: a class that the registry knows, ours or a package's, with its settings.

The settings are checked by what the class declares. A package is loaded only where its kind is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from databazaar.errors import BazaarError
from databazaar.learning.asked_rows import rows_asked
from databazaar.registry import MarketFacts, MissingRuleError, NotReadYetError, Registry
from databazaar.settings import (
    Faults,
    Setting,
    declared,
    inside,
    missing,
    one_of,
    plain,
    setting,
    short,
    unknown_setting,
)

if TYPE_CHECKING:
    from databazaar.config.market_file import MarketFile
    from databazaar.payments import Payment


@dataclass(frozen=True)
class Chosen:
    """A kind, and its settings with their defaults. What follows from the market (`from_market`) may be missing."""

    kind: str
    settings: dict[str, Any]
    registry: Registry = field(compare=False, repr=False)

    def plain(self) -> dict[str, Any]:
        return {"kind": self.kind, **{name: plain(value) for name, value in self.settings.items()}}

    def build(self, facts: MarketFacts) -> Any:
        from_market = getattr(self.registry.find(self.kind), "from_market", None)
        if from_market is not None:
            return from_market(self.settings, facts)
        return self.registry.build({"kind": self.kind, **self.settings})

    def fault(self, facts: MarketFacts) -> str | None:
        """Why it cannot be built, with the place left to the caller."""
        try:
            self.build(facts)
        except NotReadYetError:  # it is seen when the tables are
            return None
        except BazaarError as error:
            return str(error).removeprefix(f"{self.registry.noun} ")
        except Exception as error:  # whatever somebody else's package raises
            text = " ".join(str(error).split())[:200]
            return f"{self.kind!r}: {text or type(error).__name__}: correct its settings"
        return None


def chosen(registry: Registry, default: str, help: str) -> Any:
    """A section that chooses one of a registry's kinds, `default` where it names none."""
    first = Chosen(default, _defaults(registry.find(default)), registry)
    return setting(first, help, reader=partial(read_chosen, registry, default=default))


def chosen_list(registry: Registry, refused: Mapping[str, str], help: str) -> Any:
    """Any number of such sections. `refused` are kinds that cannot be chosen, with the reason."""

    def reader(given: Any, place: str, faults: Faults) -> Any:
        if not isinstance(given, list | tuple):
            return Setting(help=help).blame(given, place, "must be a list", faults)
        return tuple(
            read_chosen(registry, one, f"{place}[{at}]", faults, None, refused) for at, one in enumerate(given)
        )

    return setting((), help, reader=reader)


def read_chosen(
    registry: Registry,
    given: Any,
    place: str,
    faults: Faults,
    default: str | None,
    refused: Mapping[str, str] | None = None,
) -> Chosen | None:
    if not isinstance(given, Mapping):
        Setting().blame(given, place, "must be a section", faults)
        return None
    kind, where = given.get("kind", default), f"{place}.kind"
    if kind is None:
        faults.add(missing(where, Setting()), where)
    elif not isinstance(kind, str):
        Setting().blame(kind, where, "must be text in quotes", faults)
    elif kind in (refused or {}):
        faults.add(f"{where} = {kind!r} {(refused or {})[kind]}", where)
    else:
        try:
            settings = _settings(registry, registry.find(kind), given, place, faults)
            return Chosen(kind, settings, registry)
        except MissingRuleError as error:
            known = one_of(one for one in registry.kinds() if one not in (refused or {}))
            if error.package is None:
                faults.add(f"{where} = {short(kind)} {known}: change it, or install the package that brings it", where)
            else:
                faults.add(f"{place}: {str(error).removeprefix(f'{registry.noun} ')}", where)
    return None


def _settings(
    registry: Registry, rule: type[Any], given: Mapping[str, Any], place: str, faults: Faults
) -> dict[str, Any]:
    known = {one.name: one for one in declared(rule) if one.in_files}
    for name in given:
        if name != "kind" and name not in known:
            where = inside(place, name)
            faults.add(_unknown(registry, rule, where, name, ["kind", *known]), where)
    settings = _defaults(rule)
    for name, one in known.items():
        if name in given:
            settings[name] = one.take(given[name], inside(place, name), faults)
        elif one.required and not hasattr(rule, "from_market"):
            faults.add(missing(inside(place, name), one), inside(place, name))
    return settings


def _defaults(rule: type[Any]) -> dict[str, Any]:
    return {one.name: one.default for one in declared(rule) if one.in_files and not one.required}


def _unknown(registry: Registry, rule: type[Any], place: str, name: str, known: list[str]) -> str:
    """A setting that this kind does not have in files, and perhaps another of ours has."""
    if name in {one.name for one in declared(rule)}:
        return f"{place} is set from Python alone, as {rule.__name__}({name}=…): remove it"
    ours = [one for one in registry.kinds() if registry.is_bundled(one)]
    others = [
        one for one in ours if name in {setting.name for setting in declared(registry.find(one)) if setting.in_files}
    ]
    if not others:
        return unknown_setting(place, name, known)
    wanted, section = " or ".join(f'"{one}"' for one in others), place.removesuffix(f".{name}")
    return f'{place} is for kind = {wanted} and {section}.kind = "{rule.kind}": remove {name} or change the kind'


def oracle_settings(market: MarketFile) -> dict[str, Any]:
    """The oracle with every setting that any oracle of ours has, as messages and contracts hold it."""
    from databazaar.oracles import LocalSGD

    return {**plain(LocalSGD()), **market.oracle.plain()}


def asked_of(market: MarketFile, outputs: int = 1) -> dict[str, Any]:
    """What an access asks of a provider, as contracts hold it: the oracle, or rows where the learner trains on them."""
    learner = market.built("learner")
    return oracle_settings(market) if learner.rows is None else rows_asked(learner.rows, learner.passes, outputs)


def payment_of(market: MarketFile, rows: Callable[[], Iterable[int]]) -> Payment:
    """The payment. `rows` counts those of each provider, where that is paid by the rows that an ask learns from."""

    def rows_of_an_access() -> list[int]:
        learner, oracle = market.built("learner"), market.built("oracle")
        if learner.rows is not None:
            return [min(count, learner.rows) for count in rows()]
        return [int((oracle.batches(count, key=0) >= 0).sum()) for count in rows()]

    payment: Payment = market.payment.build(market.facts(rows_of_an_access))
    return payment
