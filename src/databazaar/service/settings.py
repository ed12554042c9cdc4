"""How one hub is set up: where its files are, which database, who may run how much at once."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """`home` holds uploaded files, jobs' folders and the hub's keys; it is its owner's alone to read.

    `runners` is how many jobs run at once, `attempts` how often a job is started before it is given up, `turn` after
    how many seconds a job makes room for a consumer who waits. `federation` is the operator's folder of a federation,
    for offers that are sites. `address` is what people type, for links; without `secure` cookies go over plain HTTP,
    which is for this machine alone. `own_lease` is for how many seconds a consumer's own arbiter may be silent before
    the hub closes its run, and `own_begin` for how many it may put off opening it before the job is refunded. With
    `oidc_issuer`, people may also sign in at that identity provider. `quota` is how many bytes of files an organisation
    may keep, `keep_days` after how many days the files of a job that is over are deleted; None keeps them until their
    owner deletes them. A table is read in a process that may take `table_memory` bytes and `table_seconds` of a
    processor. `uploads` is how many large bodies an organisation may send at once. `connections` is how many there are
    at the most, `connections_of_one` from one address, and `head_seconds` how long a request's head may take.
    `most_visits` is how many row visits a job may ask of one provider in one round, and `stop_grace` for how many
    seconds a job that is stopped may finish the round under way before its runner is ended.
    """

    home: Path
    database: str = ""
    address: str = "http://127.0.0.1:8000"
    secure: bool = False
    federation: Path | None = None
    runners: int = field(default_factory=lambda: max(1, os.cpu_count() or 1))
    attempts: int = 5
    turn: float = 600.0
    own_lease: float = 3600.0
    own_begin: float = 30 * 24 * 3600.0
    most_upload: int = 256 * 2**20
    most_body: int = 2**20
    quota: int = 10 * 2**30
    table_memory: int = 2 * 2**30
    table_seconds: int = 120
    uploads: int = 4
    connections: int = 1000
    connections_of_one: int = 200
    head_seconds: float = 10.0
    keep_days: int | None = None
    most_visits: int = 50_000_000
    stop_grace: float = 30.0
    cash: str = "manual"
    private_webhooks: bool = False
    oidc_issuer: str = ""
    oidc_client: str = ""
    oidc_secret: str = field(default="", repr=False)

    @property
    def database_url(self) -> str:
        return self.database or f"sqlite:///{self.home / 'hub.sqlite'}"

    @property
    def files(self) -> Path:
        return self.home / "files"

    @property
    def keys(self) -> Path:
        return self.home / "keys"

    @property
    def jobs(self) -> Path:
        return self.home / "jobs"

    def job_folder(self, job_id: str) -> Path:
        return self.jobs / job_id

    def run_folder(self, job_id: str) -> Path:
        """The folder of the job's run, as `bazaar run` makes them."""
        return self.job_folder(job_id) / "run"

    def file(self, digest: str, suffix: str) -> Path:
        """Where an uploaded table is kept; `suffix` says how it is read."""
        return self.files / digest[:2] / f"{digest}{suffix}"
