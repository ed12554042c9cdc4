"""What a consumer does: browses, drafts, asks for a quote, funds, watches, stops, downloads."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, cast

from databazaar.client import shapes
from databazaar.client.providing import opened
from databazaar.client.sending import Files, place, read
from databazaar.client.watching import Watching
from databazaar.errors import BazaarError

Download = Literal["model", "statement.json", "statement.csv", "report.html"]


class Buying(Watching):
    def offers(self) -> Iterator[shapes.Offer]:
        """The open offers that one could choose: columns, price and terms, never data."""
        return self._items(shapes.Offer, "/v1/offers")

    def offer(self, offer_id: str) -> shapes.Offer:
        """By its id or its slug."""
        return read(shapes.Offer, self._get(place("offers", offer_id)))

    def jobs(self, everybodys: bool = False) -> Iterator[shapes.JobSummary]:
        """One's own, the newest first; for the operator everybody's, if it asks for them."""
        return self._items(shapes.JobSummary, "/v1/jobs", everybodys=everybodys or None)

    def job(self, job_id: str) -> shapes.Job:
        return read(shapes.Job, self._get(place("jobs", job_id)))

    def draft(
        self,
        name: str,
        spec: Mapping[str, Any],
        offers: Sequence[str],
        files: Mapping[str, str] | None = None,
        mode: str = "hosted",
    ) -> shapes.Job:
        """A new job, which costs nothing yet. `files` are ids of uploaded files by role, such as holdout."""
        asked = {"name": name, "spec": spec, "offers": list(offers), "files": dict(files or {}), "mode": mode}
        return read(shapes.Job, self._post("/v1/jobs", asked))

    def draft_from_market(self, market: Path, mode: str = "hosted") -> shapes.Job:
        """A new job from a market.toml, whose providers name offers by slug, with the files that it names."""
        text, settings = read_market(market)
        paths = named_files(settings) if mode == "hosted" else []
        with ExitStack() as stack:
            sent: Files = [("file", (path.name, stack.enter_context(opened(market.parent / path)))) for path in paths]
            return read(shapes.Job, self._send("/v1/jobs/from-market", {"market": text, "mode": mode}, sent))

    def change(
        self,
        job_id: str,
        *,
        name: str | None = None,
        spec: Mapping[str, Any] | None = None,
        offers: Sequence[str] | None = None,
        files: Mapping[str, str] | None = None,
    ) -> shapes.Job:
        """Changes a draft; what is not given stays."""
        given = {"name": name, "spec": spec, "offers": None if offers is None else list(offers), "files": files}
        asked = {key: value for key, value in given.items() if value is not None}
        return read(shapes.Job, self._post(place("jobs", job_id, "change"), asked))

    def submit(self, job_id: str) -> shapes.Job:
        return read(shapes.Job, self._post(place("jobs", job_id, "submit")))

    def quote(self, job_id: str) -> shapes.Quote:
        return read(shapes.Quote, self._get(place("jobs", job_id, "quote")))

    def fund(self, job_id: str) -> shapes.Job:
        return read(shapes.Job, self._post(place("jobs", job_id, "fund")))

    def stop(self, job_id: str) -> shapes.Job:
        """Ends it after the round under way; the rest of the money comes back."""
        return read(shapes.Job, self._post(place("jobs", job_id, "stop")))

    def withdraw(self, job_id: str) -> shapes.Job:
        """Gives up a job that is not funded yet."""
        return read(shapes.Job, self._post(place("jobs", job_id, "withdraw")))

    def events(self, job_id: str, after: int = 0) -> list[shapes.Event]:
        found = self._get(place("jobs", job_id, "events"), after=after)["items"]
        return [read(shapes.Event, one) for one in found]

    def rounds(self, job_id: str, after: int = 0, most: int = 1000) -> list[dict[str, Any]]:
        found = self._get(place("jobs", job_id, "rounds"), after=after, limit=most)["items"]
        return cast(list[dict[str, Any]], found)

    def download(self, job_id: str, what: Download, target: Path) -> Path:
        """Of a job that is over: the model as a zip, the statement, or the report."""
        return self._download(place("jobs", job_id, what), target)


def read_market(path: Path) -> tuple[str, dict[str, Any]]:
    """A market.toml as text, and what it holds; whether that makes a job, the hub says."""
    try:
        with opened(path) as file:
            text: str = file.read().decode("utf-8-sig")
        return text, tomllib.loads(text)
    except (ValueError, RecursionError) as fault:
        raise BazaarError(f"{path}: the file is not valid TOML: {fault}: correct that line") from None


def named_files(settings: Mapping[str, Any]) -> list[Path]:
    """The files that a market.toml names for its consumer; no two may have the same name.

    >>> [str(path) for path in named_files({"data": {"holdout": "a/own.csv", "audit": 0.2}, "consumer": {"train": 0}})]
    ['a/own.csv']
    """
    sections = (("data", "holdout"), ("consumer", "train"), ("data", "audit"))
    values = [settings[name].get(key) for name, key in sections if isinstance(settings.get(name), Mapping)]
    paths = [Path(value) for value in values if isinstance(value, str)]
    if len({path.name for path in paths}) < len(set(paths)):
        raise BazaarError("market.toml names two files of the same name: rename one of them")
    return list(dict.fromkeys(paths))
