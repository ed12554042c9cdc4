"""The built-in models as market.toml chooses them: their settings, and what of a table they take. One a file."""

from databazaar.models.protocol import MODELS, Model

__all__ = ["MODELS", "Model"]
