"""The market.toml that `bazaar init` writes from the files it found."""

from __future__ import annotations

from pathlib import Path

from databazaar.config.discover import Found
from databazaar.config.toml_text import quoted

WIDTH = 110
FEW_ROWS = 1000
"""Below so many rows in all tables a regression gets a linear model: a network is easily overfitted to them."""
SPARE = 40
"""From so many rows of the hold-out on, a share of them is spared to start from."""


def written_market(found: Found) -> str:
    """A commented market.toml that runs as it stands."""
    per_round, budget = pace(len(found.providers))
    providers = "\n".join(
        f"[[providers]]\nid = {quoted(id)}\nfile = {quoted(file.as_posix())}\n" for id, file in found.providers
    )
    return f"""\
# A data market, written by `bazaar init` from the files that it found.
# Look at the files: bazaar check market.toml   Buy: bazaar run market.toml
# Paths are relative to this file. Every setting that is not here has a default.
{_notes(found)}
[market]
name = {quoted(_market_name(found.folder))}
{_line("budget", str(budget), "what you will spend in all")}
{_line("per_round", str(per_round), "accesses bought in a round")}
# seed = 0                 # the same seed gives the same run
# currency = "EUR"         # how amounts are named; decimals = 2 for euros and cents

{_consumer(found)}[data]
{_text("holdout", found.holdout.as_posix(), "your own rows; they never reach a provider")}
{_text("target", found.target, "the column to predict")}
{_text("task", found.task, 'or "regression"' if found.task == "classification" else 'or "classification"')}
{_features(found.features)}
[[stops]]
kind = "no-progress"       # ends the run when the utility no longer rises beyond chance; the rest comes back

[defence]                  # against copies, leaks, noise and poison; "none" is the paper's market
kind = "standard"          # pay beyond a floor waits until 8 or more answers show data; or "strict"

{_model(found)}
# A provider may have a price per access (price = "1") and an owner, who may run several providers.
{providers}"""


def pace(providers: int) -> tuple[int, int]:
    """Accesses in a round and in all: half of the providers a round, which the sampler compares with each other, and a
    hundred rounds. Measured in benchmarks/bench_real.py: with fewer in a round, pay depends more on luck.

    >>> pace(1), pace(9), pace(16), pace(100)
    ((1, 100), (4, 400), (8, 800), (20, 2000))
    """
    per_round = min(providers, max(3, min(20, providers // 2)))
    return per_round, 100 * per_round


def _consumer(found: Found) -> str:
    """Where training starts from: a file of its own, or a share of the hold-out if that has rows to spare."""
    if found.train is not None:
        train = _text("train", found.train.as_posix(), "your own rows to start from")
    elif found.rows >= SPARE:
        train = _line("train", "0.5", "the share of your own rows to start from; or a file")
    else:
        train = _line("train", "0.0", "your own rows to start from: a share, or a file; there are few to spare")
    return f"[consumer]\n{_text('name', 'consumer', 'you, as statements and the ledger call you')}\n{train}\n\n"


def _model(found: Found) -> str:
    """A network by default; a straight line where a regression has few rows, one's own and all providers' together."""
    if found.task == "regression" and found.rows + found.for_sale < FEW_ROWS:
        why = f"as all tables have fewer than {FEW_ROWS:,} rows; or mlp, a network"
        return f"[model]\n{_text('kind', 'linear', why)}\n"
    kinds = '"logistic" (classification), "linear" (regression), "mlp" or "cnn"'
    return f'# [model]\n# kind = "mlp"             # {kinds}\n'


def _text(name: str, value: str, comment: str) -> str:
    return _line(name, quoted(value), comment)


def _line(name: str, value: str, comment: str) -> str:
    return f"{f'{name} = {value}':<26} # {comment}"


def _features(features: tuple[str, ...] | None) -> str:
    if features is None:
        return "# features = […]           # without it, every column but the target is one\n"
    rows = [""]
    for name in map(quoted, features):
        if len(rows[-1]) + len(name) > WIDTH:
            rows.append("")
        rows[-1] += f"{' ' if rows[-1] else ''}{name},"
    return "features = [\n" + "\n".join(f"    {row}" for row in rows) + "\n]\n"


def _notes(found: Found) -> str:
    return "".join(f"# - {note}\n" for note in (" ".join(note.split()) for note in found.notes))


def _market_name(folder: Path) -> str:
    name = folder.resolve().name.strip()
    return name if name.isprintable() and name else "market"
