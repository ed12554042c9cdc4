"""Pages in a real browser: what they say on the console, what they ask of the network, and how they lie on a screen."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--enable-logging=stderr",
    "--window-size=1280,1600",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)
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


def visit(page: Path, folder: Path) -> Visit:
    """Open the page headless; the DOM, the console's lines, and what the page asked of the network."""
    folder.mkdir()
    netlog = folder / "net.json"
    done = subprocess.run(
        [
            str(CHROMIUM),
            *FLAGS,
            f"--user-data-dir={folder / 'profile'}",
            f"--log-net-log={netlog}",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    events = json.loads(netlog.read_text())["events"]
    asked = [event["params"] for event in events if {"url", "initiator"} <= event.get("params", {}).keys()]
    # Chromium's own traffic (its clock, its updates) is "not an origin"; a page's is its origin, or "null".
    requests = [params["url"] for params in asked if params["initiator"] != "not an origin"]
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return Visit(done.stdout, console, [url for url in requests if not url.startswith("file:")])


def scripted(page: str, script: str) -> str:
    """The page with a script of the test's own, which its policy would not let run."""
    return re.sub(r"<meta http-equiv[^>]*>", "", page).replace("</body>", f"<script>{script}</script></body>")


PROBE = """addEventListener("load", () => parent.postMessage({
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
}, "*"))"""


def laid_out(page: str, width: int, folder: Path) -> dict[str, Any]:
    """The page in a frame of that width: its rendered text, how wide it gets, and where figures and tables lie."""
    folder.mkdir()
    (folder / "page.html").write_text(scripted(page, PROBE), encoding="utf-8")
    outer = folder / "frame.html"
    outer.write_text(
        f"""<script>addEventListener("message", (told) => {{
        const pre = document.createElement("pre"); pre.textContent = JSON.stringify(told.data);
        document.body.append(pre); }})</script>
        <body><iframe src="page.html" style="border:0;width:{width}px;height:800px"></iframe></body>"""
    )
    told = re.search(r"<pre>(.*?)</pre>", visit(outer, folder / "visit").dom, flags=re.DOTALL)
    assert told is not None
    found: dict[str, Any] = json.loads(html.unescape(told[1]))
    return found


def assert_fits(shown: dict[str, Any], width: int) -> None:
    """Nothing makes the page itself scroll sideways, and every figure is there to be seen."""
    assert shown["wide"] <= width
    assert shown["figures"]
    for drawn_width, height, left, right in shown["figures"]:
        assert drawn_width > width / 3 and height > 50 and left >= 0 and right <= width
    for name, _, left, right in shown["tables"]:
        assert left >= 0 and right <= width, name
