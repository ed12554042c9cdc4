"""What is asked of every page in a browser: nothing on the console, one heading, no sideways scrolling, axe content.

With a folder in the environment's SCREENSHOTS, a picture of each page is left there, for people to look at.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, Request, expect

DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)  # of itself it waits five seconds, which a busy machine may take
OURS = re.compile(r" · (Harbour market|databazaar)$")
SHOTS = os.environ.get("SCREENSHOTS", "")


@cache
def axe() -> str:
    return (Path(__file__).parents[1] / "service" / "browser" / "axe" / "axe.min.js").read_text(encoding="utf-8")


@dataclass
class Person:
    """Somebody with a browser of their own. `seen` are the titles of the pages that were looked at."""

    context: BrowserContext
    page: Page
    address: str
    seen: set[str] = field(default_factory=set)
    troubles: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls, browser: Browser, address: str, *, seen: set[str] | None = None, scripts: bool = True, dark: bool = False
    ) -> Person:
        context = browser.new_context(
            viewport=DESK,  # type: ignore[arg-type]
            java_script_enabled=scripts,
            color_scheme="dark" if dark else "light",
            accept_downloads=True,
        )
        context.set_default_timeout(PATIENCE_MS)
        person = cls(context, context.new_page(), address, set() if seen is None else seen)
        person.page.on("console", person._note)
        person.page.on("pageerror", lambda error: person.troubles.append(str(error)))
        person.page.on("request", person._note_stranger)
        return person

    def _note(self, message: ConsoleMessage) -> None:
        refused = "the server responded with a status of 4" in message.text or "ERR_" in message.text
        if message.type in ("error", "warning") and not refused:
            self.troubles.append(message.text)

    def _note_stranger(self, request: Request) -> None:
        if not request.url.startswith((self.address, "data:")):
            self.troubles.append(f"asked elsewhere: {request.url}")

    def goto(self, path: str) -> Page:
        self.page.goto(path if path.startswith("http") else f"{self.address}{path}")
        return self.page

    def press(self, button: str) -> None:
        self.page.get_by_role("button", name=button, exact=True).click()

    def by_keyboard(self, target: Locator, key: str = "Enter") -> None:
        """Tabs from the top of the page until the target has the focus, which must be visible, and presses a key."""
        self.page.evaluate("document.activeElement.blur(); getSelection().removeAllRanges(); scrollTo(0, 0)")
        self.page.locator(".skip, .alone").first.evaluate("one => { one.tabIndex = 0; one.focus(); }")
        for _ in range(120):
            if target.evaluate("one => one === document.activeElement"):
                assert target.evaluate("one => getComputedStyle(one).outlineStyle") != "none"
                self.page.keyboard.press(key)
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"{target} is not reached by the keyboard")

    def look(self) -> None:
        """Checks the page as it is, once for each title."""
        expect(self.page).to_have_title(OURS, timeout=PATIENCE_MS)  # waits for a page that is still on its way
        title = self.page.title()
        if title in self.seen:
            return
        self.seen.add(title)
        assert self.page.locator("h1").count() == 1, title
        assert self.page.locator("main").count() == 1, title
        for size in (PHONE, DESK):
            self.page.set_viewport_size(size)  # type: ignore[arg-type]
            wide = self.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= size["width"], f"{title}: {wide} at {size['width']}\n{self._widest(size['width'])}"
            if SHOTS:
                name = re.sub(r"\W+", "-", f"{len(list(Path(SHOTS).iterdir())):03d} {title} {size['width']}")[:90]
                self.page.screenshot(path=Path(SHOTS) / f"{name}.png", full_page=True)
        assert_accessible(self.page)
        assert self.troubles == [], title

    def _widest(self, width: int) -> str:
        script = """width => [...document.querySelectorAll("main *, header *, footer *")].filter((one) =>
            one.getBoundingClientRect().right > width && !one.closest(".scroll")).map((one) =>
            one.outerHTML.slice(0, 160)).slice(0, 5).join("\\n")"""
        return str(self.page.evaluate(script, width))


def assert_accessible(page: Page) -> None:
    page.evaluate(axe())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    told = [
        f"{page.title()}: {one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes'][:3]]}"
        for one in found["violations"]
    ]
    assert told == [], "\n".join(told)
