"""Signing in at an identity provider (OpenID Connect): authorization code with PKCE. Who was invited comes in."""

from __future__ import annotations

import hmac
import logging
import secrets
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, Field, ValidationError

from databazaar.errors import BazaarError
from databazaar.service import credentials
from databazaar.service.errors import UnknownCallerError
from databazaar.service.http.context import InWeb
from databazaar.service.http.cookies import OIDC, SESSION, cookie_name, delete_cookie, set_cookie
from databazaar.service.settings import Settings

log = logging.getLogger("databazaar.hub")
router = APIRouter(include_in_schema=False)
START, CALLBACK = "/sign-in/oidc", "/sign-in/oidc/callback"
ALGORITHMS = ["RS256", "PS256", "ES256", "EdDSA"]
PATIENCE, LEEWAY, TEN_MINUTES = 10.0, 60, 600
AGAIN = "signing in at the identity provider did not succeed: try again from the page where you sign in"
UNVERIFIED = "the identity provider does not vouch for your e-mail address: verify it there, then try again"


class Attempt(BaseModel, frozen=True):
    """What one browser keeps while it is at the provider's, in a cookie that scripts cannot read."""

    state: str = Field(default_factory=secrets.token_urlsafe)
    nonce: str = Field(default_factory=secrets.token_urlsafe)
    verifier: str = Field(default_factory=lambda: secrets.token_urlsafe(48))


class Provider:
    """The market's identity provider. Nothing is asked of it before somebody signs in."""

    def __init__(self, settings: Settings) -> None:
        self.issuer, self.client_id = settings.oidc_issuer, settings.oidc_client
        self._secret = settings.oidc_secret
        self.redirect = settings.address + CALLBACK
        self._metadata: dict[str, Any] = {}

    def begin(self, attempt: Attempt) -> str:
        """Where to send the browser."""
        with self._client() as client:
            url, _ = client.create_authorization_url(
                self._known(client)["authorization_endpoint"],
                state=attempt.state,
                nonce=attempt.nonce,
                code_verifier=attempt.verifier,
            )
        return str(url)

    def email(self, attempt: Attempt, code: str) -> str:
        """The e-mail address that the provider vouches for."""
        with self._client() as client:
            metadata = self._known(client)
            answer = client.fetch_token(
                metadata["token_endpoint"], grant_type="authorization_code", code=code, code_verifier=attempt.verifier
            )
            keys = client.request("GET", metadata["jwks_uri"], withhold_token=True).json()
        claims = self._claims(answer, keys, attempt.nonce)
        if claims.get("email_verified") is not True or not isinstance(claims.get("email"), str):
            raise UnknownCallerError(UNVERIFIED)
        return str(claims["email"])

    def _claims(self, answer: Any, keys: Any, nonce: str) -> Any:
        from authlib.oidc.core import CodeIDToken
        from joserfc import jwt
        from joserfc.jwk import KeySet

        token = jwt.decode(answer["id_token"], KeySet.import_key_set(keys), algorithms=ALGORITHMS)
        options = {
            "iss": {"essential": True, "value": self.issuer},
            "aud": {"essential": True, "value": self.client_id},
        }
        params = {"nonce": nonce, "client_id": self.client_id, "access_token": answer.get("access_token")}
        claims = CodeIDToken(token.claims, token.header, options, params)
        claims.validate(leeway=LEEWAY)
        return claims

    def _client(self) -> Any:
        with warnings.catch_warnings(record=True):  # it would have us use another package than httpx
            from authlib.integrations.httpx_client import OAuth2Client

            return OAuth2Client(
                self.client_id,
                self._secret or None,
                scope="openid email",
                redirect_uri=self.redirect,
                code_challenge_method="S256",
                token_endpoint_auth_method="client_secret_basic" if self._secret else "none",
                timeout=PATIENCE,
            )

    def _known(self, client: Any) -> dict[str, Any]:
        """What the provider says of itself; it must be the one that the operator has named."""
        if not self._metadata:
            address = self.issuer.rstrip("/") + "/.well-known/openid-configuration"
            found = client.request("GET", address, withhold_token=True).json()
            if found.get("issuer") != self.issuer:
                raise BazaarError(f"the identity provider calls itself {found.get('issuer')!r}: correct --oidc-issuer")
            self._metadata = found
        return self._metadata


@router.get(START)
def begin(request: Request, web: InWeb) -> Response:
    """Sends the browser to the identity provider."""
    web.limits.sign_in(request)
    attempt = Attempt()
    with _told_as_refusal():
        target = request.app.state.oidc.begin(attempt)
    response = RedirectResponse(target, 303)
    set_cookie(response, web.settings, OIDC, attempt.model_dump_json(), TEN_MINUTES)
    return response


@router.get(CALLBACK)
def come_back(request: Request, web: InWeb, state: str = "", code: str = "") -> Response:
    """Where the provider sends the browser back to, with a code that is good for one token."""
    web.limits.sign_in(request)
    try:
        attempt = Attempt.model_validate_json(request.cookies.get(cookie_name(web.settings, OIDC), ""))
    except ValidationError:
        raise UnknownCallerError(AGAIN) from None
    if not code or not hmac.compare_digest(attempt.state.encode(), state.encode()):
        raise UnknownCallerError(AGAIN)
    with _told_as_refusal():
        email = request.app.state.oidc.email(attempt, code)
    with web.database.begin() as session:
        signed = credentials.sign_in_vouched(session, email)
    response = RedirectResponse("/", 303)
    set_cookie(response, web.settings, SESSION, signed.session_secret)
    delete_cookie(response, web.settings, OIDC)
    return response


@contextmanager
def _told_as_refusal() -> Iterator[None]:
    """Whatever goes wrong with the provider is one sentence for the person, and one line for the operator."""
    try:
        yield
    except UnknownCallerError:
        raise
    except Exception as failure:
        log.warning("the identity provider: %s: %s", type(failure).__name__, failure)
        raise UnknownCallerError(AGAIN) from None
