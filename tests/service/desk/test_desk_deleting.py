"""Files that go: by their owner, by the hub's rules, after a crash; and the room that an organisation has."""

from __future__ import annotations

import datetime as dt
import io
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from databazaar.service import contracts, files, jobs, offers, specification, submission
from databazaar.service.database.tables import File, Job, OfferVersion, now
from databazaar.service.errors import ConflictError, MissingError
from databazaar.service.hub import sweeper
from databazaar.service.hub.folder import write_market
from databazaar.service.hub.sweeper import sweep_files
from databazaar.service.lifecycle import JobState, enter, locked_job
from databazaar.service.settings import Settings
from desk_market import SPEC, DeskMarket, table


def kept_in(market: DeskMarket) -> list[Path]:
    return [path for path in market.settings.files.rglob("*.csv") if path.is_file()]


def deleted(market: DeskMarket, slug: str, file_id: str) -> File:
    with market.database.begin() as session:
        file = files.delete(session, market[slug], file_id)
    assert files.remove_unnamed(market.database, market.settings, file.digest, file.suffix)
    return file


def refused(market: DeskMarket, slug: str, file_id: str) -> str:
    with pytest.raises(ConflictError) as why, market.database.begin() as session:
        files.delete(session, market[slug], file_id)
    return str(why.value)


def a_job(market: DeskMarket, holdout: str, *chosen: str) -> str:
    with market.database.begin() as session:
        given: dict[str, Any] = {"files": {"holdout": holdout}, "offers": chosen or ("north-sales",)}
        return jobs.draft(session, market["buyer"], market.settings, name="Delays", spec=SPEC, **given).id


def uploaded(market: DeskMarket, slug: str, seed: int) -> str:
    with market.database.begin() as session:
        return market.upload(session, slug, table(seed), f"{slug}.csv")


def test_what_is_needed_stays_and_goes_when_it_is_not(market: DeskMarket) -> None:
    """A job's hold-out and an offer's table, from the draft to the end of the job, in every name that they have."""
    with market.database.begin() as session:
        offer = market.offer(session, "north", 1)
        sold = session.scalars(select(OfferVersion)).one().file_id or ""
    holdout = uploaded(market, "buyer", 9)
    job_id = a_job(market, holdout)
    assert "the offer north-sales has it" in refused(market, "north", sold)
    assert "the job 'Delays' uses it: withdraw or stop" in refused(market, "buyer", holdout)
    with market.database.begin() as session:
        market.pay_in(session, "buyer", 1000)
        submission.submit(session, market["buyer"], market.settings, job_id)
        jobs.fund(session, market["buyer"], job_id)
        offers.withdraw_offer(session, market["north"], offer.id)
        data = write_market(session, market.settings, session.get_one(Job, job_id)).parent / "data"
    assert "a contract for north-sales needs it" in refused(market, "north", sold)
    assert {path.name for path in data.iterdir()} == {"holdout.csv", "north-sales.csv"}
    with market.database.begin() as session:
        uses = files.own_files(session, market["buyer"])[0].uses
        job = locked_job(session, job_id)
        for state in (JobState.SETTLING, JobState.REFUNDED):
            enter(session, job, state)
    assert [(use.kind, use.name, use.needed) for use in uses] == [("job", "Delays", True)]
    gone = deleted(market, "buyer", holdout)
    assert {path.name for path in data.iterdir()} == {"north-sales.csv"}
    deleted(market, "north", sold)
    assert kept_in(market) == [] and list(data.iterdir()) == []
    with market.database.begin() as session:
        version = session.scalars(select(OfferVersion)).one()
        assert version.digest and version.rows == 60 and len(version.columns) == 4
        assert session.get_one(File, session.get_one(Job, job_id).files["holdout"]).digest == gone.digest
        assert files.own_files(session, market["buyer"]) == []
        assert specification.market_of(session.get_one(Job, job_id)).providers[0].id == "north-sales"
        for ask in (files.own_file, files.delete):
            with pytest.raises(MissingError):
                ask(session, market["buyer"], holdout)


