"""A finished run as a buyer uses it: the model, the report, and who was paid what."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from databazaar.codes import Code, counted
from databazaar.errors import BazaarError
from databazaar.runs.folder import RunFolder
from databazaar.runs.model_folder import CARD, StoredModel, read_model
from databazaar.runs.names import MODEL, RUN
from databazaar.runs.report import Report
from databazaar.runs.trained import TrainedModel, load_model

if TYPE_CHECKING:
    import pandas as pd


class FinishedRun(TrainedModel):
    """A finished run: its model, ready to be used, with the report and what everybody was paid."""

    def __init__(self, folder: RunFolder, stored: StoredModel, model: nn.Module | None = None) -> None:
        super().__init__(folder.path, stored, model)
        self.folder = folder

    @cached_property
    def report(self) -> Report:
        """The run's report, from its ledger, which must hold."""
        return self.folder.report()

    def to_frame(self) -> pd.DataFrame:
        """Who was paid what: a row for each provider, money in units of the currency."""
        return self.report.to_frame()

    def _facts(self) -> dict[str, str]:
        told = self.folder.summary()
        ended = f"{Code(str(told.get('status')))} after {counted(told.get('rounds'), 'round')}"
        return {**super()._facts(), "run": ended, "pay": ".to_frame(), .report"}


def load_run(path: str | Path, model: nn.Module | None = None) -> FinishedRun:
    """A finished run from its folder. Where the architecture is your own, give a `model` of it to be filled."""
    folder = RunFolder(Path(path))
    if not folder.finished:
        raise BazaarError(
            f"{path} holds no finished run: `bazaar run {path}` goes on with it, `bazaar close {path}` ends it"
        )
    return FinishedRun(folder, _stored(folder), model)


def load(path: str | Path, model: nn.Module | None = None) -> TrainedModel:
    """A run's folder or a model folder, whichever it is."""
    place = Path(path)
    if (place / CARD).exists():
        return load_model(place, model)
    if not (place / RUN).exists():
        raise BazaarError(f"{path} is neither a run's folder nor a model folder: give one that `bazaar run` made")
    return load_run(place, model)


def _stored(folder: RunFolder) -> StoredModel:
    """The run's model, which must be the one that its summary names."""
    expected = str(folder.summary().get("model_hash"))
    stored = read_model((folder.path / MODEL).parent, folder.path)
    if stored.card.model_hash != expected:
        raise BazaarError(f"{folder.path}: the model is not the one that the run ended with: it was changed")
    return stored
