"""What is said of an offer: its policy and its columns, as somebody has written them, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from databazaar.service.errors import InvalidError
from databazaar.service.policy import Policy
from databazaar.service.wording import slug_of, visible

MOST_COLUMNS = 10_000
MOST_CONSUMERS = 1000
KINDS = ("number", "date", "category", "text", "empty")


def read_policy(given: Policy | Mapping[str, Any], kind: str) -> Policy:
    """The policy of an offer of this kind, or one sentence that says what is wrong with it."""
    try:
        policy = given if isinstance(given, Policy) else Policy.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        setting = ".".join(str(part) for part in first["loc"]) or "policy"
        field = str(first["loc"][0]) if first["loc"] else ""
        raise InvalidError(f"policy: {setting[:60]}: {first['msg']}: correct it", place=field) from None
    if policy.consumers is not None:
        if len(policy.consumers) > MOST_CONSUMERS:
            raise InvalidError(
                f"policy: consumers names more than {MOST_CONSUMERS:,}: leave it out to allow all", place="consumers"
            )
        for place, consumer in enumerate(policy.consumers):
            slug_of(consumer, f"policy: consumers[{place}]", 40, "consumers")
    if kind == "file" and (policy.epsilon is not None or policy.epsilon_per_consumer is not None):
        said = "only a site keeps count of ε, as it answers with noise: offer a site, or leave ε out"
        raise InvalidError(said, place="epsilon")
    return policy


def read_columns(given: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The columns of a site as its provider describes them."""
    refuse_many(given)
    return [_column(column, place) for place, column in enumerate(given)]


def _column(given: Mapping[str, Any], place: int) -> dict[str, Any]:
    name, kind = given.get("name"), given.get("kind")
    if not isinstance(name, str) or kind not in KINDS:
        said = f"columns[{place}] must have a name, and a kind out of {', '.join(KINDS)}: correct it"
        raise InvalidError(said, place="columns")
    return {"name": visible(name, f"columns[{place}].name", 1000), "kind": kind}


def refuse_many(columns: Sequence[object]) -> None:
    if not 1 <= len(columns) <= MOST_COLUMNS:
        raise InvalidError(
            f"an offer has 1 to {MOST_COLUMNS:,} columns, not {len(columns):,}: leave some out", place="columns"
        )
