"""Offers: what is shown of them and to whom, versions, policies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from databazaar.service import members, offers
from databazaar.service.errors import ConflictError, InvalidError, MissingError
from databazaar.service.policy import Policy, read_policy
from desk_market import DeskMarket, table

COLUMNS = [{"name": "a", "kind": "number"}]


def test_a_listing_shows_columns_rows_and_terms_and_nothing_of_the_data(small: DeskMarket) -> None:
    with small.database.begin() as session:
        made = small.offer(session, "north", 1, consumers=["buyer", "rival"], most_accesses=9)
        shown = offers.listing(session, small["buyer"], made.id)
        assert shown == offers.listing(session, small["buyer"], "north-sales")
    assert (shown.slug, shown.provider, shown.price, shown.rows, shown.version) == ("north-sales", "north", 5, 60, 1)
    assert [(c["name"], c["kind"]) for c in shown.columns] == [
        ("distance", "number"),
        ("weight", "number"),
        ("vehicle", "category"),
        ("late", "number"),
    ]
    assert shown.terms["most_accesses"] == 9
    assert "rival" not in repr(shown) and "ship" not in repr(shown)


def test_who_is_shown_an_offer(small: DeskMarket) -> None:
    def seen(slug: str) -> list[str]:
        return [listing.slug for listing in offers.browse(session, small[slug])]

    with small.database.begin() as session:
        small.offer(session, "north", 1)
        only = small.offer(session, "south", 2, consumers=["buyer"])
        assert seen("buyer") == seen("hub") == ["north-sales", "south-sales"]
        assert seen("rival") == seen("north") == ["north-sales"]
        assert seen("south") == ["south-sales"]  # its own; others' offers are for consumers
        offers.change_policy(session, small["south"], only.id, Policy(price=7))
        assert seen("rival") == ["north-sales", "south-sales"]
        offers.withdraw_offer(session, small["south"], only.id)
        assert seen("buyer") == ["north-sales"]
        members.suspend(session, small["hub"], small["north"].organisation_id)
        assert seen("buyer") == []
        assert [offer.slug for offer in offers.own_offers(session, small["south"])] == ["south-sales"]
        with pytest.raises(ConflictError, match="withdrawn"):
            offers.change_policy(session, small["south"], only.id, Policy(price=1))


def test_a_new_version_is_for_later_jobs(small: DeskMarket) -> None:
    with small.database.begin() as session:
        offer = small.offer(session, "north", 1)
        first = offers.current_version(session, offer)
        file_id = small.upload(session, "north", table(2, rows=99))
        second = offers.new_version(session, small["north"], offer.id, file_id)
        assert (second.number, second.rows) == (2, 99)
        assert offers.current_version(session, offer) is second and first.number == 1
        assert offers.listing(session, small["buyer"], offer.id).version == 2


UNFIT_POLICIES: list[tuple[dict[str, Any], str]] = [
    ({}, "policy: price: Field required"),
    ({"price": 0}, "policy: price"),
    ({"price": 1.5}, "policy: price"),
    ({"price": 1, "color": "red"}, "policy: color"),
    ({"price": 1, "models": ["quantum"]}, "policy: models.0"),
    ({"price": 1, "epsilon": float("nan")}, "policy: epsilon"),
    ({"price": 1, "consumers": ["A b"]}, r"policy: consumers\[0\]"),
    ({"price": 1, "consumers": ["a"] * 1001}, "more than 1,000"),
    ({"price": 1, "epsilon": 2.0}, "only a site keeps count of ε"),
    ({"price": 1, "epsilon_per_consumer": 2.0}, "only a site keeps count of ε"),
]


def test_a_policy_that_cannot_be_is_refused_in_one_sentence(small: DeskMarket) -> None:
    with small.database.begin() as session:
        offer = small.offer(session, "north", 1)
    for policy, said in UNFIT_POLICIES:
        with pytest.raises(InvalidError, match=said), small.database.begin() as session:
            offers.change_policy(session, small["north"], offer.id, read_policy(policy))


def test_slugs_begin_with_the_organisations_and_are_nobody_elses(small: DeskMarket) -> None:
    with small.database.begin() as session:
        assert small.offer(session, "north", name="north-sales").slug == "north-sales"
        members.invite(session, small["hub"], name="Sea", slug="north-sea", email="a@sea.example", provides=True)
        for slug, error in (("sea-x", ConflictError), ("x" * 55, InvalidError), ("A b", InvalidError)):
            with pytest.raises(error):
                small.offer(session, "north", name=slug)
        with pytest.raises(ConflictError, match="north-sales"):
            small.offer(session, "north", name="sales")


def test_sites(small: DeskMarket) -> None:
    given: dict[str, Any] = {"name": "Ward", "slug": "ward", "description": "", "policy": Policy(price=3, epsilon=8.0)}
    federated = replace(small.settings, federation=Path("/srv/federation"))
    with small.database.begin() as session:
        with pytest.raises(ConflictError, match="no federation"):
            offers.make_offer(session, small["north"], small.settings, site="north-ward", columns=COLUMNS, **given)
        site = offers.make_offer(session, small["north"], federated, site="north-ward", columns=COLUMNS, **given)
        assert offers.listing(session, small["buyer"], site.id).rows is None
        with pytest.raises(ConflictError, match="is a site"):
            file_id = small.upload(session, "north", table(1))
            offers.new_version(session, small["north"], site.id, file_id)


UNFIT_SITES: list[tuple[dict[str, Any], str]] = [
    ({"site": "south-ward"}, "must be 'north-ward'"),
    ({"columns": []}, "1 to 10,000 columns"),
    ({"columns": [{"name": "a", "kind": "sound"}]}, "a kind out of number"),
    ({"columns": [{"name": "\0", "kind": "text"}]}, "visible text"),
    ({"rows": 0}, "rows = 0"),
    ({"description": "x" * 4001}, "description"),
    ({"description": "\x1b[2J"}, "description"),
]


def test_what_a_site_must_say(small: DeskMarket) -> None:
    policy = Policy(price=3)
    given = {"name": "Ward", "slug": "ward", "description": "", "policy": policy, "site": "north-ward"}
    federated = replace(small.settings, federation=Path("/srv/federation"))
    for changed, said in UNFIT_SITES:
        with pytest.raises(InvalidError, match=said), small.database.begin() as session:
            offers.make_offer(session, small["north"], federated, **{**given, "columns": COLUMNS, **changed})
    with small.database.read() as session, pytest.raises(MissingError):
        offers.listing(session, small["north"], "north-ward")
