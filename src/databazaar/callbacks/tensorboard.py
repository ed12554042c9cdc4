"""A run in TensorBoard: `tensorboard --logdir LOG_DIR` shows it while it is played."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from databazaar.callbacks.record import final_numbers, parameters, round_numbers, words
from databazaar.display import shown
from databazaar.errors import BazaarError
from databazaar.ledger import Terms
from databazaar.market.callback import Callback
from databazaar.market.run import Progress
from databazaar.money import Currency
from databazaar.runs.report import Report

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorBoardCallback(Callback):
    """Writes event files to `log_dir`: utility, loss and spent under `market/`, each provider's pay so far under
    `pay/`, the outcome under `final/`, and the terms as text.

    Steps are rounds, so a run that is resumed with the same folder goes on with its curves. Needs
    `databazaar[tensorboard]`.
    """

    def __init__(self, log_dir: str | Path) -> None:
        self.log_dir = Path(log_dir)
        self._writer: SummaryWriter | None = None
        self._currency = Currency()

    def on_begin(self, terms: Terms) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise BazaarError(
                "TensorBoardCallback needs tensorboard: `pip install 'databazaar[tensorboard]'`"
            ) from None
        try:
            self._writer = SummaryWriter(str(self.log_dir))
        except OSError as reason:
            raise BazaarError(
                f"{self.log_dir} cannot be written ({reason.strerror}): give TensorBoardCallback another folder"
            ) from None
        self._currency = terms.currency
        self._writer.add_text("terms", _table(parameters(terms)))

    def on_round(self, progress: Progress) -> None:
        market, pay = round_numbers(progress, self._currency)
        self._write({"market": market, "pay": pay}, progress.round).flush()

    def on_end(self, report: Report) -> None:
        outcome, pay = final_numbers(report)
        writer = self._write({"final": outcome, "pay": pay}, len(report.rounds))
        writer.add_text("outcome", _table({**words(report), "message": report.message}))
        self._close()

    def on_error(self, error: BaseException) -> None:
        self._close()

    def _write(self, groups: Mapping[str, Mapping[str, float]], step: int) -> SummaryWriter:
        assert self._writer is not None
        for group, numbers in groups.items():
            for name, value in numbers.items():
                self._writer.add_scalar(f"{group}/{name}", value, step)
        return self._writer

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _table(rows: Mapping[str, str]) -> str:
    """As Markdown, which TensorBoard draws."""
    lines = [f"| {name} | {shown(value, None).replace('|', '∣')} |" for name, value in rows.items()]
    return "\n".join(["| | |", "|---|---|", *lines])
