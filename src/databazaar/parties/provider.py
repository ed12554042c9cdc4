"""A provider: who it is, what an access costs, and its oracle over its own data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from databazaar.display import Displayed, size_of
from databazaar.errors import BazaarError
from databazaar.learning.inputs import Examples, as_dataset
from databazaar.learning.oracles import CallableOracle, LocalSGD, Oracle


@dataclass(frozen=True, eq=False, repr=False)
class Provider(Displayed):
    """One seller of updates. One owner may run several; `price` is what an access costs, in minor units.

    Give `data` = (x, y), where x may be a dict of inputs by name, or a torch Dataset or DataLoader; and an oracle if
    local SGD with its defaults does not suit. Or give as `oracle` any
    callable that takes the parameters as a NumPy vector and returns the update as one. A provider with neither
    is one that answers from its own premises.

    >>> Provider("harbour-bank", data=([[0.1, 2.0], [1.3, 0.4]], [0, 1])).owner
    'harbour-bank'
    """

    id: str
    data: Any = None
    oracle: Oracle | CallableOracle | None = None
    owner: str = ""
    price: int = 1

    def __post_init__(self) -> None:
        if not (isinstance(self.id, str) and self.id and self.id.isprintable()):
            raise BazaarError(f"provider id {self.id!r} must be text that can be printed: give it a name")
        if isinstance(self.price, bool) or not isinstance(self.price, int) or self.price < 1:
            raise BazaarError(
                f"provider {self.id}: price = {self.price!r} must be a whole number of minor units, one or more"
            )
        if self.price >= 2**63:
            raise BazaarError(f"provider {self.id}: price = {self.price} is more than a ledger holds: lower it")
        object.__setattr__(self, "owner", self.owner or self.id)
        if self.data is not None:
            object.__setattr__(self, "data", as_dataset(self.data, f"provider {self.id}"))
        if self.oracle is None and self.data is not None:
            object.__setattr__(self, "oracle", LocalSGD())
        elif isinstance(self.oracle, Oracle) and self.data is None:
            raise BazaarError(f"provider {self.id}: {type(self.oracle).__name__} needs data = (x, y)")

    def _facts(self) -> dict[str, str]:
        ours = isinstance(self.oracle, Oracle)
        facts = {
            "id": self.id,
            "owner": self.owner,
            "data": "its own premises" if self.data is None else size_of(self.data),
            "oracle": str(self.oracle) if ours else getattr(self.oracle, "__name__", type(self.oracle).__name__),
            "price": str(self.price),
        }
        absent = {"owner"} if self.owner == self.id else set()
        return {name: fact for name, fact in facts.items() if name not in absent}

    @property
    def dataset(self) -> Examples:
        if self.data is None:
            raise BazaarError(f"provider {self.id} keeps its data to itself: it only answers through its oracle")
        examples: Examples = self.data
        return examples
