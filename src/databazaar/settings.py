"""Settings, declared once: in the dataclass that has them. They are checked, listed and read from files from there.

A rule, or a section of market.toml, is a dataclass. `setting` says of a field what it means and which values it takes;
its type is the field's annotation. The rule checks itself (`check_settings`), a file is read by the same declarations
(`read`), and the template, the reference page and forms list them (`declared`).

    @dataclass(frozen=True)
    class Greedy:
        share: float = setting(0.1, "the share of draws that explore", at_least=0, at_most=1)
        kind: ClassVar[str] = "greedy"

        def __post_init__(self) -> None:
            check_settings(self, "sampler greedy")
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from databazaar.errors import BazaarError

_KEY = "databazaar"
REQUIRED: Any = object()
"""The default of a setting that has none."""

Section = TypeVar("Section")
Reader = Callable[[Any, str, "Faults"], Any]
"""Reads a value at a place, and notes its faults."""


class Fault(str):
    """A sentence about what is wrong, and the place of the setting that it is about."""

    place: str

    def __new__(cls, sentence: str, place: str = "") -> Fault:
        made = super().__new__(cls, sentence)
        made.place = place or getattr(sentence, "place", "")
        return made


class Faults(list[Fault]):
    """What is wrong with settings, one sentence each."""

    def add(self, sentence: str, place: str = "") -> None:
        self.append(Fault(sentence, place))


@dataclass(frozen=True)
class Setting:
    """One declaration. Bounds are those of the number, or of each number of a list; `entries` are a list's fewest and
    most. `check` may say what is wrong with a value before its type is looked at. `reader` reads a value by itself.
    `example` is a value as a file shows it, and `without` what holds where there is none. What is `secret` is not
    repeated; what is not `in_files` is set in Python alone, or follows from the market."""

    name: str = ""
    type: Any = Any
    default: Any = REQUIRED
    help: str = ""
    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None
    entries: tuple[int, int] | None = None
    check: Callable[[Any], str | None] | None = None
    reader: Reader | None = None
    example: Any = None
    without: str = ""
    secret: bool = False
    in_files: bool = True

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    @property
    def choices(self) -> tuple[Any, ...]:
        """The values of a type that has only a few."""
        return next((get_args(part) for part in _parts(self.type) if get_origin(part) is Literal), ())

    @property
    def is_list(self) -> bool:
        return any(get_origin(part) is tuple for part in _parts(self.type))

    @property
    def bounds(self) -> str:
        """
        >>> Setting(at_least=0, at_most=1).bounds, Setting(at_least=0, below=1).bounds, Setting(above=0).bounds
        ('between 0 and 1', 'at least 0 and below 1', 'above 0')
        """
        if self.at_least is not None and self.at_most is not None:
            return f"between {_figure(self.at_least)} and {_figure(self.at_most)}"
        names = (("at least", self.at_least), ("above", self.above), ("at most", self.at_most), ("below", self.below))
        return " and ".join(f"{word} {_figure(value)}" for word, value in names if value is not None)

    def take(self, value: Any, place: str, faults: Faults) -> Any:
        """The value as the field has it: lists as tuples, whole numbers as floats. What is wrong is noted."""
        if self.reader is not None:
            return self.reader(value, place, faults)
        if self.check is not None and value is not None and (fault := self.check(value)):
            self.blame(value, place, fault, faults)
            return None
        return self._typed(self.type, value, place, faults)

    def blame(self, value: Any, place: str, problem: str, faults: Faults) -> None:
        shown = "" if self.secret or isinstance(value, Mapping) else f" = {short(value)}"
        faults.add(f"{place}{shown} {problem}: change it{f' ({self.help})' if self.help else ''}", place)

    def _typed(self, kind: Any, value: Any, place: str, faults: Faults) -> Any:
        if kind is Any or (value is None and NoneType in _parts(kind)):
            return value
        parts = [part for part in _parts(kind) if part is not NoneType]
        if callable(value) and any(get_origin(part) is Callable for part in parts):
            return value
        tried = [(Faults(), part) for part in parts if get_origin(part) is not Callable]
        for found, part in tried:
            taken = self._one(part, value, place, found)
            if not found:
                return taken
        faults.extend(tried[-1][0])
        return None

    def _one(self, kind: Any, value: Any, place: str, faults: Faults) -> Any:
        origin = get_origin(kind)
        if origin is tuple:
            return self._list(get_args(kind), value, place, faults)
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            return read(kind, value, place, faults)
        if origin is Literal:
            fault = None if isinstance(value, str | int) and value in get_args(kind) else one_of(get_args(kind))
        elif kind in _SCALARS:
            accepts, fault_of_type = _SCALARS[kind]
            fault = fault_of_type if not accepts(value) else self._out_of_bounds(kind, value)
        else:
            fault = _not_plain(value)
        if fault is not None:
            return self.blame(value, place, fault, faults)
        return kind(value) if kind in (float, Path) else value

    def _list(self, kinds: tuple[Any, ...], value: Any, place: str, faults: Faults) -> Any:
        if not isinstance(value, list | tuple):
            return self.blame(value, place, "must be a list", faults)
        fewest, most = self.entries or (0, None)
        if kinds[-1] is not Ellipsis:
            fewest = most = len(kinds)
        if not fewest <= len(value) <= (len(value) if most is None else most):
            wanted = f"{fewest}" if fewest == most else f"{fewest} to {most:,}" if most else f"{fewest} or more"
            return self.blame(value, place, f"has {len(value):,} entries, and needs {wanted}", faults)
        inner = kinds if kinds[-1] is not Ellipsis else kinds[:1] * len(value)
        plain = dataclasses.replace(self, entries=None)
        pairs = enumerate(zip(inner, value, strict=True))
        return tuple(plain._typed(kind, one, f"{place}[{at}]", faults) for at, (kind, one) in pairs)

    def _out_of_bounds(self, kind: Any, value: Any) -> str | None:
        if kind not in (int, float):
            return None
        if kind is float and not _finite(value):
            return "must be a finite number"
        inside = (
            (self.above is None or value > self.above)
            and (self.at_least is None or value >= self.at_least)
            and (self.below is None or value < self.below)
            and (self.at_most is None or value <= self.at_most)
        )
        return None if inside else f"must be {self.bounds}"


def setting(default: Any = REQUIRED, help: str = "", **more: Any) -> Any:
    """A field of a dataclass, declared: see `Setting` for what there is to say."""
    said = Setting(default=default, help=help, **more)
    return dataclasses.field(default=MISSING if default is REQUIRED else default, metadata={_KEY: said})


def declared(section: type[Any]) -> tuple[Setting, ...]:
    """The settings of a class, in order. A field that says nothing of itself takes any plain value of its type."""
    hashable: Any = section
    return _declared(hashable)


@cache
def _declared(section: Any) -> tuple[Setting, ...]:
    try:
        hints = get_type_hints(section)
    except (NameError, TypeError):  # of somebody else's class, whose annotations name what is not there
        hints = {}
    found = []
    for field in dataclasses.fields(section) if dataclasses.is_dataclass(section) else ():
        if field.init:
            default = field.default if field.default_factory is MISSING else field.default_factory()
            said = field.metadata.get(_KEY, Setting(default=REQUIRED if default is MISSING else default))
            found.append(dataclasses.replace(said, name=field.name, type=hints.get(field.name, Any)))
    return tuple(found)


def check_settings(rule: Any, where: str) -> None:
    """Refuses settings that a rule's own declarations exclude. A list, as JSON has it, becomes a tuple."""
    for one in declared(type(rule)):
        faults, value = Faults(), getattr(rule, one.name)
        taken = one.take(value, one.name, faults)
        for fault in faults:
            raise BazaarError(f"{where}: {fault}")
        if isinstance(taken, tuple):
            object.__setattr__(rule, one.name, taken)


