"""What TensorBoardCallback writes, as TensorBoard's own reader finds it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from databazaar import Arbiter, BazaarError, Progress
from databazaar.callbacks import TensorBoardCallback
from databazaar.money import Currency
from small_markets import torch_market, vector_market

if TYPE_CHECKING:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def read(folder: Path) -> EventAccumulator:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    return found


def curve(found: EventAccumulator, tag: str) -> dict[int, float]:
    return {event.step: event.value for event in found.Scalars(tag)}


def test_the_curves_are_those_of_the_report(tmp_path: Path) -> None:
    consumer, providers = torch_market(currency=Currency("EUR", 2))
    report = Arbiter(consumer, providers, device="cpu").run(callbacks=[TensorBoardCallback(tmp_path)])
    found, frame = read(tmp_path), report.to_frame("rounds")
    for column in ("utility", "loss", "spent"):
        expected = dict(zip(frame["round"][1:], frame[column][1:], strict=True))
        assert curve(found, f"market/{column}") == pytest.approx(expected)
    for line in report.payouts:
        pay = curve(found, f"pay/{line.provider}")
        assert pay[len(report.rounds)] == pytest.approx(line.pay / 100)
        assert list(pay.values()) == sorted(pay.values())
    assert curve(found, "final/utility") == pytest.approx({len(report.rounds): report.final_utility})
    assert curve(found, "final/rounds") == {len(report.rounds): len(report.rounds)}
    terms, outcome = (found.Tensors(f"{name}/text_summary")[0].tensor_proto for name in ("terms", "outcome"))
    assert b"| sampler | adaptive |" in terms.string_val[0] and b"| budget | 0.20 EUR |" in terms.string_val[0]
    assert report.ledger_head.encode() in outcome.string_val[0]


def test_a_run_that_is_resumed_goes_on_with_its_curves(tmp_path: Path) -> None:
    def arbiter() -> Arbiter:
        return Arbiter(*vector_market(), engine="loop")

    def interrupt(progress: Progress) -> None:
        if progress.round == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        arbiter().run(tmp_path / "run", callbacks=[TensorBoardCallback(tmp_path / "log"), interrupt])
    report = arbiter().run(tmp_path / "run", callbacks=[TensorBoardCallback(tmp_path / "log")])
    found = read(tmp_path / "log")
    assert curve(found, "market/utility") == pytest.approx(dict(enumerate(report.utilities[1:], 1)))
    assert "market/loss" not in found.Tags()["scalars"]


def test_without_tensorboard_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    consumer, providers = vector_market()
    with pytest.raises(BazaarError, match=r"pip install 'databazaar\[tensorboard\]'"):
        Arbiter(consumer, providers, engine="loop").run(callbacks=[TensorBoardCallback(tmp_path)])


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    consumer, providers = vector_market()
    with pytest.raises(BazaarError, match="give TensorBoardCallback another folder"):
        Arbiter(consumer, providers, engine="loop").run(callbacks=[TensorBoardCallback(tmp_path / "file")])
