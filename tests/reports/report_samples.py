"""Reports made up for the tests: random, and consistent the way a ledger is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from databazaar.codes import Code
from databazaar.money import Currency
from databazaar.roster import RoundBudget
from databazaar.runs.purchase import MARKET, OWN, SINGLE, UNIFORM, EvaluatedModel, PurchaseEvaluation
from databazaar.runs.report import Access, Payout, Report, Round


def sample_report(
    names: Sequence[str] = ("north", "south", "east"),
    *,
    owners: Sequence[str] | None = None,
    rounds: int = 12,
    per_round: int = 3,
    prices: Sequence[int] | None = None,
    failure_rate: float = 0.05,
    reasons: Sequence[str] = ("the update holds NaN", "the oracle raised ValueError: no rows"),
    learns: bool = True,
    with_loss: bool = True,
    currency: Currency | None = None,
    seed: int = 0,
    notes: Sequence[str] = (),
) -> Report:
    """A run that never happened: payments follow the accesses, and spent + refunded is the budget."""
    rng = np.random.default_rng(seed)
    n = len(names)
    price = np.asarray(prices if prices is not None else [100] * n, dtype=np.int64)
    worth = rng.permutation(np.linspace(-0.2, 0.5, n)) if learns else np.ones(n)
    logits, distributions, history = np.zeros(n), [np.full(n, 1 / n)], []
    accesses, failures, pay = np.zeros(n, int), np.zeros(n, int), np.zeros(n, int)
    utility = 0.5
    for number in range(rounds):
        drawn = []
        for draw, provider in enumerate(rng.choice(n, size=per_round, p=distributions[-1])):
            failed = rng.random() < failure_rate
            gain = None if failed else float(worth[provider] / (20 + number) + rng.normal(0, 0.003))
            paid = 0 if failed else int(price[provider])
            reason = Code.of("own-words", text=str(rng.choice(list(reasons)))) if failed else None
            probability = float(distributions[-1][provider])
            drawn.append(Access(draw, int(provider), probability, gain, paid, reason, int(price[provider])))
            failures[provider] += failed
            accesses[provider] += not failed
            pay[provider] += paid
            if gain is not None and learns:
                logits[provider] += min(20 * gain / (n * probability), 0.15)
        loss = float(-np.log(utility)) if with_loss else None
        before, rate = (utility, loss), 0.04 if learns else 0.02
        utility += (0.93 - utility) * rate + float(rng.normal(0, 0.004))
        reached_loss = float(-np.log(utility)) if with_loss else None
        history.append(Round(number, tuple(drawn), *before, utility, reached_loss))
        p = np.exp(np.clip(logits, None, 30) - min(logits.max(), 30))
        distributions.append(0.1 / n + 0.9 * p / p.sum())
    spent = int(pay.sum())
    refunded = int((failures * price).sum()) + 7
    asked = [sum(access.quoted for access in one.accesses) for one in history]
    who = owners if owners is not None else names
    return Report(
        status="settled",
        message="The budget was spent.",
        rules={
            "sampler": {"kind": "osmd", "eta": 0.0123456789, "alpha": 0.1, "switches": None},
            "aggregator": {"kind": "mean"},
            "payment": {"kind": "price-per-access"},
            "stops": [{"kind": "patience", "rounds": 10}],
        },
        stopped_by=Code("budget-spent"),
        seed=seed,
        currency=currency or Currency("EUR", 2),
        budget=spent + refunded,
        per_round=per_round,
        spent=spent,
        refunded=refunded,
        payouts=tuple(
            Payout(names[i], who[i], int(price[i]), int(accesses[i]), int(pay[i]), int(failures[i])) for i in range(n)
        ),
        rounds=tuple(history),
        distributions=np.array(distributions),
        purses=tuple(RoundBudget(spent + refunded - sum(asked[:i]), price) for i in range(rounds + 1)),
        final_utility=utility,
        final_loss=float(-np.log(utility)) if with_loss else None,
        model_hash="ab" * 32,
        ledger_head="0123456789abcdef" * 4,
        regret_bound=41.7 if learns else None,
        notes=tuple(notes),
    )


def sample_worth(
    single: str = "north, of the 3 paid most", *, ahead: float = 0.05, notes: Sequence[str] = ()
) -> PurchaseEvaluation:
    """A purchase that was judged: ahead of own rows by `ahead` ± 0.01, and behind the best single provider."""

    def measured(loss: float) -> dict[str, float]:
        return {"accuracy": 1 - loss / 3, "log_loss": loss, "auc": 1 - loss / 5, "brier": loss / 4}

    others = (
        EvaluatedModel(OWN, measured(0.3 + ahead), ahead, 0.01),
        EvaluatedModel(UNIFORM, measured(0.32), 0.02, 0.004),
        EvaluatedModel(SINGLE, measured(0.25), -0.05, 0.02, single),
    )
    bought = EvaluatedModel(MARKET, measured(0.3))
    return PurchaseEvaluation("classification", 1234, bought, others, {"accuracy": (0.88, 0.92)}, tuple(notes))
