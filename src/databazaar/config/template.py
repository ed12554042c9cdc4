"""The market.toml that `bazaar init` writes: a commented one from all declarations, or one from the files it found."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from databazaar.config.chosen_rules import Chosen
from databazaar.config.market_file import EVERY_RUN, OF_AVERAGING, MarketFile
from databazaar.config.sections import ProviderSettings
from databazaar.config.toml_text import quoted, toml_value
from databazaar.registry import Registry
from databazaar.settings import Setting, declared, plain
from databazaar.stops.protocol import STOPS

if TYPE_CHECKING:
    from databazaar.config.discover import Found
    from databazaar.data.images import Size

HEAD = """\
# A data market. Run it with: bazaar run market.toml
# Paths are relative to this file. What is commented out shows another choice or the default.
"""
PROVIDERS = ("north", "south")
WIDTH, LONGEST_LINE = 26, 110
SPARE = 40
"""From so many rows of the hold-out on, a share of them is spared to start from."""


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
    """What a rule is, in a line: the first of its module, or of its class where the module has several.

    >>> from databazaar.aggregators import Krum
    >>> summary(Krum)
    'the mean of those updates that have others near them'
    """
    alone = rule.__module__.endswith(f".{rule.kind.replace('-', '_')}")
    doc = sys.modules[rule.__module__].__doc__ if alone else rule.__doc__
    text = (doc or "").strip().splitlines()[0].rstrip(".")
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
        lines = [
            line._replace(active=line.active > (section.name in OF_AVERAGING)) for line in _chosen(section.default)
        ]
        yield _block(f"[{section.name}]", section.help, lines)
    else:
        optional = section.default is None or section.name in OF_AVERAGING
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


def written_market(found: Found) -> str:
    """A commented market.toml that runs as it stands."""
    per_round, budget = pace(len(found.providers))
    name = found.folder.resolve().name.strip()
    notes = "".join(f"# - {' '.join(note.split())}\n" for note in found.notes)
    providers = "\n".join(
        f"[[providers]]\nid = {quoted(id)}\nfile = {quoted(file.as_posix())}\n" for id, file in found.providers
    )
    return f"""\
# A data market, written by `bazaar init` from the files that it found.
# Look at the files: bazaar check market.toml   Buy: bazaar run market.toml
# Paths are relative to this file. Every setting that is not here has a default.
{notes}
[market]
name = {quoted(name if name.isprintable() and name else "market")}
{_line("budget", budget, "what you will spend in all")}
{_line("per_round", per_round, "accesses bought in a round")}
# seed = 0                 # the same seed gives the same run
# currency = "EUR"         # how amounts are named; decimals = 2 for euros and cents

{_consumer(found)}[data]
{_line("holdout", found.holdout.as_posix(), "your own rows; they never reach a provider")}
{_line("target", found.target, "the column to predict")}
{_line("task", found.task, 'or "regression"' if found.task == "classification" else 'or "classification"')}
{_features(found.features)}
[[stops]]
kind = "no-progress"       # ends the run when the utility no longer rises beyond chance; the rest comes back

[defence]                  # against copies, leaks, noise and poison; "none" is the paper's market
kind = "standard"          # pay beyond a floor waits until 8 or more answers show data; or "strict"

{_model(found.image)}
# A provider may have a price per access (price = "1") and an owner, who may run several providers.
{providers}"""


def pace(providers: int) -> tuple[int, int]:
    """Accesses in a round and in all: as many a round as there are providers, up to twenty, whom the sampler compares
    with each other, and about fifty rounds. Measured in benchmarks/bench_real_tables.py: with the same money, more in a
    round are better than more rounds.

    >>> pace(1), pace(9), pace(16), pace(100)
    ((1, 100), (9, 400), (16, 800), (20, 2000))
    """
    per_round = min(providers, max(3, min(20, providers // 2)))
    return min(providers, 20), 100 * per_round


def _consumer(found: Found) -> str:
    """Where training starts from: a file of its own, or a share of the hold-out if that has rows to spare."""
    if found.train is not None:
        train = _line("train", found.train.as_posix(), "your own rows to start from")
    elif found.rows >= SPARE:
        train = _line("train", 0.5, "the share of your own rows to start from; or a file")
    else:
        train = _line("train", 0.0, "your own rows to start from: a share, or a file; there are few to spare")
    return f"[consumer]\n{_line('name', 'consumer', 'you, as statements and the ledger call you')}\n{train}\n\n"


def _model(image: Size | None) -> str:
    """What is best for images, and for tables of numbers, categories and texts."""
    if image is not None:
        size = _line("image", list(image), "channels (1 is grey, 3 is RGB), height and width that images become")
        shift = _line(
            "shift", min(2, image[1] // 8), "pixels by which images move at the most; flip = true mirrors them"
        )
        kind = _line("kind", "convnet", "or cnn, the paper's")
        return f'[model]\n{kind}\n{size}\n\n[learner]\nkind = "in-run"\n{shift}\n'
    return (
        f"[model]\n{_line('kind', 'auto', 'trees and a linear model, blended; or trees, linear, logistic, mlp, cnn')}\n"
    )


def _features(features: tuple[str, ...] | None) -> str:
    if features is None:
        return "# features = […]           # without it, every column but the target is one\n"
    rows = [""]
    for name in map(quoted, features):
        if len(rows[-1]) + len(name) > LONGEST_LINE:
            rows.append("")
        rows[-1] += f"{' ' if rows[-1] else ''}{name},"
    return "features = [\n" + "\n".join(f"    {row}" for row in rows) + "\n]\n"
