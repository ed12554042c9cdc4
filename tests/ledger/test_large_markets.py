"""Markets of very many providers: what a round leaves behind, how a run goes on after a crash, and what is audited."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from databazaar import OSMD, Arbiter, Defence
from databazaar.errors import LedgerError
from databazaar.ledger import Book
from databazaar.market.run import Progress
from databazaar.reports.written import write_report
from databazaar.runs.folder import RunFolder
from databazaar.samplers import osmd
from databazaar.samplers.large_osmd import Chances
from databazaar.vectors import unpack
from small_markets import vector_market

OFFSETS = tuple(np.linspace(0, 3, 200).tolist())
SAMPLER = OSMD(eta=0.2, alpha=0.2)


class CrashError(Exception):
    pass


def arbiter(budget: int = 120, defence: str | Defence | None = None) -> Arbiter:
    consumer, providers = vector_market(OFFSETS, budget=budget, per_round=4)
    return Arbiter(consumer, providers, SAMPLER, engine="loop", seed=3, defence=defence)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred providers are very many here."""
    monkeypatch.setattr(osmd, "LARGE", 150)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("crash", [1, 7, 29])
def test_a_run_goes_on_as_if_it_had_never_stopped(tmp_path: Path, crash: int) -> None:
    whole = arbiter().run(tmp_path / "whole")

    def fall(progress: Progress) -> None:
        if progress.round == crash:
            raise CrashError

    with pytest.raises(CrashError):
        arbiter().run(tmp_path / "broken", tell=fall)
    folder = RunFolder(tmp_path / "broken")
    kept = folder.store().snapshot()
    folder.dispose()
    assert kept is not None and "sampler" not in unpack(kept.state)  # it follows from the ledger
    resumed = arbiter().run(tmp_path / "broken")
    assert (resumed.model_hash, resumed.ledger_head) == (whole.model_hash, whole.ledger_head)
    assert RunFolder(tmp_path / "broken").audit().ok


@pytest.mark.usefixtures("large")
def test_a_report_is_made_and_says_what_the_vector_would_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = arbiter().run(tmp_path / "large")
    assert write_report(RunFolder(tmp_path / "large")).stat().st_size > 10_000
    monkeypatch.setattr(osmd, "LARGE", 10**9)
    dense = arbiter().run(tmp_path / "small")
    assert [payout.pay for payout in report.payouts] == [payout.pay for payout in dense.payouts]
    np.testing.assert_allclose(report.distributions[-1], dense.distributions[-1], rtol=1e-10)
    np.testing.assert_allclose(report.distributions[0], dense.distributions[0], rtol=1e-10)
    assert report.distributions.shape == dense.distributions.shape


def test_a_run_that_stored_a_vector_goes_on_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of a version that knew no tree did; and its ledger is audited by the tree."""
    whole = arbiter().run(tmp_path / "whole")

    def fall(progress: Progress) -> None:
        if progress.round == 9:
            raise CrashError

    with pytest.raises(CrashError):
        arbiter().run(tmp_path / "broken", tell=fall)
    monkeypatch.setattr(osmd, "LARGE", 150)
    resumed = arbiter().run(tmp_path / "broken")
    assert resumed.ledger_head == whole.ledger_head
    assert RunFolder(tmp_path / "broken").audit().ok


@pytest.mark.usefixtures("large")
def test_with_a_defence_everybody_is_looked_at() -> None:
    defended = arbiter(defence="standard")
    assert isinstance(defended.rules.start(), np.ndarray)
    assert isinstance(arbiter().rules.start(), Chances)


def test_what_was_paid_is_added_up_at_every_commit() -> None:
    """A payment that no entry explains is found at once, however many have been paid."""
    book = Book(10**6, {f"p{i}": 1 for i in range(2000)})
    book.pay = dict.fromkeys(book.quotes, 1)
    book.spent = book.asked = 2000
    book.assert_sound()
    book.pay["p7"] += 1
    with pytest.raises(LedgerError, match="sum to what was spent"):
        book.assert_sound()
