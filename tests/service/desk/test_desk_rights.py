"""Every deed against everybody who may not do it: another organisation, the wrong role, a token without the right.

The table names all deeds: one that is not in it fails the first test.
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy.orm import Session

from databazaar.files import write_whole
from databazaar.service import contracts, credentials, files, jobs, members, offers, outbox, submission
from databazaar.service.caller import Caller
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Contract, Job, Market, Offer
from databazaar.service.errors import DeniedError, InvalidError, MissingError
from databazaar.service.lifecycle import ContractState, contracts_of
from databazaar.service.policy import Policy
from databazaar.service.settings import Settings
from desk_market import SPEC, DeskMarket, desk_market, table

MODULES: tuple[ModuleType, ...] = (members, credentials, files, offers, contracts, jobs, submission, outbox)
POLICY = Policy(price=5)


@dataclass(frozen=True)
class World:
    """A market in which there is one of everything, by the names that the table uses."""

    market: DeskMarket
    ids: dict[str, str]

    @property
    def settings(self) -> Settings:
        return self.market.settings


Do = Callable[[World, Session, Caller], Any]


@dataclass(frozen=True)
class Deed:
    """`by` may do it; `other` has the same role and `wrong` another one.

    What they get is an error, or "nothing": a list without what is not theirs. `lacking` is the right without which a
    token may not; "person" says that no token may.
    """

    do: Do
    by: str
    other: str | None
    other_gets: type[Exception] | str = MissingError
    wrong: str | None = None
    wrong_gets: type[Exception] | str = DeniedError
    lacking: str | None = None


def _upload(world: World, session: Session, caller: Caller) -> Any:
    return files.keep(session, caller, world.settings, "t.csv", io.BytesIO(table(1)))


def _file_offer(world: World, session: Session, caller: Caller) -> Any:
    named: dict[str, Any] = {"name": "New", "slug": "new", "description": "", "policy": POLICY}
    return offers.make_offer(session, caller, world.settings, file_id=world.ids["table"], **named)


def _draft(world: World, session: Session, caller: Caller) -> Any:
    given: dict[str, Any] = {"files": {"holdout": world.ids["holdout"]}, "offers": ["north-sales"]}
    return jobs.draft(session, caller, world.settings, name="New", spec=SPEC, **given)


def _schema(world: World, session: Session, caller: Caller) -> Any:
    """Of the contract, as if its offer were a site."""
    contract = session.get(Contract, world.ids["contract"])
    if contract is not None:
        job = session.get_one(Job, contract.job_id)
        session.get_one(Offer, contract.offer_id).kind = "site"
        job.needs = {**job.needs, "fingerprint": "f" * 64}
        write_whole(world.settings.job_folder(job.id) / contracts.SCHEMA, b"{}")
    return contracts.schema_of(session, caller, world.settings, world.ids["contract"])


def _deliveries(world: World, session: Session, caller: Caller) -> Any:
    outbox.tell(session, world.ids["buyer"], "job", {})
    return outbox.deliveries(session, caller, world.ids["webhook"])


DEEDS: dict[str, Deed] = {
    "members.invite": Deed(
        lambda w, s, c: members.invite(s, c, name="W", slug="w", email="a@w", provides=True),
        *("hub", None, MissingError, "buyer", DeniedError, "operate"),
    ),
    "members.set_fee": Deed(
        lambda w, s, c: members.set_fee(s, c, 5), "hub", None, MissingError, "buyer", DeniedError, "operate"
    ),
    "members.suspend": Deed(
        lambda w, s, c: members.suspend(s, c, w.ids["rival"]),
        *("hub", None, MissingError, "buyer", DeniedError, "operate"),
    ),
    "members.restore": Deed(
        lambda w, s, c: members.restore(s, c, w.ids["rival"]),
        *("hub", None, MissingError, "buyer", DeniedError, "operate"),
    ),
    "members.organisations": Deed(
        lambda w, s, c: [o for o in members.organisations(s, c) if o.slug == "buyer"],
        *("buyer", "rival", "nothing", "north", "nothing", "read"),
    ),
    "members.people": Deed(
        lambda w, s, c: members.people(s, c, w.ids["buyer"]), "buyer", "rival", MissingError, lacking="person"
    ),
    "members.invite_person": Deed(
        lambda w, s, c: members.invite_person(s, c, email="new@x", organisation_id=w.ids["buyer"]),
        *("buyer", "rival", MissingError),
        lacking="person",
    ),
    "members.disable_person": Deed(
        lambda w, s, c: members.disable_person(s, c, w.ids["colleague"]), "buyer", "rival", lacking="person"
    ),
    "credentials.issue_link": Deed(
        lambda w, s, c: credentials.issue_link(s, c, w.ids["colleague"]), "buyer", "rival", lacking="person"
    ),
    "credentials.issue_token": Deed(
        lambda w, s, c: credentials.issue_token(
            s, c, label="x", scopes=["read"], days=1, organisation_id=w.ids["buyer"]
        ),
        *("buyer", "rival", DeniedError),
        lacking="person",
    ),
    "credentials.revoke_token": Deed(
        lambda w, s, c: credentials.revoke_token(s, c, w.ids["token"]), "buyer", "rival", lacking="person"
    ),
    "credentials.tokens": Deed(
        lambda w, s, c: credentials.tokens(s, c), "buyer", "rival", "nothing", "north", "nothing", "read"
    ),
    "credentials.set_password": Deed(
        lambda w, s, c: credentials.set_password(s, c, "a long password"), "buyer", None, lacking="person"
    ),
    "credentials.sign_out": Deed(lambda w, s, c: credentials.sign_out(s, c), "buyer", None),
    "files.keep": Deed(_upload, "north", None, wrong="hub", lacking="offers"),
    "files.room_left": Deed(
        lambda w, s, c: files.room_left(s, c, w.settings), "north", None, wrong="hub", lacking="offers"
    ),
    "files.own_file": Deed(
        lambda w, s, c: files.own_file(s, c, w.ids["holdout"]), "buyer", "rival", MissingError, "hub", MissingError
    ),
    "files.own_files": Deed(
        lambda w, s, c: [kept for kept in files.own_files(s, c) if kept.id == w.ids["holdout"]],
        *("buyer", "rival", "nothing", "hub", "nothing", "read"),
    ),
    "files.delete": Deed(
        lambda w, s, c: files.delete(s, c, w.ids["spare"]), "buyer", "rival", MissingError, "hub", DeniedError, "jobs"
    ),
    "offers.make_offer": Deed(_file_offer, "north", "south", MissingError, "buyer", DeniedError, "offers"),
    "offers.new_version": Deed(
        lambda w, s, c: offers.new_version(s, c, w.ids["offer"], w.ids["table"]),
        *("north", "south", MissingError, "buyer", DeniedError, "offers"),
    ),
    "offers.change_policy": Deed(
        lambda w, s, c: offers.change_policy(s, c, w.ids["offer"], POLICY),
        *("north", "south", MissingError, "buyer", DeniedError, "offers"),
    ),
    "offers.withdraw_offer": Deed(
        lambda w, s, c: offers.withdraw_offer(s, c, w.ids["offer"]),
        *("north", "south", MissingError, "buyer", DeniedError, "offers"),
    ),
    "offers.own_offer": Deed(
        lambda w, s, c: offers.own_offer(s, c, w.ids["offer"]),
        *("north", "south", MissingError, "hub", MissingError, "read"),
    ),
    "offers.own_offers": Deed(
        lambda w, s, c: [o for o in offers.own_offers(s, c) if o.slug == "north-sales"],
        *("north", "south", "nothing", "hub", "nothing", "read"),
    ),
    "offers.browse": Deed(
        lambda w, s, c: [o for o in offers.browse(s, c) if o.slug == "north-private"],
        *("buyer", "rival", "nothing", "south", "nothing", "read"),
    ),
    "offers.listing": Deed(
        lambda w, s, c: offers.listing(s, c, "north-private"),
        *("buyer", "rival", MissingError, "south", MissingError, "read"),
    ),
    "contracts.decide": Deed(
        lambda w, s, c: contracts.decide(s, c, w.ids["contract"], True),
        *("north", "south", MissingError, "buyer", DeniedError, "offers"),
    ),
    "contracts.queues": Deed(
        lambda w, s, c: contracts.queues(s, c), "north", "rival", "nothing", "buyer", "nothing", "read"
    ),
    "contracts.own_contracts": Deed(
        lambda w, s, c: contracts.own_contracts(s, c), "buyer", "rival", "nothing", "south", "nothing", "read"
    ),
    "contracts.own_contract": Deed(
        lambda w, s, c: contracts.own_contract(s, c, w.ids["contract"]),
        *("buyer", "rival", MissingError, "south", MissingError, "read"),
    ),
    "contracts.schema_of": Deed(_schema, "north", "rival", MissingError, "south", MissingError, "read"),
    "jobs.draft": Deed(_draft, "buyer", "rival", MissingError, "north", DeniedError, "jobs"),
    "jobs.change": Deed(
        lambda w, s, c: jobs.change(s, c, w.settings, w.ids["draft"], name="Other"),
        *("buyer", "rival", MissingError, "north", DeniedError, "jobs"),
    ),
    "submission.submit": Deed(
        lambda w, s, c: submission.submit(s, c, w.settings, w.ids["draft"]),
        *("buyer", "rival", MissingError, "hub", DeniedError, "jobs"),
    ),
    "jobs.quote": Deed(
        lambda w, s, c: jobs.quote(s, c, w.settings, w.ids["draft"]),
        *("buyer", "rival", MissingError, "north", MissingError, "read"),
    ),
    "jobs.fund": Deed(
        lambda w, s, c: jobs.fund(s, c, w.ids["agreed"]), "buyer", "rival", MissingError, "hub", DeniedError, "money"
    ),
    "jobs.stop": Deed(
        lambda w, s, c: jobs.stop(s, c, w.settings, w.ids["queued"]),
        *("buyer", "rival", MissingError, "north", DeniedError, "jobs"),
    ),
    "jobs.withdraw": Deed(
        lambda w, s, c: jobs.withdraw(s, c, w.ids["draft"]),
        *("buyer", "rival", MissingError, "hub", DeniedError, "jobs"),
    ),
    "jobs.own_job": Deed(
        lambda w, s, c: jobs.own_job(s, c, w.ids["draft"]),
        *("buyer", "rival", MissingError, "north", MissingError, "read"),
    ),
    "submission.look": Deed(
        lambda w, s, c: submission.look(s, c, w.settings, w.ids["draft"]),
        *("buyer", "rival", MissingError, "hub", DeniedError, "jobs"),
    ),
    "jobs.own_jobs": Deed(lambda w, s, c: jobs.own_jobs(s, c), "buyer", "rival", "nothing", "hub", "nothing", "read"),
    "jobs.events_of": Deed(
        lambda w, s, c: jobs.events_of(s, c, w.ids["draft"]),
        *("buyer", "rival", MissingError, "north", MissingError, "read"),
    ),
    "outbox.add_webhook": Deed(
        lambda w, s, c: outbox.add_webhook(s, c, "https://example.org/"), "buyer", None, lacking="act"
    ),
    "outbox.remove_webhook": Deed(
        lambda w, s, c: outbox.remove_webhook(s, c, w.ids["webhook"]),
        *("buyer", "rival", MissingError, "hub", MissingError, "act"),
    ),
    "outbox.deliveries": Deed(
        _deliveries,
        *("buyer", "rival", MissingError, "hub", MissingError, "read"),
    ),
    "outbox.webhooks": Deed(
        lambda w, s, c: outbox.webhooks(s, c), "buyer", "rival", "nothing", "hub", "nothing", "read"
    ),
}


@pytest.fixture(scope="module")
def world(make_url: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Made once: every case's transaction is rolled back."""
    database = Database(make_url("sqlite"))
    market = desk_market(database, Settings(home=tmp_path_factory.mktemp("hub")))
    buyer, settings = market["buyer"], market.settings
    ids = {slug: caller.organisation_id for slug, caller in market.callers.items()}
    with database.begin() as session:
        ids["colleague"] = members.invite_person(session, buyer, email="bo@buyer.example").person.id
        ids["token"] = credentials.issue_token(session, buyer, label="ci", scopes=["read"], days=1)[0].id
        ids["webhook"] = outbox.add_webhook(session, buyer, "https://example.org/").webhook.id
        ids["table"] = market.upload(session, "north", table(1))
        ids["offer"] = market.offer(session, "north", 1).id
        market.offer(session, "north", 2, "private", consumers=["buyer"], approval="by hand")
        ids["holdout"] = market.upload(session, "buyer", table(3))
        ids["spare"] = market.upload(session, "buyer", table(3))
        market.pay_in(session, "buyer", 1000)

        def job(name: str, *chosen: str) -> str:
            given: dict[str, Any] = {"files": {"holdout": ids["holdout"]}, "offers": chosen}
            return jobs.draft(session, buyer, settings, name=name, spec=SPEC, **given).id

        ids["draft"] = job("draft", "north-sales")
        asking, ids["agreed"], ids["queued"] = (
            job("asking", "north-private"),
            job("b", "north-sales"),
            job("c", "north-sales"),
        )
        for submitted in (asking, ids["agreed"], ids["queued"]):
            submission.submit(session, buyer, settings, submitted)
        (asked,) = contracts.own_contracts(session, market["north"], state=ContractState.REQUESTED, party="provider")
        ids["contract"] = asked.id
        jobs.fund(session, buyer, ids["queued"])
        for contract in contracts_of(session, session.get_one(Job, ids["queued"])):
            contract.paid = 5
    yield World(market, ids)
    database.dispose()


