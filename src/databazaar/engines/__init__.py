"""Engines turn parameters and a list of providers into updates: in process, stacked, or over a network."""

from databazaar.engines.loop import LoopEngine
from databazaar.engines.protocol import Ask, Beginning, Ended, Engine, Remote, Replies, query_all
from databazaar.engines.select import make_engine
from databazaar.engines.vectorized import VectorizedEngine

__all__ = [
    "Ask",
    "Beginning",
    "Ended",
    "Engine",
    "LoopEngine",
    "Remote",
    "Replies",
    "VectorizedEngine",
    "make_engine",
    "query_all",
]
