"""The commented market.toml that `bazaar init` writes, made from what sections and rules declare."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from databazaar.config.chosen_rules import Chosen
from databazaar.config.defence import DefenceSettings
from databazaar.config.market_file import MarketFile
from databazaar.config.sections import ProviderSettings
from databazaar.config.toml_text import toml_value
from databazaar.defence import Defence
from databazaar.defence.settings import PRESETS
from databazaar.registry import Registry
from databazaar.settings import Setting, declared, plain
from databazaar.stops.protocol import STOPS

HEAD = """\
# A data market. Run it with: bazaar run market.toml
# Paths are relative to this file. What is commented out shows another choice or the default.
"""
EVERY_RUN = ("budget", "patience")
"""The stops that are part of every run."""
PROVIDERS = ("north", "south")
WIDTH = 26


class Line(NamedTuple):
    """A line of the file; one that is not `active` is a comment."""

    text: str
    help: str = ""
    active: bool = True

    def __str__(self) -> str:
        text = self.text if self.active else f"# {self.text}"
        return f"{text:<{WIDTH}} # {self.help}" if self.help else text


def template() -> str:
    """
    >>> print(*template().splitlines()[3:5], sep="\\n")
    [market]                   # what is bought, and the pace
    budget = 1000              # what may be spent in all
    """
    return "\n".join([HEAD, *(block for one in declared(MarketFile) for block in _blocks(one))])


def kinds_of(registry: Registry) -> list[str]:
    """Our own kinds that a file may choose."""
    return [kind for kind in registry.kinds() if registry.is_bundled(kind) and kind not in EVERY_RUN]


def in_files(rule: type[Any]) -> list[Setting]:
    """The settings of a rule that a file may set."""
    return [one for one in declared(rule) if one.in_files]


def summary(rule: type[Any]) -> str:
    """What a rule is, in a line: the first of its module.

    >>> from databazaar.aggregators import Krum
    >>> summary(Krum)
    'the mean of those updates that have others near them'
    """
    text = (sys.modules[rule.__module__].__doc__ or "").strip().splitlines()[0].rstrip(".")
    return text[:1].lower() + text[1:]


def _blocks(section: Setting) -> Iterator[str]:
    """A section as the template has it, or each of a list."""
    if section.name == "providers":
        for number, id in enumerate(PROVIDERS):
            yield _block("[[providers]]", "" if number else section.help, _provider(id, full=not number))
    elif section.name == "stops":
        for number, kind in enumerate(kinds_of(STOPS)):
            rule = STOPS.find(kind)
            lines = [_line("kind", kind, summary(rule)), *map(_shown, in_files(rule))]
            yield _block("[[stops]]", "" if number else section.help, [line._replace(active=False) for line in lines])
    elif isinstance(section.default, Chosen):
        yield _block(f"[{section.name}]", section.help, _chosen(section.default))
    elif isinstance(section.default, DefenceSettings):
        yield _block("[defence]", section.help, _defence())
    else:
        optional = section.default is None
        kinds = (section.type, *getattr(section.type, "__args__", ()))
        lines = [_shown(one) for one in declared(next(kind for kind in kinds if isinstance(kind, type)))]
        yield _block(f"[{section.name}]", section.help, [one._replace(active=one.active > optional) for one in lines])


def _block(head: str, help: str, lines: list[Line]) -> str:
    """A section whose lines are all comments is one itself."""
    return "\n".join(map(str, [Line(head, help, any(line.active for line in lines)), *lines, ""]))


def _chosen(default: Chosen) -> list[Line]:
    """The default kind with its settings, and those of the others as comments."""
    kinds = kinds_of(default.registry)
    lines = [_line("kind", default.kind, f"or {_quoted(kind for kind in kinds if kind != default.kind)}")]
    lines += map(_shown, in_files(default.registry.find(default.kind)))
    for kind in kinds:
        if kind != default.kind:
            shown = map(_shown, in_files(default.registry.find(kind)))
            lines += [line._replace(help=f"for {kind}: {line.help}", active=False) for line in shown]
    return lines


def _defence() -> list[Line]:
    lines = [_line("kind", "standard", 'or "strict", or "none", which is the paper\'s market')]
    standard = PRESETS["standard"]
    return lines + [_line(one.name, getattr(standard, one.name), one.help, False) for one in in_files(Defence)]


def _provider(id: str, full: bool) -> list[Line]:
    given = {"id": id, "file": f"{id}.csv"}
    found = [
        _line(one.name, given[one.name], one.help) if one.name in given else _shown(one)._replace(active=False)
        for one in declared(ProviderSettings)
    ]
    return found if full else [line._replace(help="") for line in found if line.active]


def _shown(one: Setting) -> Line:
    """A setting with its default; where it has none, with an example, as a comment."""
    others = _quoted(choice for choice in one.choices if choice != one.default)
    help = f"{one.help}; or {others}" if others else one.help
    if one.required or one.default in (None, "", ()):
        return _line(one.name, one.example, help, one.required)
    return _line(one.name, one.default, help)


def _quoted(names: Any) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _line(name: str, value: Any, help: str, active: bool = True) -> Line:
    return Line(f"{name} = {toml_value(plain(value))}", help, active)