def read(section: type[Section], given: Any, place: str, faults: Faults) -> Section | None:
    """A section as a file has it; None where something is wrong, which is noted."""
    if not isinstance(given, Mapping):
        faults.add(f"{place} = {short(given)} must be a section: change it", place)
        return None
    found, values = Faults(), {}
    known = declared(section)
    names = [one.name for one in known]
    for name in given:
        if name not in names:
            found.add(unknown_setting(inside(place, name), name, names), inside(place, name))
    for one in known:
        where = inside(place, one.name)
        if one.name in given:
            values[one.name] = one.take(given[one.name], where, found)
        elif one.required:
            found.add(missing(where, one), where)
    if not found:
        try:
            return section(**values)
        except BazaarError as fault:
            found.add(str(fault), place)
    faults.extend(found)
    return None


def plain(value: Any) -> Any:
    """Settings as JSON has them; `read` takes them back."""
    if hasattr(value, "plain"):
        return value.plain()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in declared(type(value))}
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    return value.as_posix() if isinstance(value, Path) else value


def inside(place: str, name: object) -> str:
    return f"{place}.{name}" if place else str(name)


def unknown_setting(place: str, name: object, known: Collection[str]) -> str:
    close = difflib.get_close_matches(str(name), known, n=1)
    remedy = f"did you mean `{close[0]}`?" if close else f"use {', '.join(known)}, or remove it"
    return f"{place} is not a setting: {remedy}"


def missing(place: str, one: Setting) -> str:
    section, _, name = place.rpartition(".")
    remedy = f"add `{name}` to {section}" if section else f"add a [{name}] section"
    return f"{place} is missing{f' ({one.help})' if one.help and section else ''}: {remedy}"


def one_of(choices: Iterable[object]) -> str:
    return f"must be one of {', '.join(map(repr, choices))}"


def short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _parts(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _figure(bound: float) -> str:
    return f"{bound}" if isinstance(bound, int) else f"{bound:g}"


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _not_plain(value: Any) -> str | None:
    """What a run's folder could not keep as JSON: dates, and numbers that are not finite."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return "must be text, a finite number, true or false, or a list or table of those"
    return None


_SCALARS: dict[Any, tuple[Callable[[Any], bool], str]] = {
    bool: (lambda value: isinstance(value, bool), "must be true or false"),
    int: (lambda value: isinstance(value, int) and not isinstance(value, bool), "must be a whole number"),
    float: (lambda value: isinstance(value, int | float) and not isinstance(value, bool), "must be a number"),
    str: (lambda value: isinstance(value, str), "must be text in quotes"),
    Path: (lambda value: isinstance(value, str | Path), "must be a path in quotes"),
}
