"""Imported last by the server that forks: the garbage collector of its children leaves alone what is loaded by now, so
that they go on sharing its pages and need not look through all of torch."""

from __future__ import annotations

import gc

gc.collect()
gc.freeze()
