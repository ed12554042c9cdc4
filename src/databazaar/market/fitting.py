"""Before a market begins: whether its rounds fit into memory, and where updates go that do not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from databazaar.aggregators import Aggregator
from databazaar.defence import Defence
from databazaar.engines import Engine
from databazaar.engines.memory import Free, Need, room_for, training_copies
from databazaar.engines.room import Room
from databazaar.learning.models import LARGE
from databazaar.market.fetching import AHEAD
from databazaar.parties import Consumer, Provider


def find_room(
    consumer: Consumer,
    providers: Sequence[Provider],
    aggregator: Aggregator,
    engine: Engine,
    defence: Defence,
    folder: str | Path | None = None,
) -> Room | None:
    """None where the updates of a round may stay where they are computed, as those of all but large models do; a market
    that cannot fit is refused. A file for them is made in the run's `folder` rather than elsewhere."""
    layout = consumer.task.optional_layout
    if layout is None or layout.width <= LARGE:
        return None
    oracles = [] if engine.remote else [provider.oracle for provider in providers]
    need = Need(
        layout.width,
        min(len(providers), int(consumer.per_round)),
        training=training_copies(oracles, engine.device),
        more=int(consumer.train is not None) + int(defence.watches),
        ahead=engine.device.type in AHEAD,
        comes=engine.remote,
        whole=_why_whole(aggregator, engine),
    )
    return room_for(need, Free.now(engine.device), [] if folder is None else [Path(folder)])


def _why_whole(aggregator: Aggregator, engine: Engine) -> str:
    """Why updates have to be in memory as a whole, if they have."""
    if not getattr(aggregator, "by_coordinate", False):
        return f"aggregator {aggregator.kind} looks at whole updates (mean, median and trimmed-mean do not)"
    if not engine.spares_memory:
        return f"engine {engine.name} holds all of them (loop and vectorized do not)"
    return ""
