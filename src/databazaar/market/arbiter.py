"""The arbiter: spends the budget round by round, as Algorithm 1 of the paper does.

Departures from the paper, all about replies that fail, which the paper does not have: a failed reply counts as a
gain of zero, is left out of the average (which is then over the valid draws), and is not paid.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from databazaar.engines import Ask, Engine, Replies, make_engine
from databazaar.errors import BazaarError
from databazaar.learning.models import from_bytes, hash_vector, to_bytes
from databazaar.learning.task import step_at
from databazaar.learning.utilities import Scores
from databazaar.ledger import Ledger, Settlement, Snapshot, Terms
from databazaar.ledger.audit import gave_up
from databazaar.market.wishes import drive
from databazaar.parties.consumer import Consumer
from databazaar.parties.provider import Provider
from databazaar.randomness import draws_stream
from databazaar.runs.from_ledger import report_from
from databazaar.runs.report import Report
from databazaar.samplers import OSMD, Sampler, settings_of

if TYPE_CHECKING:
    from databazaar.runs.folder import RunFolder

Play = Generator[Ask | Tensor, Replies | Scores, Tensor]
"""A run that asks for what it needs: an `Ask` is answered with Replies, stacked parameters with Scores."""


@dataclass(frozen=True)
class Progress:
    """Told after every committed round."""

    round: int
    spent: int
    asked: int
    budget: int
    utility: float
    paid: tuple[str, ...]
    params: Tensor


class Arbiter:
    """Runs one market: `Arbiter(consumer, providers).run()` gives a Report, and `model` is then trained.

    Without a sampler it takes OSMD with the settings of the theory. `engine` is "vectorized", "loop", or an Engine
    of your own. `patience` is how many rounds on end may pass in which nobody answers.
    """

    def __init__(
        self,
        consumer: Consumer,
        providers: Sequence[Provider],
        sampler: Sampler | None = None,
        *,
        engine: str | Engine = "vectorized",
        device: str = "auto",
        seed: int = 0,
        patience: int = 10,
    ) -> None:
        self.consumer = consumer
        self.providers = _distinct(providers)
        self._sampler = sampler or theory_sampler(consumer, providers)
        self.seed = _whole(seed, "seed", 0)
        self.patience = _whole(patience, "patience", 1)
        cheapest = consumer.per_round * min(p.price for p in self.providers)
        if consumer.budget < cheapest:
            raise BazaarError(
                f"budget = {consumer.budget} cannot pay for one round of per_round = {consumer.per_round} accesses "
                f"(at least {cheapest}): raise the budget or lower per_round"
            )
        if isinstance(engine, str):
            engine = make_engine(engine, copy.deepcopy(consumer.task), self.providers, device)
        self._engine = engine
        self._params = consumer.initial_parameters().to(engine.device)

    def terms(self) -> Terms:
        return Terms(
            seed=self.seed,
            sampler=settings_of(self._sampler),
            budget=int(self.consumer.budget),
            per_round=int(self.consumer.per_round),
            patience=self.patience,
            currency=self.consumer.currency,
            providers=tuple((p.id, p.owner, p.price) for p in self.providers),
            bounded_utility=self.consumer.bounded,
            initial_model=hash_vector(self.consumer.initial_parameters()),
        )

    def play(self, ledger: Ledger, tell: Callable[[Progress], None] | None = None) -> Play:
        """Algorithm 1 from the ledger's last committed round on. Line numbers are the paper's."""
        t, w, state, silent = self._where_it_stands(ledger)
        K, sampler, ids = self.consumer.per_round, self._sampler, ledger.terms.ids
        while silent < self.patience:
            p = sampler.probabilities(state)
            draws = sampler.draw(state, draws_stream(self.seed, t), K)  # line 5
            drawn: list[int] = draws.tolist()
            if not ledger.reserve(t, drawn):
                break  # T = ⌊B/K⌋ rounds have been played, or prices differ and the rest covers no round
            asked = list(dict.fromkeys(drawn))  # whoever is drawn twice is asked once and paid twice
            replies = yield Ask(w, asked, t, self.seed)  # line 6
            assert isinstance(replies, Replies)
            step = step_at(self.consumer.step, t)
            scores = yield torch.cat([w[None], w + step * replies.updates])
            assert isinstance(scores, Scores)
            gains, reasons = _marginal_gains(asked, replies, scores, t)
            drawn_gains = [gains[i] for i in drawn]
            state = sampler.update(state, draws, np.array([g or 0.0 for g in drawn_gains]))  # lines 8 and 9
            rows = [asked.index(i) for i in drawn if gains[i] is not None]
            if rows:
                valid = torch.tensor(rows).to(w.device, non_blocking=True)  # a plain list would wait for the device
                w = w + (step / len(rows)) * replies.updates[valid].sum(0)  # line 10, in draw order
            silent = 0 if rows else silent + 1
            settlement = Settlement(
                drawn_gains,
                [reasons.get(i) for i in drawn],
                p[draws].tolist(),
                float(scores.utility[0]),
                _finite(scores.loss),
                hash_vector(w) if ledger.records else "",
            )
            ledger.settle(t, drawn, settlement, self._snapshot(t + 1, state, w, ledger))  # line 7
            t += 1
            if tell is not None:
                paid = tuple(ids[i] for i in asked if gains[i] is not None)
                book = ledger.book
                tell(Progress(t, book.spent, book.asked, book.budget, settlement.utility, paid, w))
        final = yield w[None]
        assert isinstance(final, Scores)
        self._close(ledger, w, final, silent, t)
        return w

    def _snapshot(self, next_round: int, state: Any, w: Tensor, ledger: Ledger) -> Snapshot:
        kept = to_bytes(w) if ledger.store.durable else b""
        return Snapshot(next_round, state.tobytes(), kept)

    def _where_it_stands(self, ledger: Ledger) -> tuple[int, Tensor, Any, int]:
        snapshot = ledger.store.snapshot()
        if snapshot is None:
            return 0, self.consumer.initial_parameters().to(self._params), self._sampler.init(len(self.providers)), 0
        w = from_bytes(snapshot.params).to(self._params)
        state = np.frombuffer(snapshot.sampler, dtype=np.float64).copy()
        return snapshot.next_round, w, state, _silent_rounds(ledger)

    def _close(self, ledger: Ledger, w: Tensor, final: Scores, silent: int, rounds: int) -> None:
        left = ledger.book.budget - ledger.book.spent
        money = ledger.terms.currency.format
        if gave_up(silent, rounds, self.patience):
            status = "nobody answered"
            message = (
                f"nobody gave a valid reply in the last {silent} rounds: the run stopped after {rounds} rounds, "
                f"and {money(left)} go back to the consumer; the ledger says why each reply failed"
            )
        else:
            status = "settled"
            message = f"{rounds} rounds played, {money(ledger.book.spent)} paid, {money(left)} back to the consumer"
        if not np.isfinite(final.utility[0]):
            raise BazaarError(f"the trained model's utility is {final.utility[0]}: lower the steps, or begin elsewhere")
        ledger.close(status, message, hash_vector(w), float(final.utility[0]), _finite(final.loss))

    def run(
        self, folder: str | Path | RunFolder | None = None, *, tell: Callable[[Progress], None] | None = None
    ) -> Report:
        """Plays the market to its end. With a folder, every round is committed there and a crash loses nothing;
        a folder that holds an unfinished run of the same terms is continued."""
        if isinstance(folder, str | Path):
            from databazaar.runs.folder import RunFolder

            folder = RunFolder.open_or_create(Path(folder))
        try:
            return self._run(folder, tell)
        finally:
            if folder is not None:
                folder.dispose()  # a run that is stopped leaves no connection behind that would block the next

    def _run(self, folder: RunFolder | None, tell: Callable[[Progress], None] | None) -> Report:
        ledger = Ledger(self.terms(), folder.store() if folder is not None else None)
        if ledger.book.closed:  # killed after the last round, before the folder was finished
            saved = folder.saved_parameters(self.consumer.task) if folder is not None else None
            self._params = saved if saved is not None else self._where_it_stands(ledger)[1]
        else:
            self._params = drive(self.play(ledger, tell), self._engine, self.consumer.evaluator(self._engine.device))
        report = report_from(ledger.store.entries())
        if folder is not None:
            folder.finish(self._params, self.consumer.task, report)
        return report

    def close(self) -> None:
        """Lets go of what the engine holds; the report, the parameters and the model stay."""
        self._engine.close()

    @property
    def parameters(self) -> Tensor:
        """The parameters as one vector, on the CPU."""
        return self._params.detach().cpu()

    @property
    def model(self) -> Any:
        """The model with the parameters of the last run: a torch module, or a NumPy vector."""
        if not isinstance(self.consumer.model, nn.Module):
            return self.parameters.numpy()
        module = copy.deepcopy(self.consumer.model).cpu()
        self.consumer.task.layout.load(module, self.parameters)
        return module.eval()


def theory_sampler(consumer: Consumer, providers: Sequence[Provider], switches: int = 1) -> OSMD:
    """OSMD.from_theory, with the budget counted in accesses at the providers' mean price."""
    accesses = consumer.budget * len(providers) // max(1, sum(p.price for p in providers))
    return OSMD.from_theory(len(providers), max(accesses, consumer.per_round), consumer.per_round, switches)


