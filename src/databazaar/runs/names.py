"""The names of a run's files."""

LEDGER, SUMMARY, RUN, MODEL = "ledger.sqlite", "summary.json", "run.json", "model/model.safetensors"
LAST = "last"
"""The folder of the model that the last round ended with, where that is not the best one."""
LAYOUT, BEGUN = "layout.json", "begun.json"
CSV, JSON, PAGE = "statement.csv", "statement.json", "report.html"
"""What people read of a run: written by reports/written.py."""
LARGEST_WEIGHTS = 4 * 2**30
"""Bytes of a model's file: more is not read."""
