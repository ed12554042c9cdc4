"""Requests to a hub: with a token, repeated where the line fails, and every refusal as the hub's own sentence."""

from __future__ import annotations

import io
import os
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote, urlsplit

from databazaar.client.conversion import Shape, from_json
from databazaar.errors import BazaarError

if TYPE_CHECKING:
    import httpx

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
LONGEST_WAIT = 30.0
Files = list[tuple[str, tuple[str | None, BinaryIO]]]


class HubError(BazaarError):
    """The hub has refused, or cannot be reached. `status` is that of HTTP, 0 where there was no answer."""

    def __init__(self, sentence: str, status: int = 0, code: str = "") -> None:
        super().__init__(sentence)
        self.status, self.code = status, code


class Sender:
    """A connection to one hub. Every POST has an Idempotency-Key, so repeating it does nothing twice."""

    def __init__(
        self,
        address: str,
        token: str,
        *,
        patience: float = 60.0,
        attempts: int = 5,
        allow_plain: bool = False,
    ) -> None:
        """`patience` is for one answer, in seconds. `allow_plain` lets the token travel over http:// to another
        machine, where all on the way can read it."""
        try:
            import httpx
        except ImportError:
            raise BazaarError("httpx is not installed: pip install 'databazaar[client]'") from None
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise BazaarError("the hub's address must begin with https://: write it as the operator gave it")
        if parts.scheme == "http" and parts.hostname not in LOOPBACK and not allow_plain:
            raise BazaarError(f"{address} would send your token for all to read: use https://")
        if not token or not token.isascii() or not token.isprintable():
            raise BazaarError("the token is empty or no token: take one that the hub's page Account has shown")
        self.address, self._attempts = address.rstrip("/"), attempts
        headers = {"Authorization": f"Bearer {token}", "User-Agent": "databazaar"}
        self._http = httpx.Client(base_url=self.address, headers=headers, timeout=patience)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r})"

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _get(self, path: str, **params: Any) -> Any:
        given = {name: value for name, value in params.items() if value is not None}
        return told(self._answer("GET", path, params=given))

    def _post(self, path: str, body: Mapping[str, Any] | None = None, key: str | None = None) -> Any:
        return told(self._answer("POST", path, json=body, headers=_named(key)))

    def _delete(self, path: str) -> Any:
        return told(self._answer("DELETE", path, headers=_named(None)))

    def _send(self, path: str, data: Mapping[str, str], files: Files, key: str | None = None) -> Any:
        """A form in parts, also where no file goes with it."""
        fields: Files = [(name, (None, io.BytesIO(value.encode()))) for name, value in data.items()]
        return told(self._answer("POST", path, files=[*fields, *files], headers=_named(key)))

    def _items(self, shape: type[Shape], path: str, **params: Any) -> Iterator[Shape]:
        """All of a list, page by page."""
        cursor = "before" if path in ("/v1/statement", "/v1/journal") else "after"
        while True:
            page = self._get(path, **params)
            yield from (read(shape, one) for one in page["items"])
            if page["next"] is None:
                return
            params[cursor] = page["next"]

    def _answer(self, method: str, path: str, **given: Any) -> httpx.Response:
        """The answer to a request that may be repeated, after as many attempts as it takes."""
        import httpx

        for attempt in range(1, self._attempts + 1):
            for _, (_, stream) in given.get("files", ()):
                stream.seek(0)
            try:
                response = self._http.request(method, path, **given)
            except httpx.TransportError as failure:
                if attempt == self._attempts:
                    raise unreachable(self.address, failure) from None
                time.sleep(_pause(attempt))
                continue
            if response.status_code in (429, 503) and attempt < self._attempts:
                time.sleep(_pause(attempt, response.headers.get("retry-after", "")))
                continue
            refuse(response)
            return response
        raise AssertionError("the last attempt answers or raises")

    def _download(self, path: str, target: Path, **params: Any) -> Path:
        """Writes what the hub gives to a file, which appears only when it is whole."""
        import httpx

        for attempt in range(1, self._attempts + 1):
            try:
                return self._downloaded(path, target, params)
            except httpx.TransportError as failure:
                if attempt == self._attempts:
                    raise unreachable(self.address, failure) from None
                time.sleep(_pause(attempt))
        raise AssertionError("the last attempt answers or raises")

    def _downloaded(self, path: str, target: Path, params: Mapping[str, Any]) -> Path:
        with self._http.stream("GET", path, params=dict(params)) as response:
            if response.is_error:
                response.read()
            refuse(response)
            target.parent.mkdir(parents=True, exist_ok=True)
            descriptor, draft = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    for piece in response.iter_bytes():
                        file.write(piece)
                Path(draft).replace(target)
            finally:
                Path(draft).unlink(missing_ok=True)
        return target


def refuse(response: httpx.Response) -> None:
    """Raises the hub's sentence where it has refused."""
    if response.is_success:
        return
    try:
        answer = response.json()
        sentence, code = str(answer["error"]), str(answer["code"])
    except (ValueError, KeyError, TypeError):
        raise no_hub(response) from None
    raise HubError(sentence, response.status_code, code)


def told(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        raise no_hub(response) from None


def read(shape: type[Shape], answer: Any) -> Shape:
    """One of the hub's objects, as it has answered."""
    try:
        return from_json(shape, answer)
    except (KeyError, TypeError, ValueError):
        raise HubError("the hub's answer cannot be read: is it of another version?") from None


def no_hub(response: httpx.Response) -> HubError:
    sentence = f"the hub answered {response.status_code} and nothing that a hub says: is the address right?"
    return HubError(sentence, response.status_code)


def unreachable(address: str, failure: Exception) -> HubError:
    return HubError(f"{address} cannot be reached ({type(failure).__name__}): check the address, then try again")


def place(*parts: str) -> str:
    """An address under /v1, from ids that may hold anything.

    >>> place("jobs", "../x?y", "fund")
    '/v1/jobs/..%2Fx%3Fy/fund'
    """
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def _named(key: str | None) -> dict[str, str]:
    return {"Idempotency-Key": key or uuid.uuid4().hex}


def _pause(attempt: int, asked: str = "") -> float:
    return min(LONGEST_WAIT, float(asked) if asked.isdigit() else 0.2 * 2**attempt)