def deeds_of(module: ModuleType) -> set[str]:
    """The public functions of a module that take a session and a caller."""
    public = getattr(module, "__all__", None)
    if public is None:
        own = {name: value for name, value in vars(module).items() if not name.startswith("_")}
        public = [name for name, value in own.items() if getattr(value, "__module__", "") == module.__name__]
    found = {name: getattr(module, name) for name in public}
    return {
        f"{module.__name__.rpartition('.')[2]}.{name}"
        for name, value in found.items()
        if inspect.isfunction(value) and list(inspect.signature(value).parameters)[:2] == ["session", "caller"]
    }


def test_the_table_has_every_deed() -> None:
    inner = {
        "credentials.own_person",
        "jobs.job_to_change",
    }  # of issue_link and disable_person, and of what changes jobs
    assert set(DEEDS) == set().union(*map(deeds_of, MODULES)) - inner


def without(caller: Caller, lacking: str) -> Caller:
    """The caller as a token that has all rights but one; "act" stands for all but to read."""
    if lacking == "person":
        return replace(caller, person_id=None, token_id="0" * 32)
    scopes = frozenset({"read"}) if lacking == "act" else caller.scopes - {lacking}
    return replace(caller, person_id=None, scopes=scopes)


def attempt(world: World, name: str, caller: Caller) -> Any:
    """What a deed gives, or the error that it raises; nothing of it stays."""
    database = world.market.database
    with database.begin() as session:
        try:
            return DEEDS[name].do(world, session, caller)
        except (MissingError, DeniedError) as refused:
            return refused
        finally:
            session.rollback()


