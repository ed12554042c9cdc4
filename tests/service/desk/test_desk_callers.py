"""Rights as they are decided: by role and by scope, each alone and all together; and the bounds of a policy."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError
from sqlalchemy import update

from databazaar.learning.asked_rows import LEAST_ROWS
from databazaar.service.caller import SCOPES, Caller, allowed_scopes, own_row
from databazaar.service.database.tables import Offer, Organisation
from databazaar.service.errors import DeniedError, InvalidError, MissingError
from databazaar.service.lifecycle import NEXT_OF_CONTRACT, NEXT_OF_JOB, OVER
from databazaar.service.policy import Policy, read_policy
from desk_market import DeskMarket
from row_locks import row_locks

ROLES = list(itertools.product([False, True], repeat=3))
EVERY = frozenset({"read", "jobs", "offers", "money", "operate"})


def test_the_rights_there_are() -> None:
    assert SCOPES == ("read", "jobs", "offers", "money", "operate")


@pytest.mark.parametrize(
    ("roles", "rights"),
    [
        ((False, False, False), {"read"}),
        ((True, False, False), {"read", "operate", "money"}),
        ((False, True, False), {"read", "jobs", "money"}),
        ((False, False, True), {"read", "offers", "money"}),
        ((True, True, False), {"read", "operate", "jobs", "money"}),
        ((False, True, True), {"read", "jobs", "offers", "money"}),
        ((True, False, True), {"read", "operate", "offers", "money"}),
        ((True, True, True), EVERY),
    ],
)
def test_what_roles_allow(roles: tuple[bool, bool, bool], rights: set[str]) -> None:
    assert allowed_scopes(*roles) == rights
    organisation = Organisation(id="o1", slug="acme", operates=roles[0], consumes=roles[1], provides=roles[2])
    caller = Caller.of(organisation, person_id="p1", token_id="t1")
    assert caller == Caller("o1", "acme", *roles, frozenset(rights), "p1", "t1")
    for scopes in ({"operate"}, {"jobs", "read"}, EVERY, {"offers", "else"}, set[str]()):
        assert Caller.of(organisation, frozenset(scopes)).scopes == rights & scopes


def allows(deed: Callable[[], None]) -> bool:
    try:
        deed()
    except DeniedError:
        return False
    return True


@pytest.mark.parametrize("roles", ROLES)
@pytest.mark.parametrize("without", [None, *SCOPES])
def test_a_deed_needs_the_role_and_the_right(roles: tuple[bool, bool, bool], without: str | None) -> None:
    """Of all pairs of roles and rights, those that the role of a token's organisation lost meanwhile too."""
    operates, consumes, provides = roles
    caller = Caller("o1", "acme", operates, consumes, provides, EVERY - {without or ""})
    assert caller.sees_all == (operates and without != "operate")
    assert allows(caller.require_operator) == (operates and without != "operate")
    assert allows(caller.require_consumer) == (consumes and without != "jobs")
    assert allows(caller.require_provider) == (provides and without != "offers")
    for scope in SCOPES:
        assert allows(lambda scope=scope: caller.require(scope)) == (scope != without)  # type: ignore[misc]


@pytest.mark.parametrize("lock", [False, True])
def test_a_row_is_its_organisations_alone_and_as_it_is_now_if_it_is_locked(small: DeskMarket, lock: bool) -> None:
    with small.database.begin() as session:
        north, south = (small.offer(session, slug) for slug in ("north", "south"))
        session.execute(update(Offer).values(name="New"), execution_options={"synchronize_session": False})
        with row_locks(session) as locked:
            assert own_row(session, small["south"], Offer, south.id, "none", lock) is south
            assert own_row(session, small["north"], Offer, north.id, "none", lock) is north
        assert locked == ["offers", "offers"] * lock
        with row_locks(session) as locked:
            own_row(session, small["south"], Offer, south.id, "none")
        assert locked == []
        assert north.name == ("New" if lock else "Sales of north")
        for caller, id in (("south", north.id), ("buyer", north.id), ("hub", north.id), ("north", "0" * 32)):
            with pytest.raises(MissingError, match="none"):
                own_row(session, small[caller], Offer, id, "none", lock)


