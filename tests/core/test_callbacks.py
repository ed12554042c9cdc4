"""Callbacks hear a run as it is, change nothing of it, and whatever they raise leaves a ledger that goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from databazaar import OSMD, Arbiter, BazaarError, Callback, Progress, Report
from databazaar.ledger import Terms
from databazaar.runs.folder import RunFolder
from small_markets import torch_market, vector_market


class Diary(Callback):
    """Notes what it hears, and raises at one round, or at the beginning or the end."""

    def __init__(self, fails_at: int | str | None = None) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.fails_at = fails_at

    def _note(self, what: str, told: Any, when: int | str) -> None:
        self.heard.append((what, told))
        if when == self.fails_at:
            raise ZeroDivisionError(f"at {when}")

    def on_begin(self, terms: Terms) -> None:
        self._note("begin", terms, "begin")

    def on_round(self, progress: Progress) -> None:
        self._note("round", progress, progress.round)

    def on_end(self, report: Report) -> None:
        self._note("end", report, "end")

    def on_error(self, error: BaseException) -> None:
        self._note("error", error, "error")

    @property
    def kinds(self) -> list[str]:
        return [what for what, _ in self.heard]


def arbiter(**more: Any) -> Arbiter:
    consumer, providers = torch_market(**more)
    return Arbiter(consumer, providers, OSMD(0.5, 0.2), engine="loop", device="cpu", seed=5)


def test_a_run_is_told_from_its_beginning_to_its_end() -> None:
    diary, rounds = Diary(), list[Progress]()
    market = arbiter()
    report = market.run(callbacks=[diary, rounds.append], tell=rounds.append)
    assert diary.kinds == ["begin", *["round"] * 5, "end"]
    assert diary.heard[0][1] is market.terms()
    assert diary.heard[-1][1] is report
    assert rounds == [told for _, told in diary.heard[1:-1] for _ in range(2)]
    told = rounds[::2]
    assert [one.utility for one in told] == report.utilities[1:]
    assert [one.loss for one in told] == report.losses[1:]
    assert [one.spent for one in told] == report.to_frame("rounds")["spent"].tolist()[1:]
    assert told[-1].pay == {line.provider: line.pay for line in report.payouts if line.pay}


def test_who_listens_changes_nothing() -> None:
    def meddle(progress: Progress) -> None:
        progress.params.zero_()
        progress.pay.clear()  # type: ignore[attr-defined]

    assert arbiter().run(callbacks=[Diary(), meddle]).ledger_head == arbiter().run().ledger_head


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("at", ["begin", 1, 3, 5, "end"])
def test_a_callback_that_raises_leaves_a_run_that_is_resumed_to_the_same_end(
    tmp_path: Path, at: int | str, first: bool
) -> None:
    whole = arbiter().run()
    path = tmp_path / "run"
    bad, other = Diary(at), Diary()
    with pytest.raises(ZeroDivisionError, match=f"at {at}"):
        arbiter().run(path, callbacks=[bad, other] if first else [other, bad])
    if at == "end":
        assert other.kinds[-1] == "end"
        report = RunFolder(path).report()
    else:
        assert other.kinds[-1] == "error"
        assert isinstance(other.heard[-1][1], ZeroDivisionError)
        so_far = RunFolder(path).audit()
        assert so_far.ok
        again = Diary()
        report = arbiter().run(path, callbacks=[again])
        assert again.kinds == ["begin", *["round"] * (5 - so_far.rounds), "end"]
    assert (report.ledger_head, report.model_hash) == (whole.ledger_head, whole.model_hash)
    assert RunFolder(path).audit().ok


def test_an_error_in_the_run_is_told_and_goes_up_although_the_telling_fails() -> None:
    def broken(w: Any) -> float:
        calls.append(1)
        if len(calls) > 5:
            raise KeyboardInterrupt
        return float(w.sum())

    calls: list[int] = []
    consumer, providers = vector_market(utility=broken)
    deaf, diary = Diary("error"), Diary()
    with pytest.raises(KeyboardInterrupt):
        Arbiter(consumer, providers, engine="loop").run(callbacks=[deaf, diary])
    assert deaf.kinds[-1] == diary.kinds[-1] == "error"
    assert isinstance(diary.heard[-1][1], KeyboardInterrupt)


def test_a_run_that_cannot_begin_is_not_told(tmp_path: Path) -> None:
    arbiter().run(tmp_path / "run")
    diary = Diary()
    with pytest.raises(BazaarError, match="finished run"):
        arbiter().run(tmp_path / "run", callbacks=[diary])
    assert diary.heard == []


@pytest.mark.parametrize(
    ("callbacks", "sentence"),
    [
        (Diary(), "must be a list: write callbacks="),
        ([3], "callback 3 is neither a Callback nor a function"),
        ([Diary], "give an instance of one"),
    ],
)
def test_what_is_no_callback_is_refused(callbacks: Any, sentence: str) -> None:
    with pytest.raises(BazaarError, match=sentence):
        arbiter().run(callbacks=callbacks)
