"""What is agreed before the first round: the first entry of every ledger.

Format 2 holds the settings of every rule, so that a run may stop early and pay less than it reserved. Ledgers of
format 1, which knew the sampler alone, are read as what they were: the mean, one price per access, and a run that ends
at the first round whose draws do not fit the budget.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from databazaar.display import Displayed, listed
from databazaar.errors import LedgerError
from databazaar.money import Currency
from databazaar.roster import Roster

FORMAT = 2
ABOUT = ("market", "consumer", "data")
"""What the terms say of the market itself. Rules do not see it, and ledgers before 0.3.0 do not have it."""


@dataclass(frozen=True, repr=False)
class Terms(Displayed):
    """All that an audit needs to replay a run.

    `rules` are the settings of the sampler, the aggregator and the payment, and a list of those of the stops. `market`
    and `consumer` are names, and `data` is the SHA-256 of every file by its name: what is not given is not written.
    """

    seed: int
    budget: int
    per_round: int
    currency: Currency
    roster: Roster
    rules: dict[str, Any]
    bounded_utility: bool
    initial_model: str
    format: int = FORMAT
    market: str = ""
    consumer: str = ""
    data: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> Terms:
        """The terms that an opening entry holds, of this format or the one before."""
        try:
            format = body["format"]
            if format not in (1, FORMAT) or isinstance(format, bool):
                raise LedgerError(f"entry 0 (open): ledger format {format} needs another version of databazaar")
            numbers = [body["seed"], body["budget"], body["per_round"], *(price for _, _, price in body["providers"])]
            if any(type(number) is not int for number in numbers):
                raise LedgerError("entry 0 (open): seed, budget, per_round and prices must be whole numbers")
            rules = body["rules"] if format == FORMAT else _rules_of_format_1(body)
            return cls(
                seed=body["seed"],
                budget=body["budget"],
                per_round=body["per_round"],
                currency=Currency(**body["currency"]),
                roster=Roster.of((str(i), str(owner), price) for i, owner, price in body["providers"]),
                rules={name: rules[name] for name in ("sampler", "aggregator", "payment", "stops")},
                bounded_utility=body["bounded_utility"],
                initial_model=body["initial_model"],
                format=format,
                market=str(body.get("market", "")),
                consumer=str(body.get("consumer", "")),
                data={str(name): str(digest) for name, digest in body.get("data", {}).items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as reason:
            raise LedgerError(f"entry 0 (open): the terms cannot be read ({reason!r})") from None

    def body(self) -> dict[str, Any]:
        """The opening entry's body, of the current format."""
        return {
            "format": self.format,
            "seed": self.seed,
            "budget": self.budget,
            "per_round": self.per_round,
            "currency": {"name": self.currency.name, "decimals": self.currency.decimals},
            "providers": [[offer.id, offer.owner, offer.price] for offer in self.roster.offers],
            "rules": self.rules,
            "bounded_utility": self.bounded_utility,
            "initial_model": self.initial_model,
            **{name: value for name in ABOUT if (value := getattr(self, name))},
        }

    def _facts(self) -> dict[str, str]:
        return {
            "budget": self.currency.format(self.budget),
            "accesses a round": f"{self.per_round:,}",
            "providers": f"{len(self.roster):,} ({listed(self.roster.ids)})",
            "sampler": str(self.rules["sampler"]["kind"]),
            "seed": str(self.seed),
        }

    @cached_property
    def places(self) -> dict[str, int]:
        """Every provider's place in the roster."""
        return {provider: place for place, provider in enumerate(self.roster.ids)}


def _rules_of_format_1(body: dict[str, Any]) -> dict[str, Any]:
    return {
        "sampler": body["sampler"],
        "aggregator": {"kind": "mean"},
        "payment": {"kind": "price-per-access"},
        "stops": [{"kind": "patience", "rounds": body["patience"]}, {"kind": "budget"}],
    }
