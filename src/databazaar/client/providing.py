"""What a provider does: offers data, decides requests, looks at what it has earned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from databazaar.client import shapes
from databazaar.client.sending import Sender, place, read
from databazaar.errors import BazaarError


class Providing(Sender):
    def upload(self, path: Path) -> shapes.File:
        """A table, CSV or Parquet: a provider's data or a consumer's hold-out."""
        with opened(path) as stream:
            return read(shapes.File, self._send("/v1/files", {}, [("file", (path.name, stream))]))

    def file(self, file_id: str) -> shapes.FileColumns:
        return read(shapes.FileColumns, self._get(place("files", file_id)))

    def files(self) -> Iterator[shapes.FileUses]:
        """One's own, the newest first, and what each is used for."""
        return self._items(shapes.FileUses, "/v1/files")

    def delete_file(self, file_id: str) -> shapes.DeletedFile:
        """Deletes a file that no open offer, no contract under way and no unfinished job needs."""
        return read(shapes.DeletedFile, self._delete(place("files", file_id)))

    def own_offers(self) -> Iterator[shapes.OwnOffer]:
        return self._items(shapes.OwnOffer, "/v1/offers/own")

    def make_file_offer(
        self, name: str, slug: str, policy: Mapping[str, Any], file_id: str, description: str = ""
    ) -> shapes.OwnOffer:
        """Offers an uploaded file; `policy` has at least a `price`."""
        asked = {"name": name, "slug": slug, "policy": policy, "file_id": file_id, "description": description}
        return read(shapes.OwnOffer, self._post("/v1/offers/file", asked))

    def make_site_offer(
        self,
        name: str,
        slug: str,
        policy: Mapping[str, Any],
        site: str,
        columns: Sequence[Mapping[str, Any]],
        rows: int | None = None,
        description: str = "",
    ) -> shapes.OwnOffer:
        """Offers what a site of the federation holds."""
        asked = {"name": name, "slug": slug, "policy": policy, "site": site, "columns": list(columns), "rows": rows}
        return read(shapes.OwnOffer, self._post("/v1/offers/site", {**asked, "description": description}))

    def new_version(self, offer_id: str, file_id: str) -> shapes.Version:
        return read(shapes.Version, self._post(place("offers", offer_id, "versions"), {"file_id": file_id}))

    def change_policy(self, offer_id: str, policy: Mapping[str, Any]) -> shapes.OwnOffer:
        return read(shapes.OwnOffer, self._post(place("offers", offer_id, "policy"), {"policy": policy}))

    def withdraw_offer(self, offer_id: str) -> shapes.OwnOffer:
        return read(shapes.OwnOffer, self._post(place("offers", offer_id, "withdraw")))

    def requests(self, state: str = "requested") -> Iterator[shapes.Contract]:
        """What the provider was asked for and is to decide."""
        return self._items(shapes.Contract, "/v1/contracts/requests", state=state)

    def schema(self, contract_id: str, target: Path) -> Path:
        """Writes the schema.json by which a site will be asked, for its provider to look at and to accept."""
        return self._download(place("contracts", contract_id, "schema.json"), target)

    def decide(self, contract_id: str, agree: bool, reason: str = "") -> shapes.Decided:
        asked = {"agree": agree, "reason": reason}
        return read(shapes.Decided, self._post(place("contracts", contract_id, "decide"), asked))

    def contracts(self, job_id: str | None = None) -> Iterator[shapes.Contract]:
        """Those of one's own, as a consumer or as a provider."""
        return self._items(shapes.Contract, "/v1/contracts", job_id=job_id)

    def contract(self, contract_id: str) -> shapes.Contract:
        return read(shapes.Contract, self._get(place("contracts", contract_id)))

    def earnings(self) -> Iterator[shapes.Contract]:
        return self._items(shapes.Contract, "/v1/earnings")

    def queues(self) -> Iterator[shapes.Queue]:
        return self._items(shapes.Queue, "/v1/queues")

    def receipts(self, contract_id: str | None = None) -> Iterator[shapes.Receipt]:
        return self._items(shapes.Receipt, "/v1/receipts", contract_id=contract_id)


def opened(path: Path) -> Any:
    try:
        return path.open("rb")
    except OSError as reason:
        raise BazaarError(f"{path} cannot be read ({reason.strerror}): check the path") from None
