"""Pages in a real browser: what they say on the console, what they ask of the network, and how they lie on a screen."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
]
NEEDS_CHROMIUM = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium"),
]
PHONE, DESK = 390, 1200


@dataclass(frozen=True)
class Visit:
    dom: str
    console: list[str]
    requests: list[str]


_apart = ThreadPoolExecutor(1, "browser")
"""Playwright's event loop has a thread of its own, so that tests may run theirs."""
_open = ExitStack()


@cache
def _browser() -> Browser:
    """One for all tests of a process; `close_browser` ends it."""
    from playwright.sync_api import sync_playwright

    playwright = _open.enter_context(sync_playwright())
    started = playwright.chromium.launch(
        executable_path=CHROMIUM, args=FLAGS, ignore_default_args=["--hide-scrollbars"]
    )
    _open.callback(started.close)
    return started


def close_browser() -> None:
    _apart.submit(_open.close).result()


def _look(page: Path, width: int, ask: Callable[[Page], Any]) -> tuple[Any, list[str], list[str]]:
    """What is asked of the page once it is loaded, what it wrote on the console, and what it asked of the network."""
    console, requests = list[str](), list[str]()
    context = _browser().new_context(viewport={"width": width, "height": 800})
    try:
        opened = context.new_page()
        opened.on("console", lambda message: console.append(message.text))
        opened.on("pageerror", lambda error: console.append(str(error)))
        opened.on("request", lambda request: requests.append(request.url))
        opened.goto(page.as_uri(), timeout=120_000)
        return ask(opened), console, requests
    finally:
        context.close()


def visit(page: Path) -> Visit:
    """Open the page headless; the DOM, the console's lines, and what the page asked of the network."""
    dom, console, requests = _apart.submit(_look, page, 1280, lambda opened: opened.content()).result()
    return Visit(dom, console, [url for url in requests if not url.startswith("file:")])


def scripted(page: str, script: str) -> str:
    """The page with a script of the test's own, which its policy would not let run."""
    return re.sub(r"<meta http-equiv[^>]*>", "", page).replace("</body>", f"<script>{script}</script></body>")


PROBE = """() => ({
    text: document.querySelector("main").innerText,
    wide: Math.max(document.documentElement.scrollWidth, document.body.scrollWidth),
    figures: [...document.querySelectorAll("figure svg")].map((drawn) => {
        const box = drawn.getBoundingClientRect(); return [box.width, box.height, box.left, box.right]; }),
    tables: [...document.querySelectorAll("[role=region]")].map((one) => {
        const box = one.getBoundingClientRect();
        return [one.getAttribute("aria-label"), one.querySelectorAll("tbody tr").length, box.left, box.right]; }),
    heads: Object.fromEntries([...document.querySelectorAll("[role=region]")].map((one) => [
        one.getAttribute("aria-label"),
        [...one.querySelectorAll("thead th")].map((head) => {
            const box = head.getBoundingClientRect(); return [head.innerText, box.left, box.right]; })])),
    hidden: Object.fromEntries([...document.querySelectorAll("[role=region]")].map((one) => [
        one.getAttribute("aria-label"), one.scrollHeight - one.clientHeight])),
})"""


def laid_out(page: str, width: int, folder: Path) -> dict[str, Any]:
    """The page in a window of that width: its rendered text, how wide it gets, and where figures and tables lie."""
    file = folder / "page.html"
    file.write_text(page, encoding="utf-8")
    found: dict[str, Any] = _apart.submit(_look, file, width, lambda opened: opened.evaluate(PROBE)).result()[0]
    return found


def assert_fits(shown: dict[str, Any], width: int) -> None:
    """Nothing makes the page itself scroll sideways, and every figure is there to be seen."""
    assert shown["wide"] <= width
    assert shown["figures"]
    for drawn_width, height, left, right in shown["figures"]:
        assert drawn_width > width / 3 and height > 50 and left >= 0 and right <= width
    for name, _, left, right in shown["tables"]:
        assert left >= 0 and right <= width, name
