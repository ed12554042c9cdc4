"""A small OpenID provider, for tests: it lets everybody in at once, and says of them what the test has set."""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import FastAPI, Form, Header
from fastapi.responses import JSONResponse, RedirectResponse, Response
from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "hub", "the-hub's-secret"


@dataclass
class OidcProvider:
    """`claims` are put over those that a token has by itself; `faulty` names what the provider does wrong."""

    issuer: str
    claims: dict[str, Any] = field(default_factory=dict)
    faulty: str = ""
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.key = RSAKey.generate_key(2048, {"kid": "one"})
        self.app = FastAPI()
        self.app.get("/.well-known/openid-configuration")(self.configuration)
        self.app.get("/keys")(self.keys)
        self.app.get("/authorize")(self.authorize)
        self.app.post("/token")(self.token)

    def configuration(self) -> dict[str, Any]:
        named = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
        issuer = "https://other.example" if self.faulty == "issuer" else self.issuer
        return {"issuer": issuer, **{name: f"{self.issuer}/{path}" for name, path in named.items()}}

    def keys(self) -> dict[str, Any]:
        key = RSAKey.generate_key(2048, {"kid": "one"}) if self.faulty == "key" else self.key
        return {"keys": [key.as_dict(private=False)]}

    def authorize(
        self,
        client_id: str,
        redirect_uri: str,
        state: str,
        nonce: str,
        code_challenge: str,
        code_challenge_method: str,
        response_type: str,
        scope: str,
    ) -> Response:
        assert (client_id, code_challenge_method, response_type) == (CLIENT, "S256", "code")
        assert set(scope.split()) == {"openid", "email"}
        code = secrets.token_urlsafe()
        self.codes[code] = {"challenge": code_challenge, "nonce": nonce, "redirect": redirect_uri}
        return RedirectResponse(f"{redirect_uri}?code={code}&state={state}", 302)

    def token(
        self,
        code: Annotated[str, Form()],
        code_verifier: Annotated[str, Form()],
        redirect_uri: Annotated[str, Form()],
        grant_type: Annotated[str, Form()],
        authorization: Annotated[str, Header()],
    ) -> Response:
        name, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        asked = self.codes.pop(code, None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(code_verifier.encode()).digest()).decode().rstrip("=")
        known = (name, secret, grant_type) == (CLIENT, SECRET, "authorization_code")
        if asked is None or not known or challenge != asked["challenge"] or redirect_uri != asked["redirect"]:
            return JSONResponse({"error": "invalid_grant"}, 400)
        moment = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT, "sub": "1", "iat": moment, "exp": moment + 60}
        claims |= {"nonce": asked["nonce"], "email_verified": True, **self.claims}
        signed = jwt.encode({"alg": "RS256", "kid": "one"}, claims, self.key)
        return JSONResponse({"access_token": "opaque", "token_type": "Bearer", "id_token": signed})
