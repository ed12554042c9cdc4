"""What an organisation does about itself, and an operator about the market."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from databazaar.client import shapes
from databazaar.client.receipts import keys_of
from databazaar.client.sending import Sender, place, read


class Operating(Sender):
    def me(self) -> shapes.Caller:
        """Who the token is, what it may do, and at which market."""
        return read(shapes.Caller, self._get("/v1/me"))

    def market(self) -> shapes.Market:
        return read(shapes.Market, self._get("/v1/market"))

    def set_fee(self, basis_points: int) -> shapes.Market:
        """For jobs that are funded from now on; 100 basis points are 1 %."""
        return read(shapes.Market, self._post("/v1/market/fee", {"basis_points": basis_points}))

    def organisations(self) -> Iterator[shapes.Organisation]:
        return self._items(shapes.Organisation, "/v1/organisations")

    def invite(
        self, name: str, slug: str, email: str, *, consumes: bool = False, provides: bool = False
    ) -> shapes.Invitation:
        """Invites an organisation; its `link` signs its first person in, once."""
        asked = {"name": name, "slug": slug, "email": email, "consumes": consumes, "provides": provides}
        return read(shapes.Invitation, self._post("/v1/organisations", asked))

    def suspend(self, organisation_id: str) -> shapes.Organisation:
        return read(shapes.Organisation, self._post(place("organisations", organisation_id, "suspend")))

    def restore(self, organisation_id: str) -> shapes.Organisation:
        return read(shapes.Organisation, self._post(place("organisations", organisation_id, "restore")))

    def people(self, organisation_id: str | None = None) -> Iterator[shapes.Person]:
        return self._items(shapes.Person, "/v1/people", organisation_id=organisation_id)

    def disable_person(self, person_id: str) -> shapes.Person:
        return read(shapes.Person, self._post(place("people", person_id, "disable")))

    def tokens(self) -> Iterator[shapes.Token]:
        return self._items(shapes.Token, "/v1/tokens")

    def issue_token(
        self, label: str, scopes: Sequence[str], days: int = 90, organisation_id: str | None = None
    ) -> shapes.IssuedToken:
        """Only a person who has signed in may: with a token, the hub refuses it."""
        asked = {"label": label, "scopes": list(scopes), "days": days, "organisation_id": organisation_id}
        return read(shapes.IssuedToken, self._post("/v1/tokens", asked))

    def revoke_token(self, token_id: str) -> shapes.Token:
        return read(shapes.Token, self._post(place("tokens", token_id, "revoke")))

    def webhooks(self) -> Iterator[shapes.Webhook]:
        return self._items(shapes.Webhook, "/v1/webhooks")

    def add_webhook(self, url: str) -> shapes.NewWebhook:
        return read(shapes.NewWebhook, self._post("/v1/webhooks", {"url": url}))

    def deliveries(self, webhook_id: str) -> list[shapes.Delivery]:
        """What a webhook was told last, or is yet to be told; the newest first."""
        found = self._get(place("webhooks", webhook_id, "deliveries"))["items"]
        return [read(shapes.Delivery, one) for one in found]

    def remove_webhook(self, webhook_id: str) -> shapes.Webhook:
        return read(shapes.Webhook, self._post(place("webhooks", webhook_id, "remove")))

    def journal(self) -> Iterator[shapes.Entry]:
        """The whole journal, the newest entry first. For the operator."""
        return self._items(shapes.Entry, "/v1/journal")

    def audit_journal(self) -> shapes.Audit:
        return read(shapes.Audit, self._get("/v1/journal/audit"))

    def export_journal(self, target: Path) -> Path:
        """Lines of JSON, which `databazaar.client.journal` checks without the hub."""
        return self._download("/v1/journal/export", target)

    def public_key(self) -> str:
        """The hub's, which it signs receipts with now."""
        return str(self._get("/v1/key")["key"])

    def public_keys(self) -> list[str]:
        """That one, and those that the hub had before: a receipt names its own."""
        return keys_of(self._get("/v1/key"))
