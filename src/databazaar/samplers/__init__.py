"""Samplers decide whom to ask. Each is frozen settings with pure `init`, `draw` and `update` over a state."""

from databazaar.samplers.osmd import OSMD
from databazaar.samplers.protocol import SAMPLERS, Sampler, Wants
from databazaar.samplers.thrifty import Thrifty
from databazaar.samplers.uniform import Uniform

__all__ = ["OSMD", "SAMPLERS", "Sampler", "Thrifty", "Uniform", "Wants"]
