"""What is agreed before the first round: the first entry of every ledger.

There is one format, 5. A ledger of another one is refused: commit cb2e572 is the last that reads formats 1 to 4.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from databazaar.display import Displayed, listed
from databazaar.errors import BazaarError, LedgerError
from databazaar.money import Currency
from databazaar.roster import PriceChange, ProviderTerms, Roster

FORMAT = 5
RULES, OPTIONAL = ("sampler", "aggregator", "payment", "stops"), ("utility", "learner", "defence")
"""What every market has; one with a defence has that, too."""
LIMITS = ("most_per_access", "most_per_round")
"""What the consumer pays at the most, beside its budget."""
NAMES, TABLES = ("market", "consumer", "layout", "frozen"), ("data", "notes", "environment", "holdout")
ABOUT = (*NAMES, *TABLES)
"""What the terms say of the market itself, where there is something to say. Rules do not see it."""
NOT_AGREED = ("notes", "environment")
"""What is only said: a run may go on elsewhere, with another version."""

MOST = {"providers": 10**5, "accesses a round": 10**6, "stops": 100, "decimals": 18, "prices over time": 2 * 10**7}
"""What terms may ask of a replay: an audit reads ledgers of anybody, and must end within seconds or say
why not. Prices over time are the providers times the rounds in which some price changes."""
LARGEST_AMOUNT, LARGEST_SEED = 2**63 - 1, 2**256


@dataclass(frozen=True, repr=False)
class Terms(Displayed):
    """All that an audit needs to replay a run.

    `rules` are the settings of the sampler, the aggregator and the payment, and a list of those of the stops. `market`
    and `consumer` are names, and `data` is the SHA-256 of every file by its name. `layout` is the digest of the model's
    names and shapes (`vectors.layout_digest`), `notes` has those of files that lie beside the ledger, and `environment`
    says which versions began the run, and where. `holdout` has the SHA-256 of its two parts' rows, where a defence
    parts it (market/inspection/holdout_parts.py). `frozen` is the digest of the model's tensors that are not trained.
    `most_per_access` and `most_per_round` are the consumer's limits. What is not given is not written.
    """

    seed: int
    budget: int
    per_round: int
    currency: Currency
    roster: Roster
    rules: dict[str, Any]
    bounded_utility: bool
    initial_model: str
    market: str = ""
    consumer: str = ""
    data: dict[str, str] = field(default_factory=dict)
    layout: str = ""
    notes: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    holdout: dict[str, str] = field(default_factory=dict)
    frozen: str = ""
    most_per_access: int | None = None
    most_per_round: int | None = None

    def __post_init__(self) -> None:
        _refuse_more(
            {
                "providers": len(self.roster),
                "accesses a round": self.per_round,
                "stops": len(self.rules.get("stops", ())),
                "decimals": self.currency.decimals,
                "prices over time": len(self.roster) * len(self.roster.change_rounds),
            }
        )
        limits = [limit for name in LIMITS if (limit := getattr(self, name)) is not None]
        if max([self.budget, *limits, *(offer.price for offer in self.roster.offers)]) > LARGEST_AMOUNT:
            raise BazaarError("a market with amounts of 2^63 minor units or more is refused: use larger units")
        if not 0 <= self.seed < LARGEST_SEED:
            raise BazaarError("a market with a seed below 0, or of 2^256 or more, is refused: take a smaller one")

    @property
    def limited(self) -> bool:
        """Whether anything but the budget keeps somebody from being asked, or changes what an access costs."""
        more = any(not offer.plain for offer in self.roster.offers)
        return more or any(getattr(self, name) is not None for name in LIMITS)

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> Terms:
        try:
            if body["format"] != FORMAT:
                raise LedgerError(f"entry 0 (open): ledger format {body['format']} needs another version of databazaar")
            limits = {name: body[name] for name in LIMITS if name in body}
            _refuse_more({"providers": len(body["providers"])})  # before as many offers are made
            offers = [_offer(one) for one in body["providers"]]
            numbers = [body["seed"], body["budget"], body["per_round"], *limits.values()]
            numbers.append(body["currency"].get("decimals", 0))
            if any(type(number) is not int for number in numbers) or any(
                type(offer.price) is not int for offer in offers
            ):
                raise LedgerError("entry 0 (open): seed, budget, per_round, limits and prices must be whole numbers")
            if type(body["bounded_utility"]) is not bool or type(body["initial_model"]) is not str:
                raise LedgerError("entry 0 (open): bounded_utility or initial_model is not what a ledger writes")
            rules = body["rules"]
            about: dict[str, Any] = {name: str(body.get(name, "")) for name in NAMES}
            for name in TABLES:
                about[name] = {str(key): str(value) for key, value in body.get(name, {}).items()}
            return cls(
                seed=body["seed"],
                budget=body["budget"],
                per_round=body["per_round"],
                currency=Currency(**body["currency"]),
                roster=Roster(offers),
                rules={name: rules[name] for name in (*RULES, *(one for one in OPTIONAL if one in rules))},
                bounded_utility=body["bounded_utility"],
                initial_model=body["initial_model"],
                **about,
                **limits,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as reason:
            raise LedgerError(f"entry 0 (open): the terms cannot be read ({reason!r})") from None

    def body(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "seed": self.seed,
            "budget": self.budget,
            **{name: limit for name in LIMITS if (limit := getattr(self, name)) is not None},
            "per_round": self.per_round,
            "currency": {"name": self.currency.name, "decimals": self.currency.decimals},
            "providers": [_written(offer) for offer in self.roster.offers],
            "rules": self.rules,
            "bounded_utility": self.bounded_utility,
            "initial_model": self.initial_model,
            **{name: value for name in ABOUT if (value := getattr(self, name))},
        }

    def _facts(self) -> dict[str, str]:
        return {
            "budget": self.currency.format(self.budget),
            **{
                name.replace("_", " "): self.currency.format(limit)
                for name in LIMITS
                if (limit := getattr(self, name)) is not None
            },
            "accesses a round": f"{self.per_round:,}",
            "providers": f"{len(self.roster):,} ({listed(self.roster.ids)})",
            "sampler": str(self.rules["sampler"]["kind"]),
            "seed": str(self.seed),
        }

    @cached_property
    def places(self) -> dict[str, int]:
        return {provider: place for place, provider in enumerate(self.roster.ids)}


def _refuse_more(asked: dict[str, int]) -> None:
    for name, number in asked.items():
        if not 0 <= number <= MOST[name]:
            raise BazaarError(f"a market with {_few(number)} {name} is refused: {MOST[name]:,} are the most")


def _few(number: int) -> str:
    """A number that somebody else has chosen, and that may have a thousand digits."""
    return f"{number:,}" if number < 10**15 else "10^15 or more"


def _written(offer: ProviderTerms) -> list[Any]:
    """An offer as the terms hold it: what it agrees beside its price comes last, where there is such a thing."""
    more: dict[str, Any] = {} if offer.most_accesses is None else {"most_accesses": offer.most_accesses}
    if offer.price_changes:
        more["price_changes"] = [list(change) for change in offer.price_changes]
    return [offer.id, offer.owner, offer.price, *([more] if more else [])]


def _offer(given: list[Any]) -> ProviderTerms:
    id, owner, price, *rest = given
    if len(rest) > 1:
        raise ValueError(given)
    more = {**rest[0]} if rest else {}
    changes = tuple(PriceChange(from_round, price) for from_round, price in more.pop("price_changes", ()))
    return ProviderTerms(str(id), str(owner), price, price_changes=changes, **more)