def _marginal_gains(
    asked: Sequence[int], replies: Replies, scores: Scores, round: int
) -> tuple[dict[int, float | None], dict[int, str]]:
    """U(w + γg_i) − U(w) for each provider asked, None where its reply is invalid, and the reasons for those."""
    base = scores.utility[0]
    if not np.isfinite(base):
        raise BazaarError(f"round {round}: the model's own utility is {base}: lower the steps, or begin elsewhere")
    reasons = dict(replies.failures)
    with np.errstate(over="ignore", invalid="ignore"):
        rises = scores.utility[1:] - base
    gains: dict[int, float | None] = dict(zip(asked, rises.tolist(), strict=True))
    for row in np.flatnonzero(~np.isfinite(rises)).tolist():
        known = np.isfinite(scores.utility[1 + row])
        why = (
            "the gain in utility is beyond what a float can hold"
            if known
            else "the updated model has no finite utility"
        )
        reasons.setdefault(asked[row], why)
    gains.update(dict.fromkeys(reasons))
    return gains, reasons


def _finite(losses: Any) -> float | None:
    """The first loss as the ledger takes it: exp(−∞) = 0 is a utility, but ∞ is no number in JSON."""
    return None if losses is None or not np.isfinite(losses[0]) else float(losses[0])


def _silent_rounds(ledger: Ledger) -> int:
    silent = 0
    for entry in ledger.store.entries():
        if entry.kind == "round":
            silent = silent + 1 if all(gain is None for gain in entry.body["gains"]) else 0
    return silent


def _distinct(providers: Sequence[Provider]) -> list[Provider]:
    if not providers:
        raise BazaarError("a market needs at least one provider")
    seen: set[str] = set()
    for provider in providers:
        if provider.id in seen:
            raise BazaarError(f"two providers are called {provider.id}: give each an id of its own")
        seen.add(provider.id)
    return list(providers)


def _whole(value: int, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise BazaarError(f"{name} = {value!r} must be a whole number of at least {least}")
    return int(value)
