"""One privacy account for a dataset, over kits, markets and consumers: a folder of the user's, a file an account.

An account knows its files by what is in them (their SHA-256) and by where they lie. The same rows never have two
budgets; a file that was edited goes on with what it has spent; and a file that no account knows gets a fresh budget
only when there is no account yet or the provider says so.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from databazaar.errors import BazaarError
from databazaar.federation.accountant import account_lock, read_account
from databazaar.federation.private_files import write_json
from databazaar.files import alone

PLACE = "DATABAZAAR_ACCOUNTS"
"""The environment variable that names another folder for the accounts."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Chosen:
    """The account that a file is charged to, and what there is to say about the choice."""

    path: Path
    says: str

    @property
    def name(self) -> str:
        return self.path.stem


def users_folder() -> Path:
    """Where the accounts of this user are, unless the environment says otherwise."""
    if given := os.environ.get(PLACE):
        return Path(given)
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "databazaar" / "accounts"


class Accounts:
    """The accounts in a folder. What is written there is durable before it is used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def choose(self, data: Path, digest: str, name: str | None = None) -> Chosen:
        """The account of this file, which knows it from now on. `name` is the provider's own choice."""
        if name is not None and not _NAME.fullmatch(name):
            raise BazaarError(f"--account {name} is no name: use up to 64 letters, digits, '-', '_' and '.'")
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with alone(self.folder / ".lock"):
                return self._choose(str(data.resolve()), digest, name)
        except OSError as reason:
            raise BazaarError(
                f"{self.folder} cannot be used for privacy accounts ({reason.strerror}): set {PLACE} to another folder"
            ) from None

    def known(self) -> dict[str, dict[str, Any]]:
        """What each account holds, by name."""
        found = sorted(self.folder.glob("*.json")) if self.folder.is_dir() else []
        return {path.stem: read_account(path) for path in found}

    def _choose(self, place: str, digest: str, name: str | None) -> Chosen:
        known = self.known()
        same = next((n for n, kept in known.items() if digest in kept.get("digests", [])), None)
        there = next((n for n, kept in known.items() if place in kept.get("files", [])), None)
        if name is not None and same is not None and name != same:
            raise BazaarError(
                f"{place} is counted in the account {same} already, and the same rows have one budget: "
                f"leave --account out, or say --account {same}"
            )
        chosen = name or same or there
        if chosen is None and known:
            raise BazaarError(
                f"no privacy account in {self.folder} knows {place}: say --account with one of {', '.join(known)} if "
                "rows of its files are in this one too, or with a new name if none is: that gives a fresh budget"
            )
        says = ""
        if chosen is None:
            chosen = re.sub(r"[^A-Za-z0-9_-]", "-", Path(place).name.split(".")[0]).strip("-_")[:64] or "data"
            says = f"a new privacy account {chosen} in {self.folder}"
        elif same is None and chosen == there:
            says = f"{place} has changed since it was last charged: it goes on with what the account {chosen} has spent"
        for other, kept in known.items():
            if other != chosen and place in kept.get("files", []):
                self._note(other, files=[file for file in kept["files"] if file != place])
        kept = known.get(chosen, {})
        files, digests = kept.get("files", []), kept.get("digests", [])
        if place not in files or digest not in digests:
            self._note(chosen, files=sorted({*files, place}), digests=sorted({*digests, digest}))
        return Chosen(self.folder / f"{chosen}.json", says)

    def _note(self, name: str, **changes: list[str]) -> None:
        path = self.folder / f"{name}.json"
        with account_lock(path):
            write_json(path, {"history": [], **read_account(path), **changes})
