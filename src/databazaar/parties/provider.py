"""A provider: who it is, what an access costs and how often it may be had, and its oracle over its own data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from databazaar.display import Displayed, size_of
from databazaar.errors import BazaarError
from databazaar.learning.inputs import Examples, as_dataset
from databazaar.learning.oracles import CallableOracle, LocalSGD, Oracle
from databazaar.roster import PriceChange, ProviderTerms


@dataclass(frozen=True, eq=False, repr=False)
class Provider(Displayed):
    """One seller of updates. One owner may run several; `price` is what an access costs, in minor units.

    Give `data` = (x, y), where x may be a dict of inputs by name, or a torch Dataset or DataLoader; and an oracle if
    local SGD with its defaults does not suit. Or give as `oracle` any
    callable that takes the parameters as a NumPy vector and returns the update as one. A provider with neither
    is one that answers from its own premises.

    `most_accesses` is how often one job may draw it: every draw counts, also one whose reply failed. `price_changes`
    are announced to everybody before the first round: pairs (round, price), the first round being 0.

    `source` gives the same `data` again wherever it is called: on another machine of a cluster, for instance.

    >>> Provider("pier-bank", price=20, most_accesses=30, price_changes=[(10, 25)]).offer.price_at(10)
    25

    >>> Provider("harbour-bank", data=([[0.1, 2.0], [1.3, 0.4]], [0, 1])).owner
    'harbour-bank'
    """

    id: str
    data: Any = None
    oracle: Oracle | CallableOracle | None = None
    owner: str = ""
    price: int = 1
    most_accesses: int | None = None
    price_changes: Iterable[tuple[int, int]] = ()
    source: Callable[[], Any] | None = None
    offer: ProviderTerms = field(init=False)
    """The provider as the market's rules see it."""

    def __post_init__(self) -> None:
        if not (isinstance(self.id, str) and self.id and self.id.isprintable()):
            raise BazaarError(f"provider id {self.id!r} must be text that can be printed: give it a name")
        if isinstance(self.price, bool) or not isinstance(self.price, int) or self.price < 1:
            raise BazaarError(
                f"provider {self.id}: price = {self.price!r} must be a whole number of minor units, one or more"
            )
        if self.price >= 2**63:
            raise BazaarError(f"provider {self.id}: price = {self.price} is more than a ledger holds: lower it")
        if self.most_accesses is not None and (
            isinstance(self.most_accesses, bool) or not isinstance(self.most_accesses, int) or self.most_accesses < 1
        ):
            raise BazaarError(
                f"provider {self.id}: most_accesses = {self.most_accesses!r} must be a whole number of at least 1, or "
                "left out"
            )
        object.__setattr__(self, "owner", self.owner or self.id)
        object.__setattr__(self, "price_changes", changes := _changes(self.id, self.price_changes))
        object.__setattr__(self, "offer", ProviderTerms(self.id, self.owner, self.price, self.most_accesses, changes))
        if self.data is not None:
            object.__setattr__(self, "data", as_dataset(self.data, f"provider {self.id}"))
        if self.oracle is None and self.data is not None:
            object.__setattr__(self, "oracle", LocalSGD())
        elif isinstance(self.oracle, Oracle) and self.data is None:
            raise BazaarError(f"provider {self.id}: {type(self.oracle).__name__} needs data = (x, y)")

    @property
    def sells_rows(self) -> bool:
        """Whether its rows are here, and nothing is said of how it updates a model."""
        return self.data is not None and self.oracle == LocalSGD()

    def _facts(self) -> dict[str, str]:
        ours = isinstance(self.oracle, Oracle)
        facts = {
            "id": self.id,
            "owner": self.owner,
            "data": "its own premises" if self.data is None else size_of(self.data),
            "oracle": str(self.oracle) if ours else getattr(self.oracle, "__name__", type(self.oracle).__name__),
            "price": ", ".join([str(self.price), *(f"{p} from round {r} on" for r, p in self.offer.price_changes)]),
            "most accesses": str(self.most_accesses),
        }
        absent = {"owner"} if self.owner == self.id else set()
        absent |= {"most accesses"} if self.most_accesses is None else set()
        return {name: fact for name, fact in facts.items() if name not in absent}

    @property
    def dataset(self) -> Examples:
        if self.data is None:
            raise BazaarError(f"provider {self.id} keeps its data to itself: it only answers through its oracle")
        examples: Examples = self.data
        return examples


def _changes(id: str, given: Any) -> tuple[PriceChange, ...]:
    try:
        return tuple(PriceChange(from_round, price) for from_round, price in given)
    except (TypeError, ValueError):
        raise BazaarError(
            f"provider {id}: price_changes = {given!r} must be pairs of a round and a price: write [(10, 25)]"
        ) from None
