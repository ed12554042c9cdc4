"""The report as one HTML file: it opens offline, asks the network for nothing and needs no script."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from importlib import resources

from databazaar.report import Report
from databazaar.reports import sections
from databazaar.reports.markup import pairs
from databazaar.reports.wording import count, escape


@dataclass(frozen=True)
class AuditView:
    """What the audit found: whether all held, how many entries it checked, and its own words."""

    ok: bool
    checked: int
    message: str


def render(report: Report, *, title: str, audit: AuditView | None = None, baseline: Report | None = None) -> str:
    """The whole page. The same arguments give the same bytes."""
    style, script = _asset("report.css"), _asset("sort.js")
    body = [
        sections.tiles(report),
        sections.training(report),
        sections.payouts(report),
        sections.against_baseline(report, baseline) if baseline is not None else "",
        sections.failures(report),
        sections.settings(report),
        _proof(report, audit),
        _notes(report),
    ]
    content = "\n".join(part for part in body if part)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<header class="top">
<div class="brand">databazaar report</div>
<h1>{escape(title)}</h1>
{_status(report, audit)}
{sections.summary(report)}
</header>
<main>
{content}
</main>
<footer>Made by databazaar. This file is complete in itself and loads nothing from the network.</footer>
<script>{script}</script>
</body>
</html>
"""


def _status(report: Report, audit: AuditView | None) -> str:
    settled = report.status == "settled"
    badges = [_badge(report.status.capitalize(), settled)]
    if audit is not None:
        badges.append(_badge("Audit passed" if audit.ok else "Audit failed", audit.ok))
    message = f" {escape(report.message)}" if report.message else ""
    return f"<p>{' '.join(badges)}{message}</p>"


def _badge(text: str, good: bool) -> str:
    mark = "✓" if good else "✗"
    kind = "badge" if good else "badge bad"
    return f'<span class="{kind}"><span aria-hidden="true">{mark}</span> {escape(text)}</span>'


def _proof(report: Report, audit: AuditView | None) -> str:
    """What lets anybody check that this statement belongs to that model and that ledger."""
    if audit is None:
        verdict = "Not audited when this report was written."
    else:
        entries = count(audit.checked, "entry checked", "entries checked")
        verdict = _badge("All holds" if audit.ok else "Broken", audit.ok) + f" {entries}. {escape(audit.message)}"
    replay = (
        "The audit replays every draw, distribution and payment from the seed and the recorded gains, "
        "without any data or model, and verifies the chain."
    )
    head = (
        "The last link of the ledger’s hash chain. Changing any earlier entry changes this value, so keep a copy of it."
    )
    model = "The trained model’s fingerprint. The same seed, engine and machine give the same value."
    return "<h2>Proof</h2>\n" + pairs(
        [
            ("audit", f'{verdict}<span class="hint">{replay}</span>'),
            ("ledger head", f'<code>{escape(report.ledger_head)}</code><span class="hint">{head}</span>'),
            ("model hash", f'<code>{escape(report.model_hash)}</code><span class="hint">{model}</span>'),
        ]
    )


def _notes(report: Report) -> str:
    lines = "\n".join(f"<li>{escape(note)}</li>" for note in report.notes)
    return f"<h2>Notes</h2>\n<ul>\n{lines}\n</ul>" if lines else ""


def _asset(name: str) -> str:
    return resources.files("databazaar.reports").joinpath(name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """Nothing may load from anywhere, and the one script that may run is ours."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
