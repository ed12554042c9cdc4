"""The report in a real browser: silent console, silent network, and readable on a desk and on a phone."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from report_samples import sample_report

from databazaar.reports import AuditView, render

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
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium"),
]


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


def report_page() -> str:
    report = sample_report(["north", "<script>alert(1)</script>", "n" * 200], rounds=40)
    baseline = sample_report([payout.provider for payout in report.payouts], learns=False)
    return render(report, title="Browser test", audit=AuditView(True, 5, "All holds."), baseline=baseline)


def test_the_report_asks_for_nothing_and_complains_of_nothing(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(report_page(), encoding="utf-8")
    seen = visit(page, tmp_path / "visit")
    assert seen.console == []
    assert seen.requests == []
    assert "<button" in seen.dom, "the sorting script did not run"


def test_the_watch_itself_sees_requests_and_errors(tmp_path: Path) -> None:
    page = tmp_path / "noisy.html"
    page.write_text('<img src="http://market.invalid/pixel.png"><script>console.error("oops")</script>')
    seen = visit(page, tmp_path / "visit")
    assert any("oops" in line for line in seen.console)
    assert "http://market.invalid/pixel.png" in seen.requests


@pytest.mark.parametrize("width", [390, 1200])
def test_headline_numbers_are_visible_and_nothing_overflows(tmp_path: Path, width: int) -> None:
    """The report in a frame of that width, with a probe that tells its rendered text and its overflow."""
    probe = """<script>addEventListener("load", () => parent.postMessage({
        text: document.querySelector("main").innerText,
        wide: document.documentElement.scrollWidth}, "*"))</script>"""
    text = re.sub(r"<meta http-equiv[^>]*>", "", report_page()).replace("</body>", probe + "</body>")
    (tmp_path / "report.html").write_text(text, encoding="utf-8")
    outer = tmp_path / "frame.html"
    outer.write_text(
        f"""<script>addEventListener("message", (told) => {{
        const pre = document.createElement("pre"); pre.textContent = JSON.stringify(told.data);
        document.body.append(pre); }})</script>
        <body><iframe src="report.html" style="border:0;width:{width}px;height:800px"></iframe></body>"""
    )
    seen = visit(outer, tmp_path / "visit")
    told = re.search(r"<pre>(.*?)</pre>", seen.dom, flags=re.DOTALL)
    assert told is not None
    shown = json.loads(html.unescape(told[1]))
    report = sample_report(["north", "<script>alert(1)</script>", "n" * 200], rounds=40)
    for minor in (report.budget, report.spent, report.refunded):
        assert report.currency.amount(minor) in shown["text"]
    assert f"{report.final_utility:.4g}" in shown["text"]
    assert "<script>alert(1)</script>" in shown["text"]
    assert shown["wide"] <= width


def test_the_table_sorts_by_value(tmp_path: Path) -> None:
    """A click on "Difference" in the comparison puts the largest first, below zero too; a second one last."""
    click = """<script>
        const head = document.querySelector("details thead th:last-child button");
        const cells = () => [...document.querySelectorAll("details tbody td:last-child")];
        const values = () => cells().map((cell) => +cell.dataset.value);
        head.click(); const down = values(); head.click();
        document.title = JSON.stringify([down, values()]);</script>"""
    page = tmp_path / "report.html"
    text = re.sub(r"<meta http-equiv[^>]*>", "", report_page()).replace("</body>", click + "</body>")
    page.write_text(text, encoding="utf-8")
    told = re.search(r"<title>(.*?)</title>", visit(page, tmp_path / "visit").dom)
    assert told is not None
    down, up = json.loads(told[1])
    assert down == sorted(down, reverse=True) and up == sorted(up) and min(down) < 0 < max(down)
