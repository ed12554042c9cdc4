"""The names of a run's files."""

LEDGER, SUMMARY, RUN, MODEL = "ledger.sqlite", "summary.json", "run.json", "model/model.safetensors"
OLD_MODEL = "model.safetensors"
"""Where runs before 0.3.0 have their weights, and nothing beside them."""
LAST = "last"
"""The folder of the model that the last round ended with, where that is not the best one."""
LAYOUT, MODEL_SCHEMA = "layout.json", "model/schema.json"
