"""What is told of a run, wherever it is watched: parameters from its terms, numbers of a round and of the end."""

from __future__ import annotations

from databazaar.ledger import Terms
from databazaar.market.run import Progress
from databazaar.money import Currency
from databazaar.runs.report import Report


def parameters(terms: Terms) -> dict[str, str]:
    """The terms by name. The settings of a rule stand under its noun: `sampler.eta`."""
    found = {
        "budget": terms.currency.format(terms.budget),
        "per_round": str(terms.per_round),
        "providers": str(len(terms.roster)),
        "seed": str(terms.seed),
        "initial_model": terms.initial_model,
    }
    for noun in ("sampler", "learner", "aggregator", "payment", "utility"):
        for name, value in terms.rules.get(noun, {}).items():
            found[noun if name == "kind" else f"{noun}.{name}"] = str(value)
    found |= {f"defence.{name}": str(value) for name, value in terms.rules.get("defence", {}).items()}
    return {**found, "stops": ", ".join(stop["kind"] for stop in terms.rules["stops"])}


def round_numbers(progress: Progress, currency: Currency) -> tuple[dict[str, float], dict[str, float]]:
    """Numbers of the market, and the pay so far of those whom this round paid: a curve moves where somebody earns."""
    unit = 10**currency.decimals
    losses = {} if progress.loss is None else {"loss": progress.loss}
    market = {"utility": progress.utility, **losses, "spent": progress.spent / unit}
    return market, {provider: progress.pay[provider] / unit for provider in progress.paid}


def final_numbers(report: Report) -> tuple[dict[str, float], dict[str, float]]:
    """The outcome, and everybody's pay, also where it is nothing."""
    unit = 10**report.currency.decimals
    losses = {} if report.final_loss is None else {"loss": report.final_loss}
    outcome = {
        "utility": report.final_utility,
        **losses,
        "spent": report.spent / unit,
        "refunded": report.refunded / unit,
        "rounds": float(len(report.rounds)),
    }
    return outcome, {line.provider: line.pay / unit for line in report.payouts}


def words(report: Report) -> dict[str, str]:
    """What proves which run it was."""
    return {"status": report.status, "model_hash": report.model_hash, "ledger_head": report.ledger_head}