@pytest.mark.parametrize("name", DEEDS)
def test_who_may(world: World, name: str) -> None:
    deed = DEEDS[name]
    given = attempt(world, name, world.market[deed.by])
    assert not isinstance(given, Exception) and given != []
    for slug, gets in ((deed.other, deed.other_gets), (deed.wrong, deed.wrong_gets)):
        if slug is not None:
            refused = attempt(world, name, world.market[slug])
            assert refused == [] if isinstance(gets, str) else type(refused) is gets, (slug, refused)
    if deed.lacking is not None:
        refused = attempt(world, name, without(world.market[deed.by], deed.lacking))
        assert type(refused) is DeniedError, refused


@pytest.mark.parametrize(
    "name", [name for name, deed in DEEDS.items() if deed.other_gets is MissingError and deed.other]
)
def test_what_is_anothers_looks_as_if_it_were_not_there(world: World, name: str) -> None:
    """The same sentence for an id that nobody has."""
    deed = DEEDS[name]
    nobodys = World(world.market, dict.fromkeys(world.ids, "0" * 32))
    caller = world.market[deed.other or ""]
    theirs, none = attempt(world, name, caller), attempt(nobodys, name, caller)
    assert type(none) is MissingError
    said = str(theirs)
    for file in ("holdout", "table", "spare"):
        said = said.replace(world.ids[file], "ID")
    assert str(none).replace("0" * 32, "ID") == said


