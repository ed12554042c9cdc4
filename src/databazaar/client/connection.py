"""Requests to a hub: with a token, repeated where the line fails, and every refusal as the hub's own sentence."""

from __future__ import annotations

import io
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote, urlsplit

from databazaar.client.shapes import Shape
from databazaar.errors import BazaarError

if TYPE_CHECKING:
    import httpx

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
PATIENCE, LONGEST_WAIT = 60.0, 30.0
"""Seconds for one answer, and between two attempts."""
Files = list[tuple[str, tuple[str | None, BinaryIO]]]


class HubError(BazaarError):
    """The hub has refused, or cannot be reached. `status` is that of HTTP, 0 where there was no answer."""

    def __init__(self, sentence: str, status: int = 0, code: str = "") -> None:
        super().__init__(sentence)
        self.status, self.code = status, code


class Connection:
    """A connection to one hub. Every POST has an Idempotency-Key, so repeating it does nothing twice."""

    def __init__(self, address: str, token: str, *, attempts: int = 5) -> None:
        try:
            import httpx
        except ImportError:
            raise BazaarError("httpx is not installed: pip install 'databazaar[client]'") from None
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise BazaarError("the hub's address must begin with https://: write it as the operator gave it")
        if parts.scheme == "http" and parts.hostname not in LOOPBACK:
            raise BazaarError(f"{address} would send your token for all to read: use https://")
        if not token or not token.isascii() or not token.isprintable():
            raise BazaarError("the token is empty or no token: take one that the hub's page Account has shown")
        self.address, self.attempts = address.rstrip("/"), attempts
        headers = {"Authorization": f"Bearer {token}", "User-Agent": "databazaar"}
        self.http = httpx.Client(base_url=self.address, headers=headers, timeout=PATIENCE)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r})"

    def close(self) -> None:
        self.http.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def told(self, method: str, path: str, **given: Any) -> Any:
        """What the hub answers in JSON. Whatever changes something there has a key of its own."""
        headers = {} if method == "GET" else {"Idempotency-Key": uuid.uuid4().hex}
        response = self.answer(method, path, headers=headers, **given)
        try:
            return response.json()
        except ValueError:
            raise no_hub(response) from None

    def send(self, path: str, data: Mapping[str, str], files: Files) -> Any:
        """A form in parts, also where no file goes with it."""
        fields: Files = [(name, (None, io.BytesIO(value.encode()))) for name, value in data.items()]
        return self.told("POST", path, files=[*fields, *files])

    def answer(self, method: str, path: str, **given: Any) -> httpx.Response:
        """The answer to a request that may be repeated, after as many attempts as it takes."""

        def asked() -> httpx.Response:
            for _, (_, stream) in given.get("files", ()):
                stream.seek(0)
            return self.http.request(method, path, **given)

        response = self._tried(asked)
        refuse(response)
        return response

    def download_to(self, path: str, target: Path) -> Path:
        """Writes what the hub gives to a file, which appears only when it is whole."""

        def downloaded() -> httpx.Response:
            with self.http.stream("GET", path) as response:
                if response.is_error:
                    response.read()
                    return response
                target.parent.mkdir(parents=True, exist_ok=True)
                descriptor, draft = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
                try:
                    with os.fdopen(descriptor, "wb") as file:
                        for piece in response.iter_bytes():
                            file.write(piece)
                    Path(draft).replace(target)
                finally:
                    Path(draft).unlink(missing_ok=True)
                return response

        refuse(self._tried(downloaded))
        return target

    def _tried(self, attempt: Callable[[], httpx.Response]) -> httpx.Response:
        """Again, a little later each time, where the line fails or the hub has no time."""
        import httpx

        for number in range(1, self.attempts + 1):
            wait = 0.2 * 2**number
            try:
                response = attempt()
            except httpx.TransportError as failure:
                if number == self.attempts:
                    said = f"{self.address} cannot be reached ({type(failure).__name__})"
                    raise HubError(f"{said}: check the address, then try again") from None
            else:
                if response.status_code not in (429, 503) or number == self.attempts:
                    return response
                asked = response.headers.get("retry-after", "")
                wait = float(asked) if asked.isdigit() else wait
            time.sleep(min(LONGEST_WAIT, wait))
        raise AssertionError("the last attempt answers or raises")


def refuse(response: httpx.Response) -> None:
    if response.is_success:
        return
    try:
        answer = response.json()
        sentence, code = str(answer["error"]), str(answer["code"])
    except (ValueError, KeyError, TypeError):
        raise no_hub(response) from None
    raise HubError(sentence, response.status_code, code)


def read(shape: type[Shape], answer: Any) -> Shape:
    """One of the hub's objects, as it has answered; what this version does not know of it is left out."""
    try:
        return shape.model_validate(answer)
    except ValueError:
        raise HubError("the hub's answer cannot be read: is it of another version?") from None


def no_hub(response: httpx.Response) -> HubError:
    sentence = f"the hub answered {response.status_code} and nothing that a hub says: is the address right?"
    return HubError(sentence, response.status_code)


def place(*parts: str) -> str:
    """An address under /v1, from ids that may hold anything.

    >>> place("jobs", "../x?y", "fund")
    '/v1/jobs/..%2Fx%3Fy/fund'
    """
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)
