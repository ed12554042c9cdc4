"""The report of a run as one HTML file."""

from __future__ import annotations

from dataclasses import dataclass

from databazaar.reports import sections
from databazaar.reports.document import badge, document
from databazaar.reports.markup import pairs
from databazaar.reports.wording import count, escape
from databazaar.runs.report import Report


@dataclass(frozen=True)
class AuditView:
    """What the audit found: whether all held, how many entries it checked, and its own words."""

    ok: bool
    checked: int
    message: str


def render(report: Report, *, title: str, audit: AuditView | None = None, baseline: Report | None = None) -> str:
    """The whole page. The same arguments give the same bytes."""
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
    header = f"{_status(report, audit)}\n{sections.summary(report)}"
    return document(title, "databazaar report", header, content)


def _status(report: Report, audit: AuditView | None) -> str:
    settled = report.status == "settled"
    badges = [badge(report.status.capitalize(), settled)]
    if audit is not None:
        badges.append(badge("Audit passed" if audit.ok else "Audit failed", audit.ok))
    message = f" {escape(report.message)}" if report.message else ""
    return f"<p>{' '.join(badges)}{message}</p>"


def _proof(report: Report, audit: AuditView | None) -> str:
    """What lets anybody check that this statement belongs to that model and that ledger."""
    if audit is None:
        verdict = "Not audited when this report was written."
    else:
        entries = count(audit.checked, "entry checked", "entries checked")
        verdict = badge("All holds" if audit.ok else "Broken", audit.ok) + f" {entries}. {escape(audit.message)}"
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
