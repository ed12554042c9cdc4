"""Somebody's browser, as far as forms and links go: enough to ask every page what it does."""

from __future__ import annotations

from typing import Any, TypeAlias

from databazaar.service.http.cookies import cookie_name
from databazaar.service.http.security import csrf_token
from page_market import PageMarket
from web_market import TestClient

Response: TypeAlias = Any
"""Of httpx, or of httpx2 where that is installed: Starlette's client takes the newer one."""


class Visitor:
    """Signed in as the first person of an organisation, or nobody."""

    def __init__(self, market: PageMarket, app: Any, slug: str = "") -> None:
        self.client = TestClient(app, base_url=market.settings.address, follow_redirects=False)
        self.secret = market.secrets.get(slug, "")
        if slug:
            self.client.cookies.set(cookie_name(market.settings), self.secret)

    def get(self, path: str, **more: Any) -> Response:
        answer: Response = self.client.get(path, **more)
        return answer

    def post(self, path: str, files: Any = None, **form: Any) -> Response:
        answer: Response = self.client.post(path, data={"csrf": csrf_token(self.secret), **form}, files=files)
        return answer

    def sees(self, response: Response) -> str:
        """The page that a form leads to."""
        assert response.status_code == 303, response.text
        return str(self.get(response.headers["location"]).text)
