"""What a run leaves behind, as plain data: the curves, the payouts and the settlement, as its ledger tells them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from itertools import accumulate
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from databazaar.codes import Code
from databazaar.display import Displayed
from databazaar.errors import BazaarError, LedgerError
from databazaar.ledger.audit import Audit, BestModel
from databazaar.ledger.record import Record
from databazaar.ledger.rounds import Access, Round, Rounds
from databazaar.ledger.rulebook import Stopped, end_of
from databazaar.ledger.terms import Terms
from databazaar.money import Currency
from databazaar.roster import RoundBudget
from databazaar.runs.attribution import NUMBERS, Attribution, all_brought
from databazaar.runs.defended import Defended, defended_by
from databazaar.runs.payouts import Payout, Payouts
from databazaar.runs.purchase import PurchaseEvaluation
from databazaar.samplers import OSMD, SAMPLERS, Sampler

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["Access", "Payout", "Report", "Round", "Status"]

Status = Literal["settled", "nobody-answered", "open"]
"""How a run ended; `open` is one that has not."""


@dataclass(frozen=True, repr=False)
class Report(Displayed):
    """The outcome of a run, or of the part of it that has been played.

    `distributions` holds p at the start of each round, then the final p.
    `purses` holds what each round was drawn from, and what the next would be. `rules` are the settings of the market's
    rules by noun. While a run is `open`, nothing is refunded, and `held` is reserved for the round under way.
    `regret_bound` is Theorem 1's, where it applies. `run`, `began` and `settled`, in UTC, are known of a run that has a
    folder. `model_hash` is that of the `best` model, by the utility, which the consumer gets. `gains` are those that
    the sampler asks for.
    """

    status: Status
    message: str
    rules: dict[str, Any]
    seed: int
    currency: Currency
    budget: int
    per_round: int
    spent: int
    refunded: int
    payouts: Sequence[Payout]
    rounds: Sequence[Round]
    distributions: np.ndarray
    purses: Sequence[RoundBudget]
    final_utility: float
    final_loss: float | None
    model_hash: str
    ledger_head: str
    held: int = 0
    stopped_by: Code | None = None
    regret_bound: float | None = None
    notes: tuple[str, ...] = field(default=())
    market: str = ""
    consumer: str = ""
    run: str = ""
    began: str = ""
    settled: str = ""
    last_model_hash: str = ""
    best: BestModel | None = None
    worth: PurchaseEvaluation | None = None
    gains: str = "alone"
    environment: dict[str, str] = field(default_factory=dict)
    defended: Defended | None = None

    @property
    def closed(self) -> bool:
        """Whether the run has ended and its money is settled."""
        return self.status != "open"

    @property
    def sampler(self) -> dict[str, Any]:
        return dict(self.rules["sampler"])

    @property
    def utilities(self) -> list[float]:
        """Utility after 0, 1, … T rounds."""
        return [*(scores.utility for scores in self.columns.scores), self.final_utility]

    @property
    def losses(self) -> list[float | None]:
        """Loss after 0, 1, … T rounds; None where the utility says nothing about one."""
        return [*(scores.loss for scores in self.columns.scores), self.final_loss]

    @cached_property
    def columns(self) -> Rounds:
        return Rounds.of(self.rounds)

    @cached_property
    def lines(self) -> Payouts:
        return Payouts(self.payouts)

    @cached_property
    def brought(self) -> Sequence[Attribution]:
        """What each provider brought for its pay, and why it was asked as often as it was, in the market's order."""
        return all_brought(self)

    @property
    def gain_per_coin(self) -> float | None:
        """What a unit of the currency brought in the mean of the market; None where nothing was paid."""
        money = self.spent / 10**self.currency.decimals
        return sum(one.gain for one in self.brought) / money if money else None

    def to_frame(self, rows: Literal["providers", "rounds"] = "providers") -> pd.DataFrame:
        """A pandas DataFrame with a row for each provider, or for each round from 0, the state before the first.

        Money is in units of the currency, whose name is in the frame's `attrs`: whole numbers where it has no
        decimals. `payouts` and `rounds` hold the exact amounts in minor units.
        """
        import pandas as pd

        if rows not in ("providers", "rounds"):
            raise BazaarError(f'to_frame({rows!r}) is unknown: use "providers" or "rounds"')
        frame = pd.DataFrame(self._provider_columns() if rows == "providers" else self._round_columns())
        frame.attrs["currency"] = self.currency.name
        return frame

    def _provider_columns(self) -> dict[str, Any]:
        lines = self.payouts
        columns: dict[str, Any] = {
            "provider": [line.provider for line in lines],
            "owner": [line.owner for line in lines],
            "price": self._money(line.price for line in lines),
            "accesses": [line.accesses for line in lines],
            "failures": [line.failures for line in lines],
            "pay": self._money(line.pay for line in lines),
            **{name: np.array([getattr(one, name) for one in self.brought], dtype=float) for name in NUMBERS},
            "why": [one.why.sentence for one in self.brought],
        }
        if self.defended is not None:
            stands = self.defended.stands
            columns["standing"] = [one.standing for one in stands]
            for name in ("held_back", "released", "returned"):
                columns[name] = self._money(getattr(one, name) for one in stands)
        epsilons = [line.epsilon for line in lines]
        return columns if all(one is None for one in epsilons) else {**columns, "epsilon": epsilons}

    def _round_columns(self) -> dict[str, Any]:
        rounds = self.columns
        paid = [0, *rounds.spent]
        losses = [np.nan if loss is None else loss for loss in self.losses]
        return {
            "round": range(len(paid)),
            "utility": self.utilities,
            "loss": losses,
            "spent": self._money(accumulate(paid)),
            "paid": self._money(paid),
            "accesses": [0, *rounds.sizes.tolist()],
            "failures": [0, *rounds.failed.tolist()],
        }

    def _money(self, amounts: Iterable[int]) -> list[float] | list[int]:
        unit = 10**self.currency.decimals
        return list(amounts) if unit == 1 else [amount / unit for amount in amounts]

    def plot(self, figure: str = "learning") -> Figure:
        """A matplotlib Figure: "learning" (utility and loss), "distribution", "payouts", or "defence" of a market whose
        defence has measured anything."""
        # The figures stand in a room above this one, so they are found by their name, as the registries find rules.
        figures = resolve_name("databazaar.reports.figures:figures_of")(self)
        if figure not in figures:
            raise BazaarError(f"plot({figure!r}) is unknown: use one of {', '.join(figures)}")
        drawn: Figure = figures[figure](self)
        return drawn

    def _facts(self) -> dict[str, str]:
        given = [(name, value) for name, value in self.sampler.items() if name != "kind" and value is not None]
        scores = self.columns.scores
        first, last = (scores[0].loss if scores else self.final_loss), self.final_loss
        losses = {} if first is None or last is None else {"loss": f"{first:.4g} → {last:.4g}"}
        return {
            "status": self.message,
            "budget": self.currency.format(self.budget),
            "utility": f"{scores[0].utility if scores else self.final_utility:.4g} → {self.final_utility:.4g}",
            **losses,
            "sampler": ", ".join([self.sampler["kind"], *(f"{name} = {value}" for name, value in given)]),
            "model": self.model_hash,
            "ledger": self.ledger_head,
        }

    def _table(self) -> tuple[tuple[str, ...], Sequence[tuple[object, ...]]]:
        heads = ("provider", "owner", "accesses", "failures", f"pay in {self.currency.name}")
        ranked, amount = sorted(self.payouts, key=lambda line: -line.pay), self.currency.amount
        rows = [(one.provider, one.owner, one.accesses, one.failures, Decimal(amount(one.pay))) for one in ranked]
        return heads, rows


