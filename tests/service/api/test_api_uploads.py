"""Large uploads: refused before any of it is kept, where there is no room or too many are under way."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import starlette.formparsers

from databazaar.service.http.cookies import cookie_name
from databazaar.service.http.security import CSRF_FIELD, csrf_token
from databazaar.service.http.security_limits import FORM
from web_market import MakeMarket, WebMarket, table

QUOTA = 100_000
LARGE = {"file": ("t.csv", table(5, rows=20_000))}


@pytest.fixture(scope="module")
def market(make_market: MakeMarket) -> WebMarket:
    return make_market("sqlite", most_body=2000, quota=QUOTA, uploads=2)


@pytest.fixture
def spooled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The pieces of files that forms have written down, by their sizes."""
    written: list[int] = []

    class Counted(starlette.formparsers.SpooledTemporaryFile[bytes]):  # type: ignore[name-defined, misc]
        def write(self, piece: Any) -> int:
            written.append(len(piece))
            return int(super().write(piece))

    monkeypatch.setattr(starlette.formparsers, "SpooledTemporaryFile", Counted)
    return written


def asked(market: WebMarket, **given: Any) -> httpx.Request:
    return httpx.Request("POST", f"{market.settings.address}/v1/files", **given)


@pytest.mark.process
@pytest.mark.usefixtures("tables_are_read_apart")
def test_a_table_that_expands_is_refused_in_one_sentence(market: WebMarket) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(20_000, np.int32)), pa.array(["x" * 10**6]))
    pq.write_table(pa.table({"a": column}), out := io.BytesIO())
    refused = market.ask("north", "POST", "/v1/files", files={"file": ("t.parquet", out.getvalue())})
    assert refused.status_code == 422
    assert refused.json()["error"] == (
        "t.parquet: the file takes 18.6 GiB once it is read, more than the 1.0 GiB that a table may take here: "
        "split it or leave columns out"
    )


async def send(market: WebMarket, who: str, body: AsyncIterator[bytes], headers: dict[str, str]) -> httpx.Response:
    """An upload that comes piece by piece."""
    headers |= {"Authorization": f"Bearer {market.tokens[who]}"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(market.app)) as client:
        return await client.post(f"{market.settings.address}/v1/files", content=body, headers=headers)


def test_what_is_over_the_quota_is_refused_before_it_is_kept(market: WebMarket, spooled: list[int]) -> None:
    assert len(LARGE["file"][1]) > QUOTA + FORM
    refused = market.ask("north", "POST", "/v1/files", files=LARGE)
    assert refused.status_code == 409 and f"may keep {QUOTA:,} bytes" in refused.json()["error"]
    assert spooled == []
    assert market.ask("north", "POST", "/v1/files", files={"file": ("t.csv", table(5, rows=200))}).status_code == 201
    assert sum(spooled) > 2000


def test_a_browsers_form_is_refused_before_it_is_kept(market: WebMarket, spooled: list[int]) -> None:
    """Its token is inside the form, which is read for it."""
    secret = market.session_of("north")
    with market.client() as client:
        client.cookies.set(cookie_name(market.settings), secret)
        refused = client.post("/v1/files", files=LARGE, data={CSRF_FIELD: csrf_token(secret)})
    assert refused.status_code == 409 and spooled == []


def test_a_body_of_unknown_length_is_bounded_by_the_quota(market: WebMarket, spooled: list[int]) -> None:
    whole = asked(market, files=LARGE)
    body = whole.read()

    async def pieces() -> AsyncIterator[bytes]:
        for place in range(0, len(body), 1000):
            yield body[place : place + 1000]

    refused = asyncio.run(send(market, "south", pieces(), {"Content-Type": whole.headers["Content-Type"]}))
    assert refused.status_code == 413
    assert 0 < sum(spooled) <= QUOTA + FORM < len(body)


def test_who_may_not_upload_is_refused_before_it_is_kept(market: WebMarket, spooled: list[int]) -> None:
    assert market.ask(market.token("north", "read"), "POST", "/v1/files", files=LARGE).status_code == 403
    assert spooled == []


def test_an_organisation_has_few_large_uploads_under_way(market: WebMarket) -> None:
    """Others are not held up, small requests neither; and who was refused hears why, after all that it sends."""
    asyncio.run(_many_uploads(market))


async def _many_uploads(market: WebMarket) -> None:
    go = asyncio.Event()

    async def upload(who: str, under_way: asyncio.Event | None = None, rows: int = 200) -> httpx.Response:
        whole = asked(market, files={"file": ("t.csv", table(6, rows=rows))})
        body = whole.read()

        async def pieces() -> AsyncIterator[bytes]:
            yield body[:100]
            if under_way is not None:
                under_way.set()
                await go.wait()
            yield body[100:]

        return await send(market, who, pieces(), dict(whole.headers))

    begun = [asyncio.Event(), asyncio.Event()]
    held = [asyncio.create_task(upload("buyer", one)) for one in begun]
    for one in begun:
        await one.wait()
    refused = await upload("buyer")
    assert refused.status_code == 429 and "2 uploads of yours are under way" in refused.json()["error"]
    assert (await upload("buyer", rows=20)).status_code == 201
    assert (await upload("south")).status_code == 201
    go.set()
    assert [(await one).status_code for one in held] == [201, 201]
    assert (await upload("buyer")).status_code == 201