def test_an_id_that_no_database_keeps_is_refused_and_no_fault_of_the_hub(market: DeskMarket) -> None:
    asked: list[Callable[[Session, str], Any]] = [
        lambda s, id: jobs.own_job(s, market["buyer"], id),
        lambda s, id: files.own_file(s, market["buyer"], id),
        lambda s, id: offers.listing(s, market["buyer"], id),
        lambda s, id: contracts.own_contract(s, market["buyer"], id),
    ]
    for ask in asked:
        for id in ("\0", "\ud800", "x" * 10_000):
            with pytest.raises((MissingError, InvalidError)), market.database.read() as session:
                ask(session, id)
    with pytest.raises(InvalidError, match="no database keeps"), market.database.begin() as session:
        session.get_one(Market, 1).fee_basis_points = 10**30


def test_the_operator_looks_at_every_job_and_changes_none(world: World) -> None:
    hub = world.market["hub"]
    with world.market.database.read() as session:
        assert jobs.own_job(session, hub, world.ids["draft"]).name == "draft"
        for caller in (world.market["buyer"], without(hub, "operate")):
            with pytest.raises(DeniedError):
                jobs.own_jobs(session, caller, everybodys=True)
        assert {job.name for job in jobs.own_jobs(session, hub, everybodys=True)} >= {"draft", "asking"}
        with pytest.raises(MissingError):
            jobs.own_job(session, without(hub, "operate"), world.ids["draft"])
        assert len(offers.browse(session, hub)) == 2


def test_only_a_provider_offers_a_site_and_only_its_own(world: World) -> None:
    hub = replace(world.settings, federation=world.settings.home / "federation")
    named: dict[str, Any] = {
        "name": "Ward",
        "slug": "ward",
        "policy": POLICY,
        "columns": [{"name": "x", "kind": "number"}],
    }
    with world.market.database.read() as session:
        with pytest.raises(DeniedError):
            offers.make_offer(session, world.market["buyer"], hub, site="buyer-ward", **named)
        with pytest.raises(InvalidError, match="must be 'south-ward'"):
            offers.make_offer(session, world.market["south"], hub, site="north-ward", **named)