def report_from(audit: Audit) -> Report:
    """The report of a ledger that has been replayed, closed or still open. One that does not hold is refused."""
    if not audit.ok or audit.terms is None or audit.book is None:
        raise LedgerError(f"the ledger does not hold, so nothing can be reported from it: {audit.message}")
    terms, book, closing, record = audit.terms, audit.book, audit.closing, audit.record or Record()
    roster, money, stopped = terms.roster, terms.currency.format, None
    sampler = SAMPLERS.build(terms.rules["sampler"])
    if closing is None:
        utility, loss = (float("nan"), None) if audit.scores is None else audit.scores.ended
        message = (
            f"not finished: {audit.rounds} rounds played so far, {money(book.spent)} paid; "
            "nothing here is final until the run is resumed to its end, or closed"
        )
        closing = {"status": "open", "refunded": 0, "utility": utility, "loss": loss}
    else:
        stopped = Stopped.read(closing["stop"])
        message = str(end_of(stopped, book, terms.currency))
    payouts = Payouts(
        Payout(who, owner, price, book.accesses.get(who, 0), book.pay.get(who, 0), book.failures.get(who, 0))
        for who, owner, price in zip(roster.ids, roster.owners, roster.prices.tolist(), strict=True)
    )
    return Report(
        status=closing["status"],
        message=message,
        rules=terms.rules,
        seed=terms.seed,
        currency=terms.currency,
        budget=terms.budget,
        per_round=terms.per_round,
        spent=book.spent,
        refunded=closing["refunded"],
        held=book.held,
        payouts=payouts,
        rounds=record.rounds,
        distributions=record.distributions,
        purses=record.purses,
        final_utility=closing["utility"],
        final_loss=closing["loss"],
        model_hash=audit.delivered or "",
        last_model_hash=audit.model or "",
        best=audit.best,
        ledger_head=audit.head,
        stopped_by=None if stopped is None else stopped.reason,
        regret_bound=regret_bound(terms, sampler, audit.rounds * terms.per_round),
        market=terms.market,
        consumer=terms.consumer,
        gains=sampler.wants.gains,
        environment=terms.environment,
        defended=defended_by(audit),
    )


def regret_bound(terms: Terms, sampler: Sampler, accesses: int) -> float | None:
    """Theorem 1's bound in units of utility over the accesses played, where it applies: OSMD with equal prices, no
    caps, limits or defence, and a utility in [0, 1]."""
    if "defence" in terms.rules or not terms.bounded_utility or type(sampler) is not OSMD:
        return None
    if terms.limited or len({offer.price for offer in terms.roster.offers}) != 1 or not accesses:
        return None
    return sampler.regret_bound(len(terms.roster), accesses, terms.per_round)
