"""The terms of an offer as a form has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from databazaar.learning.kinds import MODEL_KINDS
from databazaar.money import Currency
from databazaar.service.http.pages.forms import Form

APPROVALS = ("by hand", "automatic")
DAYS_TO_DECIDE = 14
MODELS = [(kind, kind, "") for kind in MODEL_KINDS]
MODES = [
    ("hosted", "hosted", "the hub’s arbiter gets your updates"),
    ("own", "own", "the consumer’s own arbiter gets them"),
]


def read_terms(form: Form, currency: Currency) -> dict[str, Any]:
    """What `offers.read_policy` takes; what is wrong stands in the form."""
    consumers = [one.strip() for one in form.text("consumers").replace("\n", ",").split(",") if one.strip()]
    return {
        "price": form.needed_amount("price", currency),
        "approval": form.choice("approval", APPROVALS),
        "consumers": consumers or None,
        "models": form.all("models") or None,
        "modes": form.all("modes") or None,
        "most_accesses": form.count("most_accesses"),
        "most_rows": form.count("most_rows"),
        "epsilon": form.number("epsilon"),
        "epsilon_per_consumer": form.number("epsilon_per_consumer"),
        "days_to_decide": form.count("days_to_decide") or DAYS_TO_DECIDE,
    }


PLACES = {
    "price": "policy: price",
    "models": "policy: models",
    "modes": "policy: modes",
    "most_accesses": "policy: most_accesses",
    "most_rows": "policy: most_rows",
    "epsilon_per_consumer": "policy: epsilon_per_consumer",
    "epsilon": "ε",
    "days_to_decide": "policy: days_to_decide",
}
"""The words by which a refused policy names a field."""


def shown_terms(policy: Mapping[str, Any] | None, currency: Currency) -> dict[str, Any]:
    """What the fields show at first: the terms that hold, or those that suit most."""
    given = policy or {"price": None, "approval": "by hand", "days_to_decide": DAYS_TO_DECIDE}

    def written(name: str) -> str:
        value = given.get(name)
        return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)

    bounds = ("most_accesses", "most_rows", "epsilon", "epsilon_per_consumer")
    return {
        "price": "" if given["price"] is None else currency.amount(given["price"]),
        "approval": given["approval"],
        "days_to_decide": written("days_to_decide"),
        "consumers": ", ".join(given.get("consumers") or ()),
        "models": list(given.get("models") or ()),
        "modes": list(given.get("modes") or ()),
        **{name: written(name) for name in bounds},
        "bounded": any(given.get(name) for name in (*bounds, "consumers", "models", "modes")),
    }
