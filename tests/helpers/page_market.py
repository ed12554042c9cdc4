"""A market for looking at its pages: everybody signed in, names that want to break them, jobs in every state."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from databazaar.service import contracts, credentials, files, jobs, journal, members, offers, submission
from databazaar.service.caller import Caller
from databazaar.service.database.connection import Database
from databazaar.service.lifecycle import ContractState, JobState, enter, locked_job
from databazaar.service.policy import read_policy
from databazaar.service.settings import Settings
from desk_market import SPEC, table

SCRIPT = "<script>alert(1)</script>"
NAMES = {
    "hub": f"Hub {SCRIPT}",
    "buyer": '"><img src=x onerror=alert(2)>',
    "rival": "W" * 200,
    "north": "שלום מצפון {{ 7 * 7 }}",
    "south": "M " * 98 + "end",
}
ROLES: Mapping[str, dict[str, bool]] = {
    "buyer": {"consumes": True},
    "rival": {"consumes": True},
    "north": {"provides": True},
    "south": {"provides": True},
}


@dataclass
class PageMarket:
    """`secrets` are those of sessions, `jobs` are the buyer's by state, and `ids` names other things of interest."""

    database: Database
    settings: Settings
    callers: dict[str, Caller] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    jobs: dict[str, str] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)

    def people(self, names: Mapping[str, str]) -> None:
        with self.database.begin() as session:
            members.create_market(session, "Harbour market", "EUR")
            links = {"hub": members.make_operator(session, names["hub"], "hub", "ann@hub.example").secret}
            self._join(session, "hub", links["hub"])
            for slug, roles in ROLES.items():
                invited = members.invite(
                    session, self.callers["hub"], name=names[slug], slug=slug, email=f"ann@{slug}.example", **roles
                )
                self._join(session, slug, invited.secret)

    def _join(self, session: Any, slug: str, link: str) -> None:
        signed = credentials.redeem_link(session, link)
        self.callers[slug], self.secrets[slug] = signed.caller, signed.session_secret

    def upload(self, slug: str, seed: int = 0, rows: int = 60) -> str:
        with self.database.begin() as session:
            stream = io.BytesIO(table(seed, rows))
            return files.keep(session, self.callers[slug], self.settings, "rows.csv", stream).id

    def offer(self, slug: str, name: str, approval: str) -> None:
        file_id = self.upload(slug, len(self.ids))
        with self.database.begin() as session:
            made = offers.make_offer(
                session,
                self.callers[slug],
                self.settings,
                name=name,
                slug="sales",
                description=f"{SCRIPT} {'long ' * 300}",
                policy=read_policy({"price": 5, "approval": approval}),
                file_id=file_id,
            )
            self.ids[f"offer of {slug}"] = made.id

    def pay_in(self, slug: str, amount: int) -> None:
        with self.database.begin() as session:
            key = f"deposit:{slug}{journal.lock(session).seq}"
            journal.post(session, "deposit", key, {"outside": -amount, journal.cash(slug): amount})

    def job(self, state: JobState, name: str = SCRIPT) -> str:
        """One of the buyer's, brought into that state as far as no runner is needed, and by decree from there on."""
        caller, holdout = self.callers["buyer"], self.upload("buyer", 9, 120)
        with self.database.begin() as session:
            job = jobs.draft(
                session,
                caller,
                self.settings,
                name=name,
                spec=SPEC,
                files={"holdout": holdout},
                offers=["north-sales", "south-sales"],
            )
            self.jobs[state] = job.id
            if state != JobState.DRAFT:
                submission.submit(session, caller, self.settings, job.id)
        if state in (JobState.DRAFT, JobState.SUBMITTED):
            return job.id
        with self.database.begin() as session:
            north = self.callers["north"]
            for one in contracts.own_contracts(session, north, job.id, ContractState.REQUESTED, "provider"):
                contracts.decide(session, north, one.id, True)
        if state != JobState.AGREED:
            with self.database.begin() as session:
                jobs.fund(session, caller, job.id)
        if state in (JobState.RUNNING, JobState.SETTLING):
            self.told(job.id)
            with self.database.begin() as session:
                held = locked_job(session, job.id)
                for step in (JobState.RUNNING, JobState.SETTLING)[: 1 if state == JobState.RUNNING else 2]:
                    enter(session, held, step)
        return job.id

    def told(self, job_id: str, rounds: int = 60) -> None:
        folder = self.settings.job_folder(job_id)
        folder.mkdir(parents=True)
        lines = [
            {
                "round": number,
                "spent": 5 * number,
                "asked": 8 * number,
                "budget": 4000,
                "utility": 0.9 - 0.4 / number,
                "loss": None,
                "paid": ["north-sales"],
                "flagged": ["south-sales"],
                "drawn": ["north-sales", "south-sales"],
            }
            for number in range(1, rounds + 1)
        ]
        (folder / "progress.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def page_market(database: Database, settings: Settings, names: Mapping[str, str] = NAMES) -> PageMarket:
    """Offers of both providers, cash of the buyer, and a job in each state that needs no runner."""
    market = PageMarket(database, settings)
    market.people(names)
    market.offer("north", f"North {SCRIPT}", "by hand")
    market.offer("south", "S" * 200, "automatic")
    market.pay_in("buyer", 100_000)
    for state in (
        JobState.DRAFT,
        JobState.SUBMITTED,
        JobState.AGREED,
        JobState.QUEUED,
        JobState.RUNNING,
        JobState.SETTLING,
    ):
        market.job(state)
    return market
