"""Samplers decide whom to ask. Each is frozen settings with pure `init`, `draw` and `update` over a state."""

from databazaar.samplers.osmd import OSMD
from databazaar.samplers.protocol import Sampler, from_settings, settings_of
from databazaar.samplers.uniform import Uniform

__all__ = ["OSMD", "Sampler", "Uniform", "from_settings", "settings_of"]
