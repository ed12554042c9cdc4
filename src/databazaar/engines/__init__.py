"""Engines turn parameters and a list of providers into updates: in process, stacked, or over a network."""

from databazaar.engines.loop import LoopEngine
from databazaar.engines.protocol import Ask, Engine, Replies
from databazaar.engines.select import make_engine
from databazaar.engines.vectorized import VectorizedEngine

__all__ = ["Ask", "Engine", "LoopEngine", "Replies", "VectorizedEngine", "make_engine"]
