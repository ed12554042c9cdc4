"""Before 0.5.0 a round whose model had no finite utility ended the run. Such ledgers are read as what they were."""

from __future__ import annotations

import json
from pathlib import Path

from databazaar.ledger import Entry, audit_entries
from forging import reseal

WRITTEN = Path(__file__).with_name("diverged.jsonl")
"""Entries that version 0.4.0 wrote."""


def test_a_run_that_diverged_is_audited_as_what_it_was() -> None:
    entries = [Entry(*json.loads(line)) for line in WRITTEN.read_text(encoding="utf-8").splitlines()]
    audit = audit_entries(entries)
    assert audit.ok and audit.closing is not None, audit.first_broken
    assert audit.closing["status"] == "diverged" and "the step was not taken" in audit.closing["message"]
    another = entries[-1]._replace(body={**entries[-1].body, "status": "settled"})
    assert "does not follow from the rounds" in str(audit_entries(reseal([*entries[:-1], another])).first_broken)
