"""Samplers decide whom to ask. Each is frozen settings with pure `init`, `draw` and `update` over a state."""

from databazaar.samplers.adaptive import Adaptive
from databazaar.samplers.osmd import OSMD
from databazaar.samplers.protocol import SAMPLERS, Sampler, Wants
from databazaar.samplers.uniform import Uniform

__all__ = ["OSMD", "SAMPLERS", "Adaptive", "Sampler", "Uniform", "Wants"]