def test_an_older_version_goes_and_the_newer_one_stays(small: DeskMarket) -> None:
    with small.database.begin() as session:
        offer = small.offer(session, "north", 1)
        first = session.scalars(select(OfferVersion)).one().file_id or ""
        second = small.upload(session, "north", table(2))
        offers.new_version(session, small["north"], offer.id, second)
    deleted(small, "north", first)
    assert "newer version" in refused(small, "north", second)
    with small.database.read() as session:
        assert offers.browse(session, small["buyer"])[0].version == 2


def test_the_same_bytes_go_with_their_last_owner(small: DeskMarket) -> None:
    mine, theirs = uploaded(small, "north", 1), uploaded(small, "south", 1)
    deleted(small, "north", mine)
    (path,) = kept_in(small)
    assert path.read_bytes() == table(1)
    deleted(small, "south", theirs)
    assert kept_in(small) == []
    with small.database.begin() as session:
        again = files.own_file(session, small["south"], small.upload(session, "south", table(1)))
    assert small.settings.file(again.digest, again.suffix).read_bytes() == table(1)


def test_bytes_that_somebody_uploads_just_now_are_not_removed(market: DeskMarket) -> None:
    first = uploaded(market, "north", 1)
    with market.database.begin() as session:
        file = files.delete(session, market["north"], first)
    with market.database.begin() as session:
        second = market.upload(session, "south", table(1))
        given = market.database, market.settings, file.digest, file.suffix
        remover = threading.Thread(target=files.remove_unnamed, args=given)
        remover.start()
        remover.join(0.2)  # on SQLite it waits for the upload, on PostgreSQL it leaves it to the sweep
    remover.join()
    with market.database.read() as session:
        kept = files.own_file(session, market["south"], second)
    assert market.settings.file(kept.digest, kept.suffix).read_bytes() == table(1)


def test_a_file_cannot_be_chosen_while_it_is_deleted(market: DeskMarket) -> None:
    """Whoever comes first wins, and the other is told."""
    with market.database.begin() as session:
        market.offer(session, "north", 1)
    holdout, told = uploaded(market, "buyer", 9), list[str]()

    def choose() -> None:
        try:
            a_job(market, holdout)
        except (ConflictError, MissingError) as why:
            told.append(str(why))

    chooser = threading.Thread(target=choose)
    with market.database.begin() as session:
        files.delete(session, market["buyer"], holdout)
        chooser.start()
        chooser.join(0.2)
    chooser.join()
    assert len(told) == 1 and ("was deleted by its owner" in told[0] or "there is no file" in told[0])


def test_nobody_keeps_more_than_the_quota(market: DeskMarket) -> None:
    """Also not by uploading at once: half of eight tables fit."""
    sizes = [len(table(seed, rows=100)) for seed in range(8)]
    bounded = replace(market.settings, quota=sum(sorted(sizes)[-4:]))
    refusals, kept = list[str](), list[str]()

    def upload(seed: int) -> None:
        try:
            with market.database.begin() as session:
                content = io.BytesIO(table(seed, rows=100))
                kept.append(files.keep(session, market["north"], bounded, "t.csv", content).id)
        except ConflictError as why:
            refusals.append(str(why))

    threads = [threading.Thread(target=upload, args=(seed,)) for seed in range(8)]
    for pair in zip(threads[::2], threads[1::2], strict=True):  # an organisation has two tables read at once
        for thread in pair:
            thread.start()
        for thread in pair:
            thread.join()
    assert len(kept) == len(refusals) == 4 == len(kept_in(market))
    assert all("delete files that you no longer need" in why for why in refusals)
    with market.database.begin() as session:
        taken = files.room_taken(session, market["north"].organisation_id)
        assert taken <= bounded.quota
        again = files.own_file(session, market["north"], kept[0])
        content = market.settings.file(again.digest, again.suffix).read_bytes()
        files.keep(session, market["north"], bounded, "again.csv", io.BytesIO(content))  # the same bytes are free
        files.keep(session, market["south"], bounded, "theirs.csv", io.BytesIO(content))  # and others have their own
        assert files.room_taken(session, market["north"].organisation_id) == taken
    deleted(market, "north", kept[1])
    upload(8)
    assert len(kept) == 5


