"""What an organisation does about itself, and an operator about the market."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from databazaar.client import answers
from databazaar.client.receipts import keys_of
from databazaar.client.sending import Sender, place


class Operating(Sender):
    def me(self) -> answers.Caller:
        """Who the token is, what it may do, and at which market."""
        return cast(answers.Caller, self._get("/v1/me"))

    def market(self) -> answers.Market:
        return cast(answers.Market, self._get("/v1/market"))

    def set_fee(self, basis_points: int) -> answers.Market:
        """For jobs that are funded from now on; 100 basis points are 1 %."""
        return cast(answers.Market, self._post("/v1/market/fee", {"basis_points": basis_points}))

    def organisations(self) -> Iterator[answers.Organisation]:
        return self._items("/v1/organisations")

    def invite(
        self, name: str, slug: str, email: str, *, consumes: bool = False, provides: bool = False
    ) -> answers.Invitation:
        """Invites an organisation; its `link` signs its first person in, once."""
        asked = {"name": name, "slug": slug, "email": email, "consumes": consumes, "provides": provides}
        return cast(answers.Invitation, self._post("/v1/organisations", asked))

    def suspend(self, organisation_id: str) -> answers.Organisation:
        return cast(answers.Organisation, self._post(place("organisations", organisation_id, "suspend")))

    def restore(self, organisation_id: str) -> answers.Organisation:
        return cast(answers.Organisation, self._post(place("organisations", organisation_id, "restore")))

    def people(self, organisation_id: str | None = None) -> Iterator[answers.Person]:
        return self._items("/v1/people", organisation_id=organisation_id)

    def disable_person(self, person_id: str) -> answers.Person:
        return cast(answers.Person, self._post(place("people", person_id, "disable")))

    def tokens(self) -> Iterator[answers.Token]:
        return self._items("/v1/tokens")

    def issue_token(
        self, label: str, scopes: Sequence[str], days: int = 90, organisation_id: str | None = None
    ) -> answers.IssuedToken:
        """Only a person who has signed in may: with a token, the hub refuses it."""
        asked = {"label": label, "scopes": list(scopes), "days": days, "organisation_id": organisation_id}
        return cast(answers.IssuedToken, self._post("/v1/tokens", asked))

    def revoke_token(self, token_id: str) -> answers.Token:
        return cast(answers.Token, self._post(place("tokens", token_id, "revoke")))

    def webhooks(self) -> Iterator[answers.Webhook]:
        return self._items("/v1/webhooks")

    def add_webhook(self, url: str) -> answers.NewWebhook:
        return cast(answers.NewWebhook, self._post("/v1/webhooks", {"url": url}))

    def deliveries(self, webhook_id: str) -> list[answers.Delivery]:
        """What a webhook was told last, or is yet to be told; the newest first."""
        return cast(list[answers.Delivery], self._get(place("webhooks", webhook_id, "deliveries"))["items"])

    def remove_webhook(self, webhook_id: str) -> answers.Webhook:
        return cast(answers.Webhook, self._post(place("webhooks", webhook_id, "remove")))

    def journal(self) -> Iterator[answers.Entry]:
        """The whole journal, the newest entry first. For the operator."""
        return self._items("/v1/journal")

    def audit_journal(self) -> answers.Audit:
        return cast(answers.Audit, self._get("/v1/journal/audit"))

    def export_journal(self, target: Path) -> Path:
        """Lines of JSON, which `databazaar.client.journal` checks without the hub."""
        return self._download("/v1/journal/export", target)

    def public_key(self) -> str:
        """The hub's, which it signs receipts with now."""
        return str(self._get("/v1/key")["key"])

    def public_keys(self) -> list[str]:
        """That one, and those that the hub had before: a receipt names its own."""
        return keys_of(self._get("/v1/key"))