FINE: dict[str, list[Any]] = {
    "price": [1, 10**12],
    "most_accesses": [None, 1, 10**12],
    "most_rows": [None, LEAST_ROWS, 10**12],
    "epsilon": [None, 1e-9, 0.5, 1e6],
    "epsilon_per_consumer": [None, 1e-9, 1e6],
    "days_to_decide": [1, 365],
    "modes": [None, ("hosted",), ("own",), ("hosted", "own")],
    "consumers": [None, (), ("acme",)],
    "models": [None, ("logistic",)],
    "approval": ["automatic", "by hand"],
}
WRONG: dict[str, list[Any]] = {
    "price": [0, -1, 10**12 + 1, None, 1.5],
    "most_accesses": [0, 10**12 + 1],
    "most_rows": [LEAST_ROWS - 1, 10**12 + 1],
    "epsilon": [0, -0.5, 1e6 + 1, float("inf"), float("nan")],
    "epsilon_per_consumer": [0, 1e6 + 1, float("inf")],
    "days_to_decide": [0, 366],
    "modes": [(), ("else",)],
    "models": [("else",)],
    "approval": ["else"],
    "extra": [1],
}


def cases(table: dict[str, list[Any]]) -> list[tuple[str, Any]]:
    return [(field, value) for field, values in table.items() for value in values]


@pytest.mark.parametrize(("field", "value"), cases(FINE))
def test_a_policy_keeps_what_is_within_its_bounds(field: str, value: Any) -> None:
    assert getattr(Policy(**{"price": 5, field: value}), field) == value


@pytest.mark.parametrize(("field", "value"), cases(WRONG))
def test_a_policy_refuses_what_is_beyond_its_bounds(field: str, value: Any) -> None:
    with pytest.raises(ValidationError):
        Policy(**{"price": 5, field: value})


def refused(given: Any) -> tuple[str, str | None]:
    """What is said of a policy, and the field that it is said of."""
    with pytest.raises(InvalidError) as found:
        read_policy(given)
    return str(found.value), found.value.place


def test_a_policy_names_at_most_a_thousand_consumers_by_their_slugs() -> None:
    several = [f"c{number}" for number in range(1000)]
    assert read_policy({"price": 5, "consumers": several}).consumers == tuple(several)
    said, place = refused({"price": 5, "consumers": [*several, "more"]})
    assert "names more than 1,000: leave it out to allow all" in said and place == "consumers"
    assert read_policy({"price": 5, "consumers": ["a" * 40]}).consumers == ("a" * 40,)
    for wrong in ("a" * 41, "Acme", ""):
        said, place = refused({"price": 5, "consumers": ["acme", wrong]})
        assert said.startswith("policy: consumers[1] = ") and "at most 40 small letters" in said
        assert place == "consumers"


def test_the_first_thing_that_is_wrong_with_a_policy_is_told_with_its_field() -> None:
    said, place = refused({"price": 0, "days_to_decide": 0})
    assert said.startswith("policy: price: ") and said.endswith(": correct it") and place == "price"
    said, place = refused({"price": 5, "models": ["logistic", "else"]})
    assert said.startswith("policy: models.1: ") and place == "models"
    said, place = refused([])
    assert said.startswith("policy: policy: ") and place == ""
    said, place = refused({"price": 5, "x" * 70: 1})
    assert said.startswith(f"policy: {'x' * 60}: ") and place == "x" * 70


def test_a_policy_that_says_nothing_but_its_price_asks_its_owner_within_two_weeks() -> None:
    policy = Policy(price=5)
    assert policy.approval == "by hand" and policy.days_to_decide == 14
    assert {name for name, value in policy if value is not None} == {"price", "approval", "days_to_decide"}
    with pytest.raises(ValidationError):
        policy.price = 1


def test_which_state_may_follow_which() -> None:
    jobs = {state.value: {one.value for one in after} for state, after in NEXT_OF_JOB.items()}
    assert jobs == {
        "draft": {"submitted", "refunded"},
        "submitted": {"agreed", "refunded", "failed"},
        "agreed": {"funded", "refunded"},
        "funded": {"queued", "running", "settling"},
        "queued": {"running", "settling"},
        "running": {"queued", "settling"},
        "settling": {"settled", "refunded", "failed"},
        **{state: set() for state in ("settled", "refunded", "failed")},
    }
    assert {state.value for state in OVER} == {state for state, after in jobs.items() if not after}
    contracts = {state.value: {one.value for one in after} for state, after in NEXT_OF_CONTRACT.items()}
    assert contracts == {
        "requested": {"agreed", "refused", "expired", "ended"},
        "agreed": {"active", "ended"},
        "active": {"ended"},
        **{state: set() for state in ("refused", "expired", "ended")},
    }