def aged(market: DeskMarket, days: float, *ids: str) -> None:
    then = now() - dt.timedelta(days=days)
    with market.database.begin() as session:
        session.execute(update(File).where(File.id.in_(ids)).values(created_at=then))
        session.execute(update(Job).where(Job.id.in_(ids)).values(changed_at=then))


def live(market: DeskMarket, **changes: Any) -> set[str]:
    """The ids of the files that are there after a sweep under these settings."""
    sweep_files(replace(market.settings, **changes), market.database)
    with market.database.read() as session:
        return set(session.scalars(select(File.id).where(File.deleted_at.is_(None))))


def test_files_of_jobs_that_are_long_over_go_if_the_operator_says_so(small: DeskMarket) -> None:
    with small.database.begin() as session:
        small.offer(session, "north", 1)
        sold = session.scalars(select(OfferVersion)).one().file_id or ""
    old, fresh, used, both = (uploaded(small, "buyer", seed) for seed in (10, 11, 12, 13))
    ended = [a_job(small, id) for id in (old, fresh, both)]
    a_job(small, used), a_job(small, both)
    with small.database.begin() as session:
        for job_id in ended:
            jobs.withdraw(session, small["buyer"], job_id)
    aged(small, 20, old, fresh, used, both, sold, ended[0], ended[2])
    assert live(small) == live(small, keep_days=21) == {old, fresh, used, both, sold}
    assert live(small, keep_days=7) == {fresh, used, both, sold}
    assert len(kept_in(small)) == 4


def test_uploads_that_nothing_ever_used_go_after_a_month(small: DeskMarket) -> None:
    old, new = uploaded(small, "buyer", 1), uploaded(small, "buyer", 2)
    aged(small, 31, old)
    aged(small, 29, new)
    assert live(small) == live(small, keep_days=0) == {new}
    assert len(kept_in(small)) == 1


def test_a_file_that_came_into_use_while_it_was_looked_at_stays(
    small: DeskMarket, monkeypatch: pytest.MonkeyPatch
) -> None:

    with small.database.begin() as session:
        small.offer(session, "north", 1)
    old = uploaded(small, "buyer", 1)
    aged(small, 40, old)
    delete = sweeper._delete

    def late(database: Any, settings: Settings, file_id: str) -> bool:
        a_job(small, file_id)
        return delete(database, settings, file_id)

    monkeypatch.setattr(sweeper, "_delete", late)
    assert old in live(small)


def test_what_a_crash_has_left_is_removed_and_another_markets_files_are_not(market: DeskMarket) -> None:
    stays, goes = uploaded(market, "north", 1), uploaded(market, "north", 2)
    with market.database.begin() as session:
        files.delete(session, market["north"], goes)  # and here the hub was killed
    with pytest.raises(KeyboardInterrupt), market.database.begin() as session:
        market.upload(session, "north", table(3))
        raise KeyboardInterrupt
    assert len(kept_in(market)) == 3
    assert live(market) == {stays} and len(kept_in(market)) == 2, "an upload may still be under way"
    for path in kept_in(market):
        os.utime(path, (time.time() - 2 * files.STALE,) * 2)
    strange = market.settings.files / "ab" / "notes.txt"
    strange.parent.mkdir(exist_ok=True)
    strange.write_text("not ours")
    assert live(market) == {stays} and len(kept_in(market)) == 1 and strange.exists()
    with market.database.begin() as session:
        session.execute(update(File).values(digest="0" * 64))
    assert sweeper.remove_orphans(market.database, market.settings) == 0 and len(kept_in(market)) == 1


def test_a_request_for_an_offer_whose_file_was_deleted_meanwhile_is_refused(small: DeskMarket) -> None:
    with small.database.begin() as session:
        offer = small.offer(session, "north", 1)
        sold = session.scalars(select(OfferVersion)).one().file_id or ""
    job_id = a_job(small, uploaded(small, "buyer", 9))
    with small.database.begin() as session:
        offers.withdraw_offer(session, small["north"], offer.id)
    deleted(small, "north", sold)
    with pytest.raises(ConflictError, match="was deleted by its owner"), small.database.begin() as session:
        submission.submit(session, small["buyer"], small.settings, job_id)
    with small.database.read() as session:
        assert contracts.own_contracts(session, small["buyer"]) == []
